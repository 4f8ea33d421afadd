"""The beliefs that `nbf.fit` trains on: exact where states can be enumerated, else those of a filter, the teacher.

Where the environments of an episode follow from earlier observations (`Episodic`), as when the observer acts on what it
saw, episodes are the family's own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from nbf.beliefs.gaussian_kernels import has_kernels
from nbf.capabilities import ContinuousSpace, Enumerable, Episodic, Prefixes
from nbf.capability import capability, require
from nbf.contracts import BeliefSource, Environment, Family, Filter, State, StateSpace
from nbf.errors import InputError
from nbf.executors import Executor
from nbf.filters.exact import ExactFilter
from nbf.filters.particle import ParticleFilter
from nbf.filters.prefixes import PrefixFilter
from nbf.filters.regularized import RegularizedParticleFilter
from nbf.resampling.weights import effective_sample_size
from nbf.sources.episodic import EpisodePosteriors
from nbf.sources.exact import ExactPosteriors
from nbf.sources.filtered import FilterPosteriors
from nbf.sources.pool import BeliefPool
from nbf.sources.prefixes import PrefixPosteriors
from nbf.training.config import FitConfig
from nbf.training.progress import Progress

HORIZON = 20
"""Length of episodes, where neither a caller nor the family says it."""
POOL_BELIEFS = 20_000
"""Beliefs in a pool. A filter's belief costs a whole episode, so each is used several times, with other samples."""
LARGEST_POOL = 50_000_000
"""Numbers in the largest pool; larger beliefs make a pool of fewer beliefs."""
LEAST_DISTINCT = 0.05
"""The share of a particle filter's states that must differ, in each of its beliefs, for it to be a teacher."""
TEACHER_BELIEFS = 64
"""Beliefs, and samples of each, on which the teacher is measured."""
EXACT_ANEW = 50_000
"""Branches, of all states together, up to which exact beliefs are made anew for every training step, else a pool."""
LARGEST_EXACT = 2_000_000
"""Branches up to which beliefs are exact: for more, a pool of them would take longer than training."""


def exact_work(family: Family) -> int:
    """Count the branches that one exact update follows, without following one.

    Args:
        family: Environments that are `Enumerable`.

    Returns:
        The number of states times the number of branches out of each.
    """

    def look(key: Key[Array, ""]) -> tuple[Array, Array]:
        environment, policy = family.sample(key)
        listed = require(environment, Enumerable, "The exact filter", "Name a teacher.")
        states = listed.states()
        _, log_probs = listed.successors(jax.tree.map(lambda leaf: leaf[0], states), policy)
        return jax.tree.leaves(states)[0], log_probs

    states, log_probs = jax.eval_shape(look, jax.random.key(0))
    return states.shape[0] * log_probs.shape[0]


Posteriors = ExactPosteriors | FilterPosteriors | EpisodePosteriors | PrefixPosteriors
"""The sources that are chosen from."""


def horizon_of(family: Family, horizon: int | None) -> int:
    """Choose the length of the episodes whose beliefs are learned.

    Args:
        family: Environments and policies.
        horizon: As asked for, or None.

    Returns:
        That; instead of None, the whole episode of an `Episodic` family, else `HORIZON`.
    """
    episodic = capability(family, Episodic)
    if horizon is not None or episodic is None:
        return HORIZON if horizon is None else horizon
    observations = jax.eval_shape(episodic.episode, jax.random.key(0))[2]
    return jax.tree.leaves(observations)[0].shape[0]


def belief_source(
    family: Family,
    environment: Environment,
    *,
    horizon: int,
    particles: int,
    teacher: Filter | None,
    wall_band: float,
) -> tuple[Posteriors, str]:
    """Choose where the beliefs of a family come from.

    Args:
        family: Environments and policies.
        environment: One environment of the family.
        horizon: Length of the episodes.
        particles: Size of the default teacher, a particle filter.
        teacher: Filter to take the beliefs from; None chooses one.
        wall_band: See `FilterPosteriors`.

    Returns:
        The source, and a name for its beliefs.
    """
    if horizon < 1 or particles < 2 or not wall_band >= 0:
        raise InputError(
            "fit needs a horizon of at least 1, at least 2 particles and a wall_band of at least 0; "
            f"got {horizon}, {particles} and {wall_band}."
        )
    space = capability(environment.space, ContinuousSpace)
    if wall_band > 0 and (space is None or not space.walled.any()):
        raise InputError(
            f"Only a bounded Box has walls; wall_band={wall_band} was given for {environment.space.signature}."
        )
    episodic = capability(family, Episodic)
    if episodic is not None:
        return _episodic_source(episodic, environment, horizon, particles, teacher, wall_band)
    listed = capability(environment, Enumerable) is not None
    if teacher is None and listed and exact_work(family) <= LARGEST_EXACT:
        return ExactPosteriors(family, horizon), "the exact filter"
    teacher = ParticleFilter(particles) if teacher is None else teacher
    return FilterPosteriors(teacher, family, horizon, wall_band), name_of(teacher)


