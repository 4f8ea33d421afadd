"""Fresh episodes of a family, and what filters make of them: scores and reference beliefs.

Whole episodes are compiled, a batch of them at once. The filter is an argument: filters of one structure, such as those
of several trained models, share one program.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from nbf.beliefs.model import ModelBelief
from nbf.capabilities import Episodic
from nbf.capability import capability
from nbf.contracts import Environment, Family, Filter, FilterState, Policy, State
from nbf.environments.rollout import at_step, draw_instance, rollout
from nbf.errors import InputError
from nbf.evaluation.batches import in_batches
from nbf.evaluation.belief_scores import (
    ReferenceBelief,
    divergence,
    encoded_draws,
    listable,
    listed_probabilities,
    log_prob,
)
from nbf.evaluation.energy import mean_pairwise_distance, typical_width
from nbf.fitting.filtering import Episodes, by_step, filtered

BATCH = 8
"""Episodes that are filtered together."""
LOOKED_AT = 24
"""Episodes whose true states are looked at."""


RUNS_ONCE = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
"""Compiler options of programs that run a few times: a third of the time to compile, twice the time to run."""
_compiled_once: Any = functools.partial(cast(Any, eqx.filter_jit), compiler_options=RUNS_ONCE)


class StepScores(eqx.Module):
    """What is measured of a filter after each step of an episode, or of many, with a leading axis."""

    log_prob: Float[Array, "*episodes steps"]
    divergence: Float[Array, "*episodes steps"]
    attempts: Int[Array, "*episodes steps"]


def draw_episodes(family: Family, key: Key[Array, ""], count: int, steps: int) -> Episodes:
    """Draw episodes of a family.

    Args:
        family: Environments and policies, which may change within an episode.
        key: Random key.
        count: How many.
        steps: Length of each; a family that makes whole episodes (`Episodic`) has a length of its own.

    Returns:
        The episodes.
    """
    _check_alike(family, key)
    try:
        return _drawn(family, steps, jax.random.split(key, count))
    except jax.errors.ConcretizationTypeError as error:
        raise InputError(
            f"An episode of {type(family).__name__} cannot be traced by JAX: it needs the value of a random number in "
            f"Python ({str(error).splitlines()[0]}). Sizes must be fixed; draw everything else with jax.random."
        ) from error


@_compiled_once
def _drawn(family: Family, steps: int, keys: Key[Array, " episodes"]) -> Episodes:
    episodic = capability(family, Episodic)

    def one(key: Key[Array, ""]) -> Episodes:
        if episodic is not None:
            return Episodes(*episodic.episode(key), changing=True)
        instance_key, episode_key = jax.random.split(key)
        environment, policy, changing = draw_instance(family, instance_key, steps)
        states, observations = rollout(episode_key, environment, policy, steps, changing=changing)
        return Episodes(environment, policy, observations, states, changing)

    return eqx.filter_vmap(one)(keys)


def _check_alike(family: Family, key: Key[Array, ""]) -> None:
    """Raise unless environments of a family have one shape."""
    if capability(family, Episodic) is not None:
        return
    seen = {}
    for place in range(3):
        environment, policy = family.sample(jax.random.fold_in(key, place))
        leaves = jax.tree.leaves((environment, policy))
        shapes = tuple(jnp.shape(leaf) for leaf in leaves if eqx.is_array_like(leaf))
        seen[environment.space.signature, shapes] = environment
    if len(seen) > 1:
        told = "; ".join(f"{signature} with arrays of {shapes}" for signature, shapes in seen)
        raise InputError(
            f"The environments of {type(family).__name__} differ in shape, so they cannot run together: {told}. "
            "Pad them to one size, or compare each kind by itself."
        )


def warn_of_illegal_states(family: Family, key: Key[Array, ""], steps: int) -> None:
    """Warn if episodes of a family leave the space: no belief over it finds a state that is not in it.

    Args:
        family: Environments and policies.
        key: Random key.
        steps: Of an episode.
    """
    episodes = draw_episodes(family, key, LOOKED_AT, max(1, steps))
    legal = np.asarray(_legal(*eqx.partition(episodes, eqx.is_array)))
    if not legal.all():
        space = instance(episodes, 0)[0].space.signature
        warnings.warn(
            f"{1 - legal.mean():.1%} of the true states of {LOOKED_AT} episodes of {steps} steps are outside of the "
            f"space, {space}: no belief over it can find them. Make the space larger, keep the states inside, or, if "
            "the ends of a Box only say where states usually are, give bounded=False.",
            stacklevel=2,
        )


@_compiled_once
def _legal(arrays: Episodes, static: Episodes) -> Bool[Array, "episodes steps"]:
    def one(arrays: Episodes) -> Bool[Array, " steps"]:
        episode = eqx.combine(arrays, static)
        states = jax.tree.map(lambda leaf: leaf[1:], episode.states)
        changed, at = by_step(episode)
        return jax.lax.map(lambda pair: at(pair[0])[0].space.contains(pair[1]), (changed, states))

    return jax.vmap(one)(arrays)


def instance(episodes: Episodes, place: int, step: int = 0) -> tuple[Environment, Policy]:
    """Take one environment and policy.

    Args:
        episodes: Many episodes.
        place: Which episode.
        step: Of which step, where they change.

    Returns:
        The environment and the policy.
    """
    arrays, static = eqx.partition((episodes.environment, episodes.policy), eqx.is_array)
    one = jax.tree.map(lambda leaf: leaf[place], arrays)
    return eqx.combine(at_step(one, step, changing=episodes.changing), static)


def _over_episodes(function: Callable[..., PyTree], episodes: Episodes, *arguments: PyTree, **options: Any) -> Any:
    """`function(arrays, static, *arguments)` of batches of episodes, and of arguments that share their axis."""
    arrays, static = eqx.partition(episodes, eqx.is_array)
    count = jax.tree.leaves(arrays)[0].shape[0]
    batch = math.ceil(count / math.ceil(count / BATCH))  # even batches, so that little is padded
    return in_batches(functools.partial(function, static), (arrays, *arguments), batch=batch, **options)


@_compiled_once
def _score(
    filter: Filter, width: Any, static: Episodes, arrays: Episodes, keys: Any, reference: ReferenceBelief
) -> Any:
    def look(
        key: Any, state: FilterState, environment: Environment, true_state: State, reference: ReferenceBelief
    ) -> Any:
        belief = filter.belief(state, environment)
        return log_prob(belief, true_state, environment), divergence(key, belief, environment, reference, width)

    def one(arrays: Episodes, key: Any, reference: ReferenceBelief) -> StepScores:
        (found, distance), info = filtered(filter, key, eqx.combine(arrays, static), reference, look)
        return StepScores(found, distance, info.attempts)

    return jax.vmap(one)(arrays, keys, reference)


@_compiled_once
def _observe(filter: Filter, static: Episodes, arrays: Episodes, keys: Any) -> Any:
    def look(key: Any, state: FilterState, environment: Environment, true_state: State, extra: None) -> Any:
        belief = filter.belief(state, environment)
        if listable(environment):
            return listed_probabilities(belief, environment)
        return encoded_draws(key, belief, environment)

    return jax.vmap(lambda arrays, key: filtered(filter, key, eqx.combine(arrays, static), None, look)[0])(arrays, keys)


def reference_beliefs(
    filter: Filter, key: Key[Array, ""], episodes: Episodes
) -> tuple[ReferenceBelief, Float[Array, " d"] | None]:
    """Run a reference filter, and keep what other beliefs are compared with.

    Args:
        filter: The reference filter.
        key: Random key.
        episodes: On which.

    Returns:
        The reference after each step of each episode; and the unit of distances, None where states are listed.
    """
    keys = jax.random.split(key, num_episodes(episodes))
    found = _over_episodes(functools.partial(_observe, filter), episodes, keys)
    if listable(instance(episodes, 0)[0]):
        return ReferenceBelief(jnp.asarray(found), None, None), None
    width = typical_width(found)
    draws = jnp.asarray(found / width)
    distance = in_batches(jax.jit(jax.vmap(jax.vmap(mean_pairwise_distance))), (draws,), batch=BATCH)
    return ReferenceBelief(None, draws, jnp.asarray(distance)), jnp.asarray(width)


def score(
    filter: Filter,
    key: Key[Array, ""],
    episodes: Episodes,
    reference: ReferenceBelief,
    width: Float[Array, " d"] | None,
) -> StepScores:
    """Run a filter on all episodes, and score its belief after each step.

    Args:
        filter: Any filter.
        key: Random key.
        episodes: On which.
        reference: The reference beliefs of the same episodes.
        width: The unit of distances; None where states are listed.

    Returns:
        The scores, as NumPy arrays.
    """
    keys = jax.random.split(key, num_episodes(episodes))
    return _over_episodes(functools.partial(_score, filter, width), episodes, keys, reference)


@_compiled_once
def _log_scores(filter: Filter, static: Episodes, arrays: Episodes, keys: Any) -> Any:
    def look(key: Any, state: FilterState, environment: Environment, true_state: State, extra: None) -> Any:
        return log_prob(filter.belief(state, environment), true_state, environment)

    return jax.vmap(lambda arrays, key: filtered(filter, key, eqx.combine(arrays, static), None, look)[0])(arrays, keys)


def log_scores(filter: Filter, key: Key[Array, ""], episodes: Episodes) -> Float[np.ndarray, "episodes steps"]:
    """Run a filter on all episodes.

    Args:
        filter: Any filter.
        key: Random key.
        episodes: On which.

    Returns:
        The log probability, or density, of the true state after each step.
    """
    keys = jax.random.split(key, num_episodes(episodes))
    return _over_episodes(functools.partial(_log_scores, filter), episodes, keys)


@eqx.filter_jit
def _in_turn(filter: Filter, parts: bool, static: Episodes, arrays: Episodes, keys: Any) -> Any:
    def look(key: Any, state: FilterState, environment: Environment, true_state: State, extra: None) -> Any:
        belief = filter.belief(state, environment)
        if not parts:
            return log_prob(belief, true_state, environment)
        assert isinstance(belief, ModelBelief)
        assert belief.particles is not None
        model = eqx.tree_at(lambda belief: belief.particles, belief, None)
        return jnp.stack([model.log_prob(true_state), belief.particles.log_prob(true_state)])

    return jax.lax.map(
        lambda pair: filtered(filter, pair[1], eqx.combine(pair[0], static), None, look)[0], (arrays, keys)
    )


def log_scores_in_turn(
    filter: Filter, key: Key[Array, ""], episodes: Episodes, *, parts: bool = False
) -> Float[np.ndarray, "episodes steps *parts"]:
    """Run a filter on all episodes, one by one, by a program that takes longer to compile and less to run than that of
    `log_scores`: for several runs of a filter that draws its particles anew when it must. In a batch, it would do so
    for all episodes wherever one of them needs it.

    Args:
        filter: Any filter; for parts, a neural one whose particles stand for a part of its belief.
        key: Random key.
        episodes: On which.
        parts: Score the model and the carried particles each by itself.

    Returns:
        The log probability, or density, of the true state after each step; of parts, that of the model and that of
        the particles.
    """
    keys = jax.random.split(key, num_episodes(episodes))
    return _over_episodes(functools.partial(_in_turn, filter, parts), episodes, keys)


def num_episodes(episodes: Episodes) -> int:
    """Count episodes.

    Args:
        episodes: Many episodes.

    Returns:
        How many.
    """
    return jax.tree.leaves(episodes.observations)[0].shape[0]
