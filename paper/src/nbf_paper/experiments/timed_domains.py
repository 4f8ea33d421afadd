"""The domains in which updates are timed: their filters and an episode for each (see `simulation_cost`)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Key

from nbf import prng
from nbf.contracts import BeliefModel, Environment, Observation, Policy
from nbf.environments.goofspiel_game import CardPolicy
from nbf.environments.rollout import at_step, rollout
from nbf.files.checkpoint import load_model
from nbf.models.belief_model import MODELS
from nbf_paper.config import GoofspielConfig, GridworldConfig, TriangulationConfig
from nbf_paper.experiments import goofspiel, goofspiel_evaluation, gridworld, triangulation, untrained
from nbf_paper.experiments.rows import FilterRow
from nbf_paper.names import TRIANGULATION

Step = tuple[Observation, Environment, Policy]


@dataclass(frozen=True)
class Domain:
    """The filters of an experiment, and an episode on which they are timed."""

    experiment: str
    config: str
    command: str
    """The options of `nbf-paper reproduce` that record it."""
    model: Callable[[str, Path], tuple[BeliefModel, bool]]
    """The model of an arm from a folder of trainings, and whether it is trained; else its parameters are random."""
    filter_rows: Callable[[str, BeliefModel], list[FilterRow]]
    """The filters of an arm; those without a model belong to the faithful one."""
    steps: Callable[[Key[Array, ""]], list[Step]]


def _steps(observations: Array, environments: Environment, policies: Policy, *, changing: bool) -> list[Step]:
    """An episode as a list of steps; `changing` environments and policies have a leading axis."""
    inside = lambda tree, step: at_step(tree, step, changing=changing)  # noqa: E731
    seen = np.asarray(observations)
    return [(seen[step], inside(environments, step), inside(policies, step)) for step in range(len(seen))]


def _model(config: Any, path: Path | None) -> tuple[BeliefModel, bool]:
    """A trained model if its file is there, else one with random parameters; and whether it is trained."""
    if path is not None and path.exists():
        return load_model(path, MODELS)[0], True
    return eqx.filter_jit(config.build)(prng.stream(0, "simulation cost")), False


def _gridworld(name: str) -> Domain:
    config = GridworldConfig.parse(name)

    def model(arm: str, runs: Path) -> tuple[BeliefModel, bool]:
        if arm == untrained.KERNEL:
            return _model(untrained.gridworld_model(config), None)
        return _model(gridworld.arm_of(config, arm)[0], gridworld.training_run(config, arm, 0, runs).path)

    def filter_rows(arm: str, model: BeliefModel) -> list[FilterRow]:
        return gridworld.filter_rows(config, arm, model, gridworld.GridworldEvaluation())

    def steps(key: Key[Array, ""]) -> list[Step]:
        environment, policy = gridworld.family_of(config, 0).sample(key)
        _, observations = rollout(key, environment, policy, config.horizon)
        return _steps(observations, environment, policy, changing=False)

    return Domain("gridworld", name, f"gridworld --config {name}", model, filter_rows, steps)


def _triangulation() -> Domain:
    config = TriangulationConfig()

    def model(arm: str, runs: Path) -> tuple[BeliefModel, bool]:
        if arm == untrained.KERNEL:
            return _model(untrained.triangulation_model(config), None)
        job = triangulation.TriangulationJob(arm)
        return _model(job.model, job.training_run(runs).path)

    def filter_rows(arm: str, model: BeliefModel) -> list[FilterRow]:
        return triangulation.filter_rows(arm, model, triangulation.TriangulationEvaluation())

    def steps(key: Key[Array, ""]) -> list[Step]:
        environments, policies = config.family().schedule(key, config.horizon)
        _, observations = rollout(key, environments, policies, config.horizon, changing=True)
        return _steps(observations, environments, policies, changing=True)

    return Domain(TRIANGULATION, TRIANGULATION, TRIANGULATION, model, filter_rows, steps)


def _goofspiel(cards: int) -> Domain:
    config = GoofspielConfig(cards)

    def model(arm: str, runs: Path) -> tuple[BeliefModel, bool]:
        job = goofspiel.GoofspielJob(cards, arm)
        return _model(job.model, job.training_run(runs).path)

    def filter_rows(arm: str, model: BeliefModel) -> list[FilterRow]:
        return goofspiel_evaluation.filter_rows(arm, model, cards, goofspiel_evaluation.GoofspielEvaluation())

    def steps(key: Key[Array, ""]) -> list[Step]:
        """A game between two untrained policies."""
        pool = jax.vmap(lambda key: CardPolicy(key, cards))(jax.random.split(key))
        environments, policies, observations, _ = config.family(pool).episode(key)
        return _steps(observations, environments, policies, changing=True)

    return Domain("goofspiel", config.name, f"goofspiel --cards {cards}", model, filter_rows, steps)


def timed_domain(config: str) -> Domain:
    """The domain of a configuration, as records name it."""
    if config == TRIANGULATION:
        return _triangulation()
    cards = re.fullmatch(r"k=([0-9])", config)
    return _goofspiel(int(cards[1])) if cards else _gridworld(config)
