"""How beliefs of the zoo are scored after every step, against the true state and against the reference.

| states | score of the true state | distance to the reference |
|---|---|---|
| listed | log probability | Jensen-Shannon divergence |
| real vectors | log density | energy distance of samples, in the units of the space's encoding |

A particle filter on real vectors is scored as a kernel density of Silverman's width. One bad step must not decide a
mean, so every belief is scored with a share of `UNIFORM` of the uniform distribution over the listed states or the box.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from nbf.beliefs.kde import KernelDensityBelief
from nbf.beliefs.particles import ParticleBelief
from nbf.capabilities import ContinuousSpace, Enumerable
from nbf.capability import capability
from nbf.contracts import Belief, Environment, Family, Filter, FilterState, Observation, Policy, State
from nbf.environments.rollout import at_step, draw_instance, rollout
from nbf.evaluation.divergence import jensen_shannon, state_probabilities
from nbf.evaluation.scores import energy_distance

UNIFORM = 1e-3


class Track(eqx.Module):
    """An episode, and the reference's posterior after every step; of many, with a leading axis."""

    environment: Any
    policy: Policy
    observations: Observation
    states: State
    """x_1..x_T."""
    truth: Array
    """Probabilities of the listed states, or samples in the units of the encoding."""
    changing: bool = eqx.field(static=True)
    """Whether environment and policy are those of each step."""


@eqx.filter_jit
def tracks(family: Family, reference: Filter, horizon: int, samples: int, keys: Key[Array, " episodes"]) -> Track:
    """Random episodes of a family, with the reference's posteriors."""

    def one(key: Key[Array, ""]) -> Track:
        instance_key, episode_key, run_key = jax.random.split(key, 3)
        environment, policy, changing = draw_instance(family, instance_key, horizon)
        states, observations = rollout(episode_key, environment, policy, horizon, changing=changing)
        states = jax.tree.map(lambda leaf: leaf[1:], states)
        bare = Track(environment, policy, observations, states, jnp.zeros(horizon), changing)
        return _with_truth(reference, samples, run_key, bare)

    return jax.vmap(one)(keys)


@eqx.filter_jit
def with_truth(reference: Filter, samples: int, keys: Key[Array, " episodes"], recorded: Track) -> Track:
    """Given episodes, with the reference's posteriors."""
    return jax.lax.map(lambda pair: _with_truth(reference, samples, *pair), (keys, recorded))


def _with_truth(reference: Filter, samples: int, key: Key[Array, ""], bare: Track) -> Track:
    def look(key: Key[Array, ""], belief: Belief, now: Environment, state: State, _: Array) -> Array:
        listed = capability(now, Enumerable)
        if listed is not None:
            return state_probabilities(belief, listed)
        return jax.vmap(now.space.encode)(belief.sample(key, samples))

    return eqx.tree_at(lambda track: track.truth, bare, _filtered(reference, key, bare, look))


@eqx.filter_jit
def scores(
    filter: Filter, samples: int, keys: Key[Array, " episodes"], tracks: Track
) -> dict[str, Float[Array, "episodes steps"]]:
    """What is measured of a filter's belief after every step of each episode."""

    def look(key: Key[Array, ""], belief: Belief, now: Environment, state: State, truth: Array) -> dict[str, Array]:
        listed = capability(now, Enumerable)
        if listed is not None:
            return _listed_scores(belief, listed, state, truth)
        return _box_scores(key, belief, now, state, truth, samples)

    # One by one: in a batch, particles would be drawn anew for all episodes wherever one of them needs it.
    return jax.lax.map(lambda pair: _filtered(filter, pair[0], pair[1], look), (keys, tracks))


def _filtered(filter: Filter, key: Key[Array, ""], track: Track, look: Any) -> Any:
    """`look(key, belief, environment, state, truth)` after each step of an episode. Unlike `nbf.run`, it sees the
    environment and the true state of that step."""
    pair = track.environment, track.policy
    steps = track.truth.shape[0]

    def step(state: FilterState, inputs: tuple[Key[Array, ""], Any, Any, Array, Array]) -> tuple[FilterState, Any]:
        key, observation, true, truth, time = inputs
        update_key, look_key = jax.random.split(key)
        now, control = at_step(pair, time, changing=track.changing)
        state, _ = filter.update(update_key, state, observation, now, control)
        return state, look(look_key, filter.belief(state, now), now, true, truth)

    start_key, step_key = jax.random.split(key)
    start = filter.init(start_key, at_step(pair[0], 0, changing=track.changing))
    keys = jax.random.split(step_key, steps)
    return jax.lax.scan(step, start, (keys, track.observations, track.states, track.truth, jnp.arange(steps)))[1]


def _listed_scores(belief: Belief, listed: Enumerable, state: State, truth: Array) -> dict[str, Array]:
    probs = state_probabilities(belief, listed)
    total = jnp.sum(probs)
    mixed = (1 - UNIFORM) * probs / jnp.where(total > 0, total, 1.0) + UNIFORM / probs.shape[0]
    return {"log_score": jnp.log(mixed[listed.index(state)]), "js": jensen_shannon(truth, probs)}


def log_density(belief: Belief, space: ContinuousSpace, state: Array) -> Float[Array, ""]:
    """The log density of a state, with a share of the uniform one; of particles, that of a kernel density."""
    smooth = KernelDensityBelief.of(belief, space) if isinstance(belief, ParticleBelief) else belief
    floor = float(np.log(UNIFORM) - np.sum(np.log(2.0 * space.scale)))
    return jnp.logaddexp(np.log1p(-UNIFORM) + smooth.log_prob(state), floor)


def _box_scores(
    key: Key[Array, ""], belief: Belief, now: Environment, state: Array, truth: Array, samples: int
) -> dict[str, Array]:
    space = capability(now.space, ContinuousSpace)
    assert space is not None
    drawn = jax.vmap(space.encode)(belief.sample(key, samples))
    return {
        "log_score": log_density(belief, space, state),
        "energy": energy_distance(drawn, truth),
    }
