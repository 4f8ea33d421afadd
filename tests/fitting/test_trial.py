"""The trial at the end of `nbf.fit`: its rows, what it says, that it is saved, and that it never loses a model."""

from __future__ import annotations

import functools
import warnings
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fits import untrained_on_a_line

import nbf
from nbf.contracts import Filter
from nbf.errors import InputError
from nbf.fitting import fit as fitting
from nbf.fitting import race
from nbf.fitting import trial as trials
from nbf.fitting.compare import ComparisonStopped, trial
from nbf.fitting.comparison import Comparison
from nbf.fitting.episodes import StepScores, num_episodes
from nbf.fitting.filtering import Episodes
from nbf.fitting.fitted import FittedModel

CELLS = 5


@functools.cache
def line() -> nbf.One:
    """A walk on a row of cells, all of which look alike but the first."""
    move = 0.5 * np.eye(CELLS) + 0.5 * np.roll(np.eye(CELLS), 1, axis=1)
    seen = np.tile([0.1, 0.9], (CELLS, 1))
    seen[0] = [0.9, 0.1]
    return nbf.One(nbf.from_matrices(move, seen, np.full(CELLS, 1 / CELLS)), None)


@functools.cache
def tried() -> Comparison:
    """With scores that are drawn, and without the timing: `nbf.compare` has tests for both."""
    random = np.random.default_rng(7)

    def drawn(filter: Filter, key: Any, episodes: Episodes, *_: Any) -> StepScores:
        shape = num_episodes(episodes), 3
        return StepScores(*map(jnp.asarray, (-random.random(shape), random.random(shape), np.ones(shape, np.int32))))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(race, "microseconds", lambda *_: 1.0)
        patch.setattr(race, "score", drawn)
        return trial(line(), untrained_on_a_line(CELLS), episodes=2, horizon=3, progress=False)


def test_a_trial_has_the_rows_that_judge_a_filter():
    kinds = [row.kind for row in tried().rows]
    assert {"prior", "exact", "particle", "neural", "ceiling"} <= set(kinds)
    assert "untrained" not in kinds
    assert tried().row("ParticleFilter(1024)").calls == 1024
    assert (tried().episodes, tried().horizon) == (2, 3)


def test_its_short_form_is_the_table_and_the_recommendation():
    assert "neural (32)" in tried().brief
    assert all(sentence.split()[-1] in tried().brief for sentence in tried().recommendation)
    assert tried().brief in str(with_trial(tried()))


def with_trial(comparison: Comparison | None) -> FittedModel:
    return replace(untrained_on_a_line(CELLS), trial=comparison)


def test_a_model_is_saved_with_its_trial(tmp_path):
    with_trial(tried()).save(tmp_path / "model.safetensors")
    assert FittedModel.load(tmp_path / "model.safetensors").trial == tried()
    with_trial(None).save(tmp_path / "model.safetensors")
    assert FittedModel.load(tmp_path / "model.safetensors").trial is None


def test_without_a_trial_the_summary_says_what_it_does_not_say():
    assert "nbf.compare(family, fitted)" in str(with_trial(None))
    assert "nbf.compare(family, fitted)" not in str(with_trial(tried()))


def attempt(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> FittedModel:
    def fails(*_, **__):
        raise error

    monkeypatch.setattr(trials, "trial", fails)
    return trials.with_trial(line(), untrained_on_a_line(CELLS), 2, 3, 0, False)


@pytest.mark.parametrize("error", [InputError("no such thing"), RuntimeError("no such thing")], ids=str)
def test_a_trial_that_cannot_be_made_loses_no_model(error, monkeypatch):
    with pytest.warns(UserWarning, match="The model is trained, but its filter could not be tried: no such thing"):
        found = attempt(monkeypatch, error)
    assert found.trial is None


def test_a_trial_that_is_stopped_before_its_first_row_loses_no_model(monkeypatch):
    with pytest.raises(trials.TrialStopped) as stop:
        attempt(monkeypatch, KeyboardInterrupt())
    assert stop.value.fitted.trial is None


def test_a_trial_that_is_stopped_loses_no_model(monkeypatch):
    with warnings.catch_warnings(), pytest.raises(trials.TrialStopped, match="the model is trained") as stop:
        attempt(monkeypatch, ComparisonStopped(tried()))
    assert stop.value.fitted.trial == tried()
    assert jax.tree.leaves(stop.value.fitted.model)


def test_a_fit_that_is_stopped_while_trust_is_measured_loses_no_model(monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(fitting, "earned_trust", stopped)
    with pytest.raises(trials.TrialStopped) as stop:
        nbf.fit(line(), steps=20, particles=16, horizon=3, trial=0, progress=False)
    assert stop.value.fitted.trust is None
    assert stop.value.fitted.steps == 20
    assert stop.value.fitted.calibration.verdict