def _episodic_source(
    family: Episodic,
    environment: Environment,
    horizon: int,
    particles: int,
    teacher: Filter | None,
    wall_band: float,
) -> tuple[Posteriors, str]:
    """The beliefs of episodes that a family makes whole."""
    if wall_band > 0:
        raise InputError(
            f"wall_band={wall_band} is for episodes that are simulated step by step; {type(family).__name__} makes "
            "whole episodes (Episodic). Leave it out."
        )
    if teacher is None and capability(environment, Prefixes) is not None:
        return PrefixPosteriors(family, horizon), "the exact filter"
    listed = capability(environment, Enumerable) is not None
    filter = teacher or (ExactFilter() if listed else ParticleFilter(particles))
    return EpisodePosteriors(filter, family, horizon), "the exact filter" if teacher is None and listed else name_of(
        filter
    )


def name_of(teacher: Filter) -> str:
    """Name a teacher for a reader.

    Args:
        teacher: The filter.

    Returns:
        Its kind and size.
    """
    if isinstance(teacher, ParticleFilter):
        return f"a particle filter of {teacher.num_particles}"
    if isinstance(teacher, RegularizedParticleFilter):
        return f"a regularised particle filter of {teacher.num_particles}"
    return type(teacher).__name__


def reference_of(source: Posteriors) -> Filter:
    """Find the filter that makes the beliefs of a source.

    Args:
        source: Where the beliefs come from.

    Returns:
        The filter.
    """
    if isinstance(source, ExactPosteriors):
        return ExactFilter()
    return PrefixFilter() if isinstance(source, PrefixPosteriors) else source.filter


