"""Laws of `nbf.compare`: rows that brute force knows, the best filter where theory knows it, bad input, Ctrl-C."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tolerances import FLOAT
from worlds import posterior, three_rooms

import nbf
from nbf import prng
from nbf.capabilities import Scheduled
from nbf.contracts import Family
from nbf.errors import InputError
from nbf.evaluation.calibration import Calibration
from nbf.fitting.compare import ComparisonStopped
from nbf.fitting.contenders import classical
from nbf.fitting.episodes import draw_episodes, score
from nbf.fitting.rows import advantage
from nbf.fitting.timing import microseconds
from nbf.fitting.trust import MeasuredTrust
from nbf.models.belief_model import LatticeConfig
from nbf.models.enumerated import EnumeratedDecoderConfig
from nbf.models.set_encoder import MeanConfig

EPISODES, HORIZON, SEED = 4, 3, 5
SMALL: dict[str, Any] = {
    "episodes": EPISODES,
    "horizon": HORIZON,
    "seed": SEED,
    "particles": (),
    "quick": True,
    "progress": False,
}


def compared(family: Any, fitted: Any = None, **changes: Any) -> nbf.Comparison:
    return nbf.compare(family, fitted, **(SMALL | changes))


class ChangingRooms(Scheduled):
    """Three rooms, in which the probability of staying put changes from step to step."""

    def sample(self, key):
        return three_rooms(), jax.random.uniform(key)

    def schedule(self, key, steps):
        world = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (steps, *leaf.shape)), three_rooms())
        return world, jax.random.uniform(key, (steps,))


def untrained() -> nbf.FittedModel:
    """What `nbf.fit` would make, but not trained and not measured."""
    decoder, encoder = EnumeratedDecoderConfig(width=4, depth=1), MeanConfig(width=4, depth=1)
    config = nbf.ModelConfig(LatticeConfig((3,)), decoder, encoder, embedding=4)
    flat, half, none = np.ones((1, 2)), np.full(1, 0.5), np.zeros(0, np.float32)
    calibration = Calibration(
        beliefs=1, embed=1, held_out=1, draws=1, nll=0.0, nll_error=0.0, impossible=0.0, energy=0.0, energy_error=0.0,
        js=None, js_error=None, pit=flat, pit_band=flat, pit_p=np.ones(1), levels=half, coverage=half,
        coverage_band=half, coverage_bias_error=1.0,
    )  # fmt: skip
    return nbf.FittedModel(config.build(jax.random.key(0)), config, calibration, "", None, 0.0, 0, 0.0, none, none)


@functools.cache
def rooms() -> nbf.Comparison:
    return compared(ChangingRooms(), [untrained(), untrained()], budgets=(4,))


def js(p, q) -> float:
    middle = (p + q) / 2.0
    return float(0.5 * np.sum(p * np.log(p / middle)) + 0.5 * np.sum(q * np.log(q / middle)))


def by_hand() -> dict[str, np.ndarray]:
    """Log scores of prior and posterior, and their divergence, in each episode: sums over all trajectories."""
    drawn = draw_episodes(ChangingRooms(), prng.stream(SEED, "compare", "episodes"), EPISODES, HORIZON)
    moves = np.asarray(three_rooms().moves, np.float64)
    found = {"prior": [], "exact": [], "js": []}
    for place in range(EPISODES):
        symbols = np.asarray(drawn.observations[place]).tolist()
        stays = np.asarray(drawn.policy[place], np.float64).tolist()
        states = np.asarray(drawn.states[place])[1:, 0]
        prior, logs = np.asarray(three_rooms().start, np.float64), []
        for step in range(HORIZON):
            prior = stays[step] * prior + (1.0 - stays[step]) * prior @ moves
            exact, _ = posterior(three_rooms(), symbols[: step + 1], stays[: step + 1])
            mixed = 0.999 * exact[states[step]] + 0.001 * prior[states[step]]
            logs.append((np.log(prior[states[step]]), np.log(mixed), js(prior, exact)))
        for name, values in zip(found, zip(*logs, strict=True), strict=True):
            found[name].append(np.mean(values))
    return {name: np.asarray(values) for name, values in found.items()}


def test_prior_and_exact_rows_are_those_of_brute_force():
    found, truth = rooms(), by_hand()
    prior, exact = found.row("prior"), found.row("ExactFilter()")
    np.testing.assert_allclose(prior.log_scores[0], truth["prior"], **FLOAT)
    np.testing.assert_allclose(prior.divergences[0], truth["js"], **FLOAT)
    np.testing.assert_allclose(exact.log_scores[0], truth["exact"], **FLOAT)
    np.testing.assert_allclose(exact.divergences, 0.0, **FLOAT)


def test_every_filter_that_applies_has_a_row():
    found = rooms()
    names = [
        "prior", "ExactFilter()", "BranchingFilter(4)", "ParticleFilter(4)", "neural (4)", "untrained (4)", "ceiling",
    ]  # fmt: skip
    assert [row.name for row in found.rows] == names
    assert (found.measure, found.ranked_by, found.models) == ("JS", "divergence", 2)
    assert [len(row.divergences) for row in found.rows] == [1, 1, 1, 1, 2, 2, 2]
    assert found.row("ExactFilter()").calls == 9.0
    assert found.row("ParticleFilter(4)").calls == 4.0  # every likelihood is positive: no attempt fails
    assert all(0.0 <= value <= np.log(2.0) for row in found.rows for part in row.divergences for value in part)


def test_the_regularised_baseline_has_the_kernel_of_the_neural_filter():
    """The same privilege: the width that was chosen when the model was fitted."""
    trust = MeasuredTrust((8, 32), (nbf.Trust(0.5, 1.0), nbf.Trust(0.5, 0.25)))
    found, notes = classical(line_world(0.3, 0.1), None, (8, 16), (), trust)
    filters = [contender.filters[0] for contender in found if contender.kind == "regularised"]
    scales = [filter.smoother.scale for filter in filters if isinstance(filter, nbf.RegularizedParticleFilter)]
    np.testing.assert_allclose(np.asarray(scales), [1.0, 0.5], **FLOAT)
    assert "Regularised filters have the kernels of the neural ones: 1, 0.5 times Silverman's width." in notes


def test_what_is_not_trained_is_said_to_add_nothing():
    assert any(sentence.startswith("The network adds nothing here") for sentence in rooms().recommendation)


def test_ctrl_c_leaves_the_rows_so_far(monkeypatch):
    calls = []

    def stops(*arguments):
        calls.append(arguments)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return score(*arguments)

    monkeypatch.setattr("nbf.fitting.race.score", stops)
    with pytest.raises(ComparisonStopped) as stopped:
        compared(ChangingRooms(), budgets=(4,))
    found = stopped.value.comparison
    assert found is not None
    assert [row.name for row in found.rows] == ["prior", "ExactFilter()", "BranchingFilter(4)"]
    assert found.unfinished == ("ParticleFilter(4)",)
    assert "these rows were still to come: ParticleFilter(4)" in str(stopped.value)
    assert found.rows == rooms().rows[:3]  # the same seed, the same numbers


def line_world(noise: float, seen: float) -> nbf.LinearGaussian:
    """A linear-Gaussian system, of which a Kalman filter knows everything: variances of a step and of a reading."""
    space = nbf.Box((-4.0,), (4.0,), bounded=False)  # one for all, so that programs are shared
    return nbf.LinearGaussian(A=[[1.0]], Q=[[noise]], C=[[1.0]], R=[[seen]], m0=[0.0], P0=[[1.0]], space=space)


def line(noise: float, seen: float) -> nbf.Comparison:
    return compared(line_world(noise, seen), budgets=(8,), reference=512, episodes=12)


def test_the_kalman_filter_is_best_where_it_is_exact():
    found = line(0.3, 0.1)
    kalman = found.row("KalmanFilter()")
    assert (found.measure, found.reference_sound) == ("energy", True)
    for row in (row for row in found.rows if row is not kalman):
        mean, error = advantage(kalman, row, "log score")
        assert mean > -2.0 * error, row.name
    for name in ("prior", "ParticleFilter(8)"):
        mean, error = advantage(kalman, found.row(name), "log score")
        assert mean > 2.0 * error, name
    # Both are the truth but for noise, in units of the belief's own width.
    assert abs(kalman.divergence) < 0.05 < found.row("prior").divergence


def test_a_degenerate_reference_is_called_poor():
    """A hidden constant, read so well that resampling leaves a few of 512 particles."""
    found = line(0.0, 1e-4)
    assert not found.reference_sound
    assert "POOR" in found.reference
    assert found.ranked_by == "log score"


def test_time_is_measured_unless_it_is_to_be_quick():
    key = jax.random.key(0)
    drawn = draw_episodes(ChangingRooms(), key, 2, HORIZON)
    assert 0.0 < microseconds(nbf.ExactFilter(), key, drawn) < 1e6
    assert all(row.microseconds is None for row in rooms().rows)


# --- bad input -----------------------------------------------------------------------------------


class Growing(Family):
    """Environments of a size that depends on the key, in Python."""

    def sample(self, key):
        states = 2 + int(jax.random.key_data(key)[-1]) % 7
        uniform = np.full((states, states), 1.0 / states)
        return nbf.from_matrices([uniform], uniform, uniform[0]), 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"budgets": (16, 0)}, "budgets"),
        ({"budgets": (16.0,)}, "whole number"),
        ({"budgets": ()}, "at least one"),
        ({"particles": (-1,)}, "particles"),
        ({"episodes": 1}, "episodes of at least 2"),
        ({"horizon": 0}, "horizon"),
        ({"call_cost": -1.0}, "microseconds"),
        ({"call_cost": float("nan")}, "microseconds"),
        ({"reference": 1}, "reference"),
        ({"fitted": "model"}, "nbf.fit"),
    ],
)
def test_bad_settings_are_refused_before_any_work(changes, message, unchecked):
    with pytest.raises(InputError, match=message):
        compared(ChangingRooms(), **changes)


def test_a_family_whose_environments_differ_is_refused():
    with pytest.raises(InputError, match=r"differ in shape.*Pad them"):
        compared(Growing())


def test_a_model_of_another_space_is_refused():
    with pytest.raises(InputError, match="lattice"):
        compared(ChangingRooms(), nbf.shipped_model())


def test_what_is_no_family_is_refused(unchecked):
    with pytest.raises(InputError, match="family of environments"):
        compared(3)
