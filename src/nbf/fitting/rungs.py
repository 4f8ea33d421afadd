"""The filters among which `nbf.learn` chooses: from many particles without a model to few with one.

A ladder has a number of calls of the simulator for each rung. On the first one a filter without a network meets the
beliefs, with the most calls: of those that apply, the one that knew the true states best in the first round. On the
others the neural filter does, with the model as it is by then. How far
that is trusted beside the particles is measured where it is run, and costs no call: the densities of the true states
under the model, and under the particles with kernels of several widths, are looked at after every step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from nbf.beliefs.particles import ParticleBelief
from nbf.capabilities import ContinuousSpace, KnownTransitions
from nbf.capability import capability
from nbf.contracts import BeliefModel, Environment, Filter, FilterState, State, StateSpace
from nbf.evaluation.belief_scores import LISTABLE, log_prob, num_states
from nbf.filters.attempts import padded
from nbf.filters.branching import BranchingFilter
from nbf.filters.neural import CarryRule, NeuralBayesianFilter, Trust, default_proposal
from nbf.filters.neural.state import NeuralState
from nbf.filters.particle import ParticleFilter
from nbf.filters.regeneration import KernelSmoother
from nbf.filters.regularized import RegularizedParticleFilter
from nbf.fitting.filtering import Episodes, filtered, first_environment
from nbf.fitting.trust import (
    FEWEST_CARRIED,
    RULES,
    MeasuredTrust,
    TriedRule,
    best_share,
    log_floor,
    widths,
)

LOWEST_EVIDENCE = -100.0
"""Nats that a step counts at least, where the true states are not known: one lost observation must not decide."""


def without_model(environment: Environment, calls: int) -> tuple[Filter, ...]:
    """List the filters without a network that a run may begin with.

    Args:
        environment: One of the family.
        calls: Of the simulator, at each step.

    Returns:
        The one that chooses branches where their probabilities are known; else the particle filter, and over a box the
        regularised one too. Which of these two is the better depends on the problem.
    """
    known = capability(environment, KnownTransitions)
    if known is not None and num_states(environment) <= LISTABLE and known.num_branches <= calls:
        return (BranchingFilter(calls),)
    if capability(environment.space, ContinuousSpace) is not None:
        return RegularizedParticleFilter(calls), ParticleFilter(calls)
    return (ParticleFilter(calls),)


def no_measurement(ladder: Sequence[int], start: MeasuredTrust | None) -> Float[np.ndarray, "rungs 4"]:
    """The trust before anything was measured, for each rung.

    Args:
        ladder: Calls of each rung.
        start: As it was measured for the model to begin with; None for none.

    Returns:
        Share of the model, width of the kernel, and the two numbers of the carry rule.
    """
    return np.asarray([_numbers(Trust() if start is None else start.at(calls)) for calls in ladder], np.float32)


def _numbers(trust: Trust) -> tuple[float, float, float, float]:
    return float(trust.model_share), float(trust.kernel_scale), float(trust.carry.share), float(trust.carry.fading)


def neural(model: BeliefModel, calls: int, trust: Float[np.ndarray, " 4"]) -> NeuralBayesianFilter:
    """Make the filter of a rung with a model, whose trust is an argument of its program.

    Args:
        model: As it is.
        calls: Of the rung.
        trust: See `no_measurement`.

    Returns:
        The filter.
    """
    share, scale, *rule = (jnp.float32(number) for number in trust)
    return NeuralBayesianFilter(model, calls, trust=Trust(share, scale, TriedRule(numbers=jnp.stack(rule))))


class Met(NamedTuple):
    """What a filter met in episodes, as NumPy arrays with leading axes episodes and steps."""

    samples: State
    """Of the weighted set after each step, p0 first."""
    truths: State | None
    """The true states, x0 first; None where they are not known."""
    spaces: StateSpace
    """Of the environment of each belief; its arrays."""
    scores: Float[np.ndarray, "episodes steps"]
    """log density of the true state, or log p(y | y before) where that is not known."""
    calls: int
    """Of the simulator, in all."""
    parts: Float[np.ndarray, "episodes steps parts"] | None
    """What trust is measured by; None where there is none to measure."""


def meet(filter: Filter, calls: int, key: Key[Array, ""], episodes: Episodes, samples: int) -> Met:
    """Run a filter on episodes, and keep what it met.

    Args:
        filter: Any filter.
        calls: Of the simulator, that it makes at each attempt of a step.
        key: Random key.
        episodes: On which; their states are None if they are not known.
        samples: Of each belief.

    Returns:
        What it met.
    """
    arrays, static = eqx.partition(episodes, eqx.is_array)
    count = jax.tree.leaves(episodes.observations)[0].shape[0]
    found, attempts = jax.device_get(_met(filter, samples, static, arrays, jax.random.split(key, count)))
    drawn, spaces, scores, parts = found
    scores = np.asarray(scores, np.float64)
    if episodes.states is None:
        scores = np.maximum(np.nan_to_num(scores, nan=-np.inf), LOWEST_EVIDENCE)
    else:
        scores = np.logaddexp(np.where(np.isnan(scores), -np.inf, scores), log_floor(episodes.environment.space))
    truths = None if episodes.states is None else jax.device_get(episodes.states)
    return Met(drawn, truths, spaces, scores, calls * int(attempts.sum()), parts)


@eqx.filter_jit
def _met(filter: Filter, samples: int, static: Episodes, arrays: Episodes, keys: Any) -> Any:
    def look(key: Any, state: FilterState, environment: Environment, true_state: State, extra: None) -> Any:
        particles = _particles(state)
        drawn = ParticleBelief(padded(particles.states, particles.log_weights), particles.log_weights)
        arrays = eqx.filter(environment.space, eqx.is_array)
        if true_state is None:
            return drawn.sample(key, samples), arrays, jnp.zeros(()), None
        score = log_prob(filter.belief(state, environment), true_state, environment)
        return drawn.sample(key, samples), arrays, score, _parts(filter, state, environment, true_state)

    def one(pair: tuple[Episodes, Any]) -> Any:
        episode = eqx.combine(pair[0], static)
        start_key, run_key = jax.random.split(pair[1])
        (drawn, spaces, scores, parts), info = filtered(filter, run_key, episode, None, look)
        first = first_environment(episode)
        start = jax.vmap(first.init)(jax.random.split(start_key, samples)), eqx.filter(first.space, eqx.is_array)
        drawn, spaces = jax.tree.map(
            lambda one, more: jnp.concatenate([one[None].astype(more.dtype), more]), start, (drawn, spaces)
        )
        return (drawn, spaces, info.log_evidence if episode.states is None else scores, parts), info.attempts

    # In turn, since a filter that draws its particles anew where it must would do so for all episodes of a batch.
    return jax.lax.map(one, (arrays, keys))


def _particles(state: FilterState) -> ParticleBelief:
    """The weighted set of a filter's state."""
    return state.particles if isinstance(state, NeuralState) else ParticleBelief(state.states, state.log_weights)


