"""Tiny jobs of the experiments, and what is done with every one: run, recorded once, drawn."""

from __future__ import annotations

from dataclasses import replace

from nbf_paper.experiments import donuts, goofspiel, triangulation
from nbf_paper.experiments.choices import EXPERIMENTS
from nbf_paper.experiments.goofspiel_evaluation import GoofspielEvaluation
from nbf_paper.experiments.selfplay import SelfPlayConfig
from nbf_paper.experiments.walks import WalkConfig
from nbf_paper.records import read_records


class Bar:
    """Counts what an evaluation reports."""

    def __init__(self) -> None:
        self.done = 0

    def describe(self, text: str) -> None: ...
    def advance(self, done: int) -> None:
        self.done += done


def donuts_job(decoder: str) -> donuts.DonutsJob:
    scored = donuts.DonutsEvaluation(beliefs=4, embedded=8, held_out=8)
    return donuts.DonutsJob(decoder, steps=20, evaluation=scored)


def triangulation_job(arm: str) -> triangulation.TriangulationJob:
    scored = triangulation.TriangulationEvaluation(
        episodes=2, particle_filters=(32, 1024), smoothed_filters=(16,), neural_filters=(16,), approx_samples=8,
        resolution=100, walk=WalkConfig(steps=3),
    )  # fmt: skip
    training = replace(triangulation.TRAINING, steps=20)
    return triangulation.TriangulationJob(arm, training=training, evaluation=scored, pool_episodes=4)


def goofspiel_job(arm: str) -> goofspiel.GoofspielJob:
    scored = GoofspielEvaluation(
        episodes=4, particle_filters=(16,), neural_filters=(8,), approx_samples=8, importance_samples=4
    )
    policies = SelfPlayConfig(cards=3, runs=2, checkpoints=2, timesteps=64, epochs=1, width=8, depth=1)
    training = replace(goofspiel.TRAINING, steps=20, batch=4, samples=8)
    return goofspiel.GoofspielJob(3, arm, 0, training, scored, policies, pool_games=4)


def run_twice(name, job, tmp_path):
    """The records of a job that is run, and then found to be recorded."""
    folder, bar = tmp_path / name, Bar()
    assert job.run(folder, tmp_path / "runs", command="a test", bar=bar)
    assert bar.done >= job.evaluated
    job.check(tmp_path / "runs")
    records = read_records(folder)
    assert not job.run(folder, tmp_path / "runs", command="a test", bar=bar)
    assert read_records(folder) == records
    return folder, records


def drawn(name, folder):
    page = EXPERIMENTS[name].page(folder)
    for draw in page.figures.values():
        draw()
    return page
