"""What a fitted model makes: its ceiling, the paper's filter; and families whose observer acts on what it saw."""

from __future__ import annotations

import dataclasses
import functools
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import assert_frequencies
from card_games import network_pool
from fits import no_calibration
from worlds import posterior, three_rooms

import nbf
from nbf.capabilities import Episodic
from nbf.errors import InputError
from nbf.evaluation.calibration import Calibration
from nbf.filters.neural import IndependentProposal
from nbf.fitting import fit
from nbf.fitting.fitted import FittedModel
from nbf.fitting.reference import WRITTEN, described, rebuilt
from nbf.fitting.teacher import belief_source, horizon_of
from nbf.models.autoregressive import AutoregressiveConfig
from nbf.models.set_encoder import MeanConfig
from nbf.training.config import FitConfig
from nbf.training.fit import Fitted

CARDS = 3
SHORT = FitConfig(steps=20, batch=4, samples=8)


@functools.cache
def games() -> nbf.GoofspielFamily:
    return nbf.GoofspielFamily(network_pool(CARDS, size=2), nbf.GoofspielGame(CARDS))


def learn() -> FittedModel:
    small = {"decoder": AutoregressiveConfig(width=8, depth=1), "encoder": MeanConfig(8, 1), "embedding": 4, "trial": 0}
    return nbf.fit(games(), training=SHORT, progress=False, **small)


ASLEEP = 0.5
"""Seconds that the stub of calibration takes."""


def asleep(*_, **__) -> Calibration:
    time.sleep(ASLEEP)
    return no_calibration()


@functools.cache
def fitted() -> tuple[FittedModel, float]:
    """What `nbf.fit` makes of Goofspiel, neither trained nor measured, and the seconds that the call took."""
    begin, none = time.monotonic(), np.zeros(0, np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit, "train", lambda model, *_, **__: Fitted(model, none, 0.0, none))
        patch.setattr(fit, "calibrate", asleep)
        patch.setattr(fit, "earned_trust", lambda *_, **__: None)
        return learn(), time.monotonic() - begin


def test_goofspiel_is_fitted_like_any_family():
    """Over the whole game, by exact beliefs."""
    result, _ = fitted()
    assert horizon_of(games(), None) == games().game.rounds
    assert result.teacher == "the exact filter"
    world, _ = jax.eval_shape(games().sample, jax.random.key(0))
    assert result.model.space.signature == world.space.signature


@pytest.mark.slow
def test_goofspiel_is_trained_and_filtered(key):
    """From end to end."""
    result = learn()
    assert np.isfinite(result.calibration.nll)
    environments, policies, observations, _ = games().episode(key)
    for filter in (result.filter(8), result.ceiling(8)):
        _, infos = nbf.run(filter, key, observations, environments, policies, changing=True)
        assert np.all(np.isfinite(infos.log_evidence))


def test_all_of_the_time_is_counted():
    """Calibration too."""
    result, seconds = fitted()
    assert ASLEEP < result.seconds <= seconds
    np.testing.assert_allclose(result.seconds, seconds, rtol=0.2)


def test_a_summary_does_not_judge_the_filter():
    assert "nothing of a filter" in str(fitted()[0])


def test_the_ceiling_is_that_of_the_teacher_also_when_loaded(tmp_path, key):
    result, _ = fitted()
    result.save(tmp_path / "game.safetensors")
    environment, policy = jax.eval_shape(games().sample, key)
    for each in (result, FittedModel.load(tmp_path / "game.safetensors")):
        ceiling = each.ceiling(8)
        assert isinstance(ceiling.truth, nbf.PrefixFilter)
        assert ceiling.num_samples == 8
        jax.eval_shape(ceiling.init, key, environment)
    assert policy is not None


def test_the_faithful_filter_is_the_papers():
    filter = fitted()[0].faithful(8)
    assert isinstance(filter.proposal, IndependentProposal)
    assert filter.num_particles == 8


FILTERS = [
    nbf.ExactFilter(), nbf.PrefixFilter(), nbf.PointMassFilter(20), nbf.ParticleFilter(64, 0.7, max_attempts=2),
    nbf.RegularizedParticleFilter(16, defensive=0.2),
]  # fmt: skip