def _parts(filter: Filter, state: FilterState, environment: Environment, true_state: State) -> Any:
    """The log densities of the true state by which trust is measured."""
    if not isinstance(filter, NeuralBayesianFilter):
        return None
    proposal = default_proposal(environment, filter.num_particles, filter.trust)
    names, space = proposal.trusted(environment.space), environment.space
    belief = filter.belief(state, environment)
    model = eqx.tree_at(lambda belief: belief.particles, belief, None, is_leaf=lambda leaf: leaf is None)
    if "carry" in names:
        own = state.particles.log_prob(true_state)
        return jnp.stack([model.log_prob(true_state), own, state.random_mass, state.carried_share])
    if "model_share" not in names:
        return None
    kernels = []
    for scale in widths(space):
        near = eqx.tree_at(lambda proposal: proposal.kernel, proposal, KernelSmoother(scale)).carried(state, space)[0]
        kernels.append(near.log_prob(true_state))
    return jnp.stack([model.log_prob(true_state), *kernels])


def measured(
    parts: Float[np.ndarray, "episodes steps parts"] | None,
    before: Float[np.ndarray, " 4"],
    calls: int,
    environment: Environment,
) -> Float[np.ndarray, " 4"]:
    """Measure trust by what a neural filter met.

    Args:
        parts: Of `Met`.
        before: The trust so far, see `no_measurement`.
        calls: Of the filter.
        environment: One of the family.

    Returns:
        The share and the width, or the carry rule, under which the true states have the largest mean log score; the
        trust so far where there is nothing to measure it by.
    """
    if parts is None:
        return before
    found, space = np.asarray(parts, np.float64), environment.space
    if "model_share" in default_proposal(environment, calls).trusted(space):  # the model, and kernels of each width
        densities = np.logaddexp(np.where(np.isnan(found), -np.inf, found), log_floor(space))
        tried = {scale: best_share(densities[..., 0], densities[..., 1 + i]) for i, scale in enumerate(widths(space))}
        scale, (share, _) = max(tried.items(), key=lambda each: each[1][1])
        return np.asarray([share, scale, *before[2:]], np.float32)
    if calls < FEWEST_CARRIED:  # such filters cannot do without the model
        return before
    rule = max(RULES, key=lambda rule: _score_of(rule, found, log_floor(space)))
    return np.asarray([*before[:2], rule.share, rule.fading], np.float32)


