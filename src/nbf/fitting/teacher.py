"""The beliefs that `nbf.fit` trains on: exact where states can be enumerated, else those of a filter, the teacher."""

from __future__ import annotations

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from nbf.capabilities import Enumerable
from nbf.contracts import BeliefSource, Environment, Family, Filter, StateSpace
from nbf.errors import InputError
from nbf.filters.exact import ExactFilter
from nbf.filters.particle import ParticleFilter
from nbf.resampling.weights import effective_sample_size
from nbf.sources.exact import ExactPosteriors
from nbf.sources.filtered import FilterPosteriors
from nbf.spaces import Box
from nbf.training.config import FitConfig
from nbf.training.progress import Progress

POOL_BELIEFS = 20_000
"""Beliefs in a pool. A filter's belief costs a whole episode, so each is used several times, with other samples."""
LARGEST_POOL = 50_000_000
"""Numbers in the largest pool; larger beliefs make a pool of fewer beliefs."""
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
        assert isinstance(environment, Enumerable)
        states = environment.states()
        _, log_probs = environment.successors(jax.tree.map(lambda leaf: leaf[0], states), policy)
        return jax.tree.leaves(states)[0], log_probs

    states, log_probs = jax.eval_shape(look, jax.random.key(0))
    return states.shape[0] * log_probs.shape[0]


def belief_source(
    family: Family,
    environment: Environment,
    *,
    horizon: int,
    particles: int,
    teacher: Filter | None,
    wall_band: float,
) -> tuple[ExactPosteriors | FilterPosteriors, str]:
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
    if horizon < 0 or particles < 2 or not wall_band >= 0:
        raise InputError(
            "fit needs a horizon of at least 0, at least 2 particles and a wall_band of at least 0; "
            f"got {horizon}, {particles} and {wall_band}."
        )
    if wall_band > 0 and not (isinstance(environment.space, Box) and environment.space.walled.any()):
        raise InputError(
            f"Only a bounded Box has walls; wall_band={wall_band} was given for {environment.space.signature}."
        )
    if teacher is None and isinstance(environment, Enumerable) and exact_work(family) <= LARGEST_EXACT:
        return ExactPosteriors(family, horizon), "the exact filter"
    teacher = ParticleFilter(particles) if teacher is None else teacher
    name = type(teacher).__name__
    if isinstance(teacher, ParticleFilter):
        name = f"a particle filter of {teacher.num_particles}"
    return FilterPosteriors(teacher, family, horizon, wall_band), name


def pooled(
    key: Key[Array, ""],
    source: ExactPosteriors | FilterPosteriors,
    settings: FitConfig,
    space: StateSpace,
    *,
    progress: bool,
) -> BeliefSource:
    """Replace a filter's beliefs by a pool of those of many episodes; exact ones too, unless they are cheap.

    Args:
        key: Random key of the pool.
        source: Where the beliefs come from.
        settings: Settings of training, which bound how many beliefs are needed.
        space: Space of the states.
        progress: Whether to show a progress bar.

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
        return source.pool(key, episodes=episodes, samples=samples, advance=bar.advance)


def teacher_quality(key: Key[Array, ""], source: ExactPosteriors | FilterPosteriors) -> tuple[float | None, float]:
    """Measure the beliefs of a source.

    Args:
        key: Random key.
        source: Where the beliefs come from.

    Returns:
        The teacher's mean effective sample size, None unless it is a particle filter; and the share of samples on a
        wall of the box.
    """
    if isinstance(source, ExactPosteriors):
        return None, 0.0
    ess, walls = _measured(jax.random.split(key, TEACHER_BELIEFS), replace(source, wall_band=0.0))
    return (float(ess) if isinstance(source.filter, ParticleFilter) else None), float(walls)


@eqx.filter_jit
def _measured(keys: Key[Array, " b"], source: FilterPosteriors) -> tuple[Array, Array]:
    def one(key: Key[Array, ""]) -> tuple[Array, Array]:
        belief_key, sample_key = jax.random.split(key)
        state, environment = source.posterior(belief_key)
        ess = effective_sample_size(state.log_weights) if isinstance(source.filter, ParticleFilter) else jnp.zeros(())
        space = environment.space
        if not isinstance(space, Box) or not space.bounded:
            return ess, jnp.zeros(())
        states = source.filter.belief(state, environment).sample(sample_key, TEACHER_BELIEFS)
        on_wall = (states <= jnp.asarray(space.low)) | (states >= jnp.asarray(space.high))
        return ess, jnp.mean(jnp.any(on_wall & ~space.wraps, axis=1))

    ess, walls = jax.vmap(one)(keys)
    return jnp.mean(ess), jnp.mean(walls)