@pytest.mark.parametrize("filter", FILTERS, ids=lambda filter: type(filter).__name__)
def test_a_filter_that_a_file_names_is_built_again(filter):
    assert rebuilt(described(filter)) == filter


def test_every_filter_that_a_file_can_name_is_tried():
    assert {type(filter).__name__ for filter in FILTERS} == set(WRITTEN)


WRONG = {"os": {}, "ExactFilter": {"a": 1}, "ParticleFilter": {"num_particles": [2]}, "RegularizedParticleFilter": {}}


@pytest.mark.parametrize("wrong", [3, {}, *({"filter": name, "settings": given} for name, given in WRONG.items())])
def test_anything_else_is_refused(wrong):
    with pytest.raises((ValueError, TypeError, KeyError)):
        rebuilt(wrong)


def test_a_teacher_that_no_file_holds_must_be_passed(key):
    filter = nbf.Surprise(nbf.ParticleFilter(4))
    assert described(filter) is None
    loaded = dataclasses.replace(fitted()[0], reference=None)
    with pytest.raises(InputError, match=r"ceiling\(truth="):
        loaded.ceiling()
    assert loaded.ceiling(truth=filter).truth is filter


def test_approx_beliefs_without_a_truth_say_so(key):
    model = nbf.TabularModel(nbf.Lattice((3,)))
    world = nbf.environment(
        init=lambda key: jnp.zeros(1, int),
        transition=lambda key, state, policy: state,
        observe=lambda key, state, next_state: next_state[0],
        log_likelihood=lambda observation, state, next_state: 0.0,
        space=nbf.Lattice((3,)),
    )
    with pytest.raises(InputError, match=r"truth=nbf\.ParticleFilter.*fitted\.ceiling"):
        nbf.ApproxBeliefs(model).init(key, world)


# Observers that act on what they saw


class Reacting(Episodic):
    """Three rooms; who is in them stays put with a probability that the observer sets by what it saw last."""

    steps = 2

    def sample(self, key):
        return three_rooms(), jnp.asarray(0.1)

    def episode(self, key):
        world, (start_key, *keys) = three_rooms(), jax.random.split(key, 1 + 2 * self.steps)
        states, policies, observations = [world.init(start_key)], [jnp.asarray(0.1)], []
        for step in range(self.steps):
            states.append(world.transition(keys[2 * step], states[-1], policies[-1]))
            observations.append(world.observe(keys[2 * step + 1], *states[-2:]))
            policies.append(jnp.where(observations[-1] == 0, 0.9, 0.1))
        repeated = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (self.steps, *leaf.shape)), world)
        return repeated, jnp.stack(policies[:-1]), jnp.stack(observations), jnp.stack(states)


def test_their_beliefs_are_those_of_all_trajectories(key):
    """Every belief of an episode, from the family's own observations and policies."""
    source, name = belief_source(Reacting(), three_rooms(), horizon=2, particles=8, teacher=None, wall_band=0.0)
    assert name == "the exact filter"
    assert isinstance(source, nbf.EpisodePosteriors)
    states, _ = jax.jit(source.episode, static_argnums=1)(key, 4000)
    _, policies, seen, _ = Reacting().episode(jax.random.split(key, 4)[0])
    for depth in range(3):
        truth, _ = posterior(three_rooms(), np.asarray(seen)[:depth], np.asarray(policies)[:depth])
        assert_frequencies(np.bincount(np.asarray(states[depth, :, 0]), minlength=3), truth, detects=0.1)


def bounded_line() -> nbf.Environment:
    return nbf.environment(
        init=lambda key: jnp.zeros(1),
        transition=lambda key, state, policy: state,
        observe=lambda key, state, next_state: next_state[0],
        log_likelihood=lambda observation, state, next_state: 0.0,
        space=nbf.Box((0.0,), (1.0,)),
    )


def test_another_teacher_may_be_named():
    teacher = nbf.ParticleFilter(16)
    source, name = belief_source(Reacting(), three_rooms(), horizon=2, particles=8, teacher=teacher, wall_band=0.0)
    assert isinstance(source, nbf.EpisodePosteriors)
    assert source.filter is teacher
    assert name == "a particle filter of 16"
    with pytest.raises(InputError, match=r"wall_band.*Episodic"):
        belief_source(Reacting(), bounded_line(), horizon=2, particles=8, teacher=None, wall_band=0.1)