def _score_of(rule: CarryRule, parts: Float[np.ndarray, "episodes steps 4"], floor: float) -> float:
    """The mean log score of the true states if carried branches had the share that a rule says."""
    model, own, mass, carried = np.moveaxis(parts, -1, 0)
    share = np.where(carried >= 1.0, 1.0, rule.share * np.maximum(1.0 - mass, 0.0) ** rule.fading)
    with np.errstate(divide="ignore"):
        mixed = np.logaddexp(np.log(share) + own, np.log1p(-share) + model)
    return float(np.mean(np.logaddexp(mixed, floor)))


def as_measured(
    trust: Float[np.ndarray, "rungs 4"], ladder: Sequence[int], tried: Sequence[bool], environment: Environment
) -> MeasuredTrust | None:
    """Say what was measured as `nbf.fit` does.

    Args:
        trust: Of each rung, see `no_measurement`.
        ladder: Calls of each rung, falling.
        tried: Of each rung, whether it was measured.
        environment: One of the family.

    Returns:
        The trust in the model by calls; None where none was measured.
    """
    found = {}
    for calls, numbers, was in zip(ladder, trust, tried, strict=True):
        names = default_proposal(environment, calls).trusted(environment.space)
        share, scale, *rule = (float(number) for number in numbers)
        if was and "carry" in names and calls >= FEWEST_CARRIED:
            known = [each for each in RULES if np.allclose([each.share, each.fading], rule)]
            found[FEWEST_CARRIED] = Trust(carry=known[0])
        if was and "model_share" in names:
            found[calls] = Trust(round(share, 6), round(scale, 6))
    sizes = tuple(sorted(found))
    return MeasuredTrust(sizes, tuple(found[size] for size in sizes)) if sizes else None


def is_lower_sound(difference: Float[np.ndarray, " episodes"], tolerance: float) -> bool:
    """Decide whether fewer particles will do.

    Args:
        difference: Of each episode, the mean score of a step with fewer particles less that with as many as now.
        tolerance: Nats a step that may be lost.

    Returns:
        Whether no more is lost in the mean.
    """
    return bool(np.mean(difference) >= -tolerance)


def is_doubted(
    scores: Float[np.ndarray, " episodes"], earlier: Sequence[tuple[float, float]], errors: float = 3.0
) -> bool:
    """Decide whether a filter has become worse than it was: the world, or the beliefs it learned from, have changed.

    Args:
        scores: Of each episode of this round, the mean of its steps.
        earlier: Mean and standard error of each earlier round of the same filter.
        errors: Standard errors by which it must have fallen.

    Returns:
        Whether it has; False where there is no earlier round.
    """
    if not earlier:
        return False
    means, each = (np.asarray(column) for column in zip(*earlier, strict=True))
    own = np.std(scores, ddof=1) / math.sqrt(len(scores))
    before = math.sqrt(float(np.sum(each**2))) / len(each)
    return bool(np.mean(scores) < np.mean(means) - errors * math.hypot(own, before))