def pooled(
    key: Key[Array, ""],
    source: Posteriors,
    settings: FitConfig,
    space: StateSpace,
    *,
    seconds: float | None = None,
    progress: bool,
    executor: Executor | None = None,
) -> BeliefSource:
    """Replace a filter's beliefs by a pool of those of many episodes; exact ones too, unless they are cheap.

    Args:
        key: Random key of the pool.
        source: Where the beliefs come from.
        settings: Settings of training, which bound how many beliefs are needed.
        space: Space of the states.
        seconds: Time after which no more episodes are begun; None for no limit.
        progress: Whether to show a progress bar.
        executor: Who makes the beliefs of a pool; None: this process.

    Returns:
        The source to train on.
    """
    if isinstance(source, ExactPosteriors):
        if exact_work(source.family) <= EXACT_ANEW:
            return source
        source = FilterPosteriors(ExactFilter(), source.family, source.horizon)
    samples = 2 * settings.samples
    beliefs = min(POOL_BELIEFS, settings.steps * settings.batch, LARGEST_POOL // (samples * space.num_features))
    episodes = -(-max(beliefs, 1) // (source.horizon + 1))
    with Progress("beliefs", episodes, 0, enabled=progress, unit="episode") as bar:
        return BeliefPool.of_episodes(
            source, key, episodes=episodes, samples=samples, seconds=seconds, advance=bar.advance, executor=executor
        )


class TeacherQuality(NamedTuple):
    """What is known of a teacher."""

    ess: float | None
    """Mean effective sample size; None unless it is a particle filter."""
    on_walls: float
    """Share of samples on a wall of a bounded box."""
    distinct: int | None
    """Different states in the poorest of its beliefs, or different values of a coordinate, if these are fewer; None
    unless it is a particle filter over vectors. The effective sample size says nothing where something never moves: a
    thousand copies of one state have a thousand."""


def teacher_quality(key: Key[Array, ""], source: Posteriors) -> TeacherQuality:
    """Measure the beliefs of a source.

    Args:
        key: Random key.
        source: Where the beliefs come from.

    Returns:
        What was found.
    """
    if isinstance(source, ExactPosteriors | PrefixPosteriors):
        return TeacherQuality(None, 0.0, None)
    plain = replace(source, wall_band=0.0) if isinstance(source, FilterPosteriors) else source
    ess, walls, distinct = _measured(jax.random.split(key, TEACHER_BELIEFS), plain)
    if not isinstance(source.filter, ParticleFilter):
        return TeacherQuality(None, float(walls), None)
    return TeacherQuality(float(ess), float(walls), None if distinct is None else int(distinct))


def checked(
    key: Key[Array, ""], source: Posteriors, name: str, environment: Environment, *, replaceable: bool
) -> tuple[Posteriors, str, TeacherQuality]:
    """Measure a teacher, and replace one whose particles are copies of few states.

    Args:
        key: Random key.
        source: Where the beliefs come from.
        name: For its beliefs.
        environment: One environment of the family.
        replaceable: Whether another teacher may be taken; else a poor one is told by its name alone.

    Returns:
        The source, a name for its beliefs, and what is known of its teacher.
    """
    quality, filter = teacher_quality(key, source), reference_of(source)
    if quality.distinct is None or not isinstance(filter, ParticleFilter):
        return source, name, quality
    if quality.distinct >= LEAST_DISTINCT * filter.num_particles:
        return source, name, quality
    poor = f"{quality.distinct} different states left in the poorest of its beliefs"
    better = rejuvenated(source, environment) if replaceable else None
    if better is None:
        return source, f"{name} with {poor}", quality
    return better, f"{name_of(better.filter)} ({name} had {poor})", teacher_quality(key, better)


def rejuvenated(source: Posteriors, environment: Environment) -> FilterPosteriors | EpisodePosteriors | None:
    """Take the beliefs of a regularised particle filter instead of a plain one's: its particles are drawn anew.

    Args:
        source: Beliefs of a particle filter.
        environment: One environment of the family.

    Returns:
        The beliefs of a regularised one of the same size; None where states have no kernels.
    """
    if not has_kernels(environment.space) or not isinstance(source, FilterPosteriors | EpisodePosteriors):
        return None
    assert isinstance(source.filter, ParticleFilter)
    return replace(source, filter=RegularizedParticleFilter(source.filter.num_particles))


@eqx.filter_jit
def _measured(
    keys: Key[Array, " b"], source: FilterPosteriors | EpisodePosteriors
) -> tuple[Array, Array, Array | None]:
    def one(key: Key[Array, ""]) -> tuple[Array, Array, Array | None]:
        belief_key, sample_key = jax.random.split(key)
        state, environment = source.posterior(belief_key)
        ess, different = jnp.zeros(()), None
        if isinstance(source.filter, ParticleFilter):
            ess = effective_sample_size(state.log_weights)
            different = _distinct(sample_key, state.states, environment) if _is_array(state.states) else None
        space = capability(environment.space, ContinuousSpace)
        if space is None or not space.bounded:
            return ess, jnp.zeros(()), different
        states = source.filter.belief(state, environment).sample(sample_key, TEACHER_BELIEFS)
        on_wall = (states <= jnp.asarray(space.low)) | (states >= jnp.asarray(space.high))
        return ess, jnp.mean(jnp.any(on_wall & ~space.wraps, axis=1)), different

    ess, walls, distinct = jax.vmap(one)(keys)
    return jnp.mean(ess), jnp.mean(walls), None if distinct is None else jnp.min(distinct)


def _is_array(states: State) -> bool:
    return isinstance(states, jax.Array)


def _distinct(key: Key[Array, ""], states: Array, environment: Environment) -> Array:
    """How many of n vectors differ; of real ones, the poorest coordinate counts, since others may move while a constant
    among them does not. A coordinate with few values at the start has few for another reason."""
    rows = states.reshape(states.shape[0], -1)
    ordered = rows[jnp.lexsort(rows.T)]
    different = 1 + jnp.sum(jnp.any(ordered[1:] != ordered[:-1], axis=1))
    if not jnp.issubdtype(rows.dtype, jnp.floating):
        return different
    start = jax.vmap(environment.init)(jax.random.split(key, rows.shape[0])).reshape(rows.shape)
    values = [1 + jnp.sum(jnp.diff(jnp.sort(each, axis=0), axis=0) != 0, axis=0) for each in (rows, start)]
    return jnp.minimum(different, jnp.min(jnp.where(values[1] > rows.shape[0] // 2, values[0], rows.shape[0])))
