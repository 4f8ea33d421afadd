"""Long episodes: which steps an error is the mean of, the ratio of two errors, and the page."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from jobs import Bar
from tolerances import EXACT

from nbf.errors import InputError
from nbf.filters.particle import ParticleFilter
from nbf_paper.audit.meaning import key_of
from nbf_paper.experiments.choices import Amount, Drift
from nbf_paper.experiments.drift import DriftJob, mean_ratio
from nbf_paper.experiments.rows import FilterRow
from nbf_paper.names import ENDLESS, ZOO
from nbf_paper.records import ALL, Record, Run, add
from nbf_paper.report.drift import page
from nbf_paper.report.labels import label


def test_the_error_of_a_ratio_is_that_of_many_repetitions():
    generator = np.random.default_rng(0)

    def drawn():
        common = generator.gamma(4.0, 0.1, 20)
        return 1.5 * common * generator.uniform(0.5, 1.5, 20), common

    found = np.array([mean_ratio(*drawn()) for _ in range(4000)])
    np.testing.assert_allclose(found[:, 0].mean(), 1.5, rtol=0, atol=4 * found[:, 0].std() / np.sqrt(4000) + 0.01)
    np.testing.assert_allclose(found[:, 1].mean(), found[:, 0].std(), rtol=0.1)
    assert np.isnan(mean_ratio(np.ones(3), np.zeros(3))[0])


def test_errors_are_means_over_the_steps_before_40_and_before_200(monkeypatch, tmp_path):
    errors = np.zeros((3, 200))
    errors[:, 20:40], errors[:, 180:200] = 1.0, 2.0
    errors[:, 19], errors[:, 40], errors[:, 179] = 50.0, 60.0, 70.0
    row = FilterRow(ParticleFilter(32), "nbf", "", 32, 32)
    episodes = SimpleNamespace(environment=None, scores=lambda row, bar: {"js": errors})
    monkeypatch.setattr(DriftJob, "episodes_of", lambda *_: episodes)
    monkeypatch.setattr(DriftJob, "_rows", lambda *_: [row, replace(row, name="reference")])
    monkeypatch.setattr(DriftJob, "training_run", lambda *_: SimpleNamespace(load=lambda: None))
    records = DriftJob("search", episodes=3).measure(tmp_path, tmp_path, Bar())
    found = {(record.filter, record.metric): record.value for record in records}
    assert set(found) == {
        ("nbf", "error_at_40"), ("nbf", "error_at_200"), ("nbf", "drift"), ("reference", "error_at_40"),
        ("reference", "error_at_200"),
    }  # fmt: skip
    wanted = {"error_at_40": 1.0, "error_at_200": 2.0, "drift": 2.0}
    for metric, value in wanted.items():
        np.testing.assert_allclose(found["nbf", metric], value, **EXACT)


def test_jobs_are_of_the_problems_that_go_on():
    assert set(ENDLESS) < set(ZOO)
    assert [job.problem for job in Drift().jobs(Amount()) if isinstance(job, DriftJob)] == list(ENDLESS)
    with pytest.raises(InputError, match="2 episodes"):
        DriftJob("search", episodes=1)
    with pytest.raises(InputError, match="no problem 'bears'"):
        DriftJob("bears")


def test_a_model_that_is_trained_on_longer_episodes_is_another_run(tmp_path):
    usual, longer = DriftJob("search"), DriftJob("search", trained_on=200)
    assert usual.key != longer.key
    assert usual.training_run(tmp_path).path != longer.training_run(tmp_path).path
    assert (usual.training_run(tmp_path).problem.horizon, longer.training_run(tmp_path).problem.horizon) == (40, 200)
    assert key_of(label("nbf", longer.arm, 32, "drift", ("search",)), "drift") == ("nbf", longer.arm, 32)
    (job,) = Drift(trained_on=9, problems=("ring",)).jobs(Amount())
    assert job == DriftJob("ring", trained_on=9)
    with pytest.raises(InputError, match="--trained-on must be at least 1; got -1"):
        Drift(trained_on=-1).jobs(Amount())


def test_the_page_has_the_ratio_and_both_errors(tmp_path):
    def record(metric, value):
        return Record("drift", "search", "nbf", "", 32, 32, 0, ALL, metric, value, 0.01, 20)

    values = {"drift": 1.25, "error_at_40": 0.1, "error_at_200": 0.125}
    add(tmp_path, [record(*pair) for pair in values.items()], Run("search/0", 0, "command", 1.0, {}))
    found = page(tmp_path)
    assert "| NBF (32), fitted   | 1.25 ± 0.01 |" in found.tables["drift"]
    assert "0.100 ± 0.010" in found.tables["drift-early"]
    assert "0.125 ± 0.010" in found.tables["drift-late"]
    assert key_of(label("nbf", "", 32, "drift", ("search",)), "drift") == ("nbf", "", 32)
