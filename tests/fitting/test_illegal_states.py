"""Episodes that leave their space are told before anything is trained."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import pytest

import nbf
from nbf.capabilities import Scheduled
from nbf.environments.functional import One
from nbf.fitting.episodes import warn_of_illegal_states

STEPS = 8


def leaving(high: float) -> nbf.Environment:
    """Begins at 0, and moves by the policy."""
    return nbf.environment(
        init=lambda key: jnp.zeros(1),
        transition=lambda key, state, policy: state + policy,
        observe=lambda key, state, next_state: next_state[0] + jax.random.normal(key),
        log_likelihood=lambda seen, state, next_state: jax.scipy.stats.norm.logpdf(seen, next_state[0]),
        space=nbf.Box((-1.0,), (high,)),
    )


class Late(Scheduled):
    """Moves in the second half of an episode alone."""

    world: nbf.Environment

    def schedule(self, key, steps):
        moves = jnp.where(jnp.arange(steps) < steps // 2, 0.0, 0.5)
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (steps, *jnp.shape(leaf))), self.world), moves

    def sample(self, key):
        return self.world, jnp.asarray(0.0)


def test_the_share_of_states_outside_is_told(key):
    """Steps 1 to 8 come to 1, 2, ..., 8, of which three lie beyond 5."""
    with pytest.warns(UserWarning, match=r"37\.5% of the true states of 24 episodes of 8 steps are outside"):
        warn_of_illegal_states(One(leaving(5.0), jnp.asarray(1.0)), key, STEPS)
    with pytest.warns(UserWarning, match=r"25\.0% of the true states"):
        warn_of_illegal_states(Late(leaving(1.0)), key, STEPS)


def test_states_inside_are_not_spoken_of(key):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_illegal_states(One(leaving(8.0), jnp.asarray(1.0)), key, STEPS)
        warn_of_illegal_states(Late(leaving(2.0)), key, STEPS)


def test_a_schedule_is_looked_at_to_its_end():
    assert nbf.testing.check_family(Late(leaving(3.5)), horizon=STEPS).passed
    report = nbf.testing.check_family(Late(leaving(3.5)), horizon=2 * STEPS)
    assert report.failures[0].name == "schedule: states are legal and finite"
