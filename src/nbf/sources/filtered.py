"""Beliefs of a filter to train on, where no exact posterior is available (section "Triangulation")."""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from nbf.capabilities import ContinuousSpace
from nbf.capability import capability
from nbf.contracts import BeliefSource, Environment, Family, Filter, FilterState, Policy, State, StateSpace
from nbf.environments.rollout import at_step, draw_instance, rollout
from nbf.errors import InputError
from nbf.executors import Executor
from nbf.filters.run import run
from nbf.sources.pool import BeliefPool


def widen_walls(
    key: Key[Array, ""], states: Float[Array, "n d"], space: ContinuousSpace, width: float
) -> Float[Array, "n d"]:
    """Move coordinates on a wall of a box outwards by a uniform distance: atoms become bands of finite density.

    Args:
        key: Random key.
        states: n points of the box.
        space: The box.
        width: The largest distance.

    Returns:
        The points; those on no wall are unchanged.
    """
    outwards = width * jax.random.uniform(key, states.shape)
    low, high = jnp.asarray(space.low), jnp.asarray(space.high)
    moved = jnp.where(states <= low, states - outwards, jnp.where(states >= high, states + outwards, states))
    return jnp.where(space.wraps, states, moved) if space.circular else moved


class FilterPosteriors(BeliefSource):
    """Beliefs of a filter in random episodes of a family, at a depth drawn uniformly from 0..horizon.

    With a `ParticleFilter` of 1024 this is the paper's source for Triangulation; with a `PointMassFilter` the beliefs
    are exact up to the grid. Depth 0 is p0. A `pool` of all beliefs of many episodes is a much cheaper source.

    Motion that is stopped by the walls of a `Box` leaves atoms on them. The likelihood of a density is unbounded
    there, so a model would learn to put all mass on a wall. Samples on a wall are therefore moved into a band of width
    `wall_band` beyond it. Clipping brings the samples of a model back, encoders see the nearest state of the box, and
    `cell_probabilities` counts density up to 0.5 beyond the walls.
    """

    filter: Filter
    family: Family
    horizon: int = eqx.field(static=True)
    wall_band: float = eqx.field(static=True, default=0.0)
    """Width of the band beyond the walls of a box into which samples on a wall are moved; 0: they stay."""

    def __check_init__(self) -> None:
        if self.horizon < 0 or not self.wall_band >= 0:
            raise InputError(f"horizon and wall_band must be 0 or more; got {self.horizon} and {self.wall_band}.")

    def posterior(self, key: Key[Array, ""]) -> tuple[FilterState, Environment]:
        """Filter a random episode up to a random depth.

        Args:
            key: Random key.

        Returns:
            The state of the filter, and the environment of the step that led to it.
        """
        depth_key, family_key, episode_key, start_key, step_key = jax.random.split(key, 5)
        steps = max(self.horizon, 1)
        environment, policy, changing = draw_instance(self.family, family_key, steps)
        _, observations = rollout(episode_key, environment, policy, steps, changing=changing)
        depth = jax.random.randint(depth_key, (), 0, self.horizon + 1)

        def at(time: Int[Array, ""]) -> tuple[Environment, Policy]:
            return at_step((environment, policy), time, changing=changing)

        def step(time: Int[Array, ""], state: FilterState) -> FilterState:
            observation = jax.tree.map(lambda leaf: leaf[time], observations)
            after, _ = self.filter.update(jax.random.fold_in(step_key, time), state, observation, *at(time))
            return after

        start = self.filter.init(start_key, at(jnp.int32(0))[0])
        return jax.lax.fori_loop(0, depth, step, start), at(jnp.maximum(depth - 1, 0))[0]

    def sample(self, key: Key[Array, ""], n: int) -> tuple[State, StateSpace]:
        belief_key, sample_key = jax.random.split(key)
        state, environment = self.posterior(belief_key)
        return self._samples(sample_key, state, environment, n), environment.space

    def episode(self, key: Key[Array, ""], n: int) -> tuple[State, StateSpace]:
        family_key, episode_key, start_key, run_key, sample_key = jax.random.split(key, 5)
        steps = max(self.horizon, 1)
        environment, policy, changing = draw_instance(self.family, family_key, steps)
        pair = environment, policy
        _, observations = rollout(episode_key, *pair, steps, changing=changing)
        first = at_step(pair[0], 0, changing=changing)
        start = self.filter.init(start_key, first)
        after, _ = run(self.filter, run_key, observations, *pair, changing=changing)

        def sampled(key: Key[Array, ""], state: FilterState, step: Int[Array, ""]) -> tuple[State, StateSpace]:
            environment = at_step(pair[0], step, changing=changing)
            return self._samples(key, state, environment, n), environment.space

        states = jax.tree.map(lambda one, more: jnp.concatenate([one[None], more[: self.horizon]]), start, after)
        depths = jnp.arange(self.horizon + 1)
        return jax.vmap(sampled)(jax.random.split(sample_key, len(depths)), states, jnp.maximum(depths - 1, 0))

    def pool(
        self,
        key: Key[Array, ""],
        *,
        episodes: int,
        samples: int,
        batch: int = 64,
        advance: Callable[[int], None] = lambda done: None,
        executor: Executor | None = None,
    ) -> BeliefPool:
        """Make a pool of all beliefs of many episodes, by `BeliefPool.of_episodes`.

        Args:
            key: Random key.
            episodes: How many.
            samples: Of each belief.
            batch: Episodes that are made together.
            advance: Called after each batch with the number of episodes in it.
            executor: Who makes the batches; None: this process.

        Returns:
            The pool.
        """
        return BeliefPool.of_episodes(
            self, key, episodes=episodes, samples=samples, batch=batch, advance=advance, executor=executor
        )

    def _samples(self, key: Key[Array, ""], state: FilterState, environment: Environment, n: int) -> State:
        sample_key, band_key = jax.random.split(key)
        states: PyTree = self.filter.belief(state, environment).sample(sample_key, n)
        if self.wall_band == 0:
            return states
        continuous = capability(environment.space, ContinuousSpace)
        if continuous is None:
            raise InputError(
                f"Only a Box has walls; wall_band={self.wall_band} was given for {environment.space.signature}."
            )
        return widen_walls(band_key, states, continuous, self.wall_band)
