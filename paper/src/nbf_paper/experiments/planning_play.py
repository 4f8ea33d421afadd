"""Episodes that are played with a search on a filter's belief, at a limit of simulator calls for both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PyTree

from nbf.capabilities import ContinuousSpace, FiniteSpace
from nbf.capability import capability, require
from nbf.contracts import Belief, Filter, FilterState, State, StateSpace
from nbf.planning import TreeSearch
from nbf_paper.experiments.planning_decisions import Decisions, World
from nbf_paper.experiments.zoo_scores import UNIFORM, log_density


@dataclass(frozen=True)
class Searching:
    """How every search of an experiment is done."""

    simulations: int = 1000
    """At most; the calls are the limit that counts."""
    depth: int = 15
    exploration: float = 0.5
    backup: str = "best"

    @property
    def settings(self) -> dict[str, Any]:
        """Under their stable names in run keys."""
        return {
            "simulations": self.simulations, "depth": self.depth, "exploration": self.exploration,
            "backup": self.backup,
        }  # fmt: skip

    def search(self, asked: Decisions, calls: int | Array) -> TreeSearch:
        """The search of a problem."""
        return TreeSearch(
            self.simulations, self.depth, self.exploration, asked.observation_widening, calls=calls,
            backup=self.backup, value=asked.value,
        )  # fmt: skip


class Scores(NamedTuple):
    """One number of each episode."""

    returns: Float[np.ndarray, " episodes"]
    """Discounted."""
    log_score: Float[np.ndarray, " episodes"]
    """Of the true hidden state under the belief after each observation, mean over the steps but that which ends it."""
    right: Float[np.ndarray, " episodes"]
    """1 if the episode ended with what was sought, else 0."""
    calls: Float[np.ndarray, " episodes"]
    """Of a search, mean over its decisions."""


class Game(eqx.Module):
    """The compiled parts of an episode, for a batch of them."""

    asked: Decisions = eqx.field(static=True)
    searching: Searching = eqx.field(static=True)

    @eqx.filter_jit
    def starts(self, keys: Key[Array, " episodes"]) -> tuple[World, PyTree, Array]:
        """The worlds, their first states, and whether it is over before it begins."""

        def one(key: Key[Array, ""]) -> tuple[World, PyTree, Array]:
            given_key, start_key = jax.random.split(key)
            world = self.asked.drawn(given_key)
            state = world.init(start_key)
            return world, state, self.asked.task.is_over(state, world)

        return jax.vmap(one)(keys)

    @eqx.filter_jit
    def decided(
        self, keys: Key[Array, " episodes"], roots: PyTree, worlds: World, over: Array, calls: Int[Array, ""]
    ) -> tuple[PyTree, Int[Array, " episodes"], Int[Array, " episodes"]]:
        """The action, the calls and the invalid numbers of each search. Nothing is searched where it is over."""

        def one(key: Key[Array, ""], root: PyTree, world: World, over: Array) -> tuple[PyTree, Array, Array]:
            search = self.searching.search(self.asked, jnp.where(over, 0, calls))
            found = search.search(key, root, world, self.asked.goal or self.asked.task)
            return found.action, found.calls, found.invalid

        return jax.vmap(one)(keys, roots, worlds, over)

    @eqx.filter_jit
    def moved(self, keys: Key[Array, " episodes"], states: PyTree, actions: PyTree, worlds: World) -> tuple:
        """The next states, the observations, the rewards, and whether it is over."""

        def one(key: Key[Array, ""], state: PyTree, action: PyTree, world: World) -> tuple:
            move_key, look_key = jax.random.split(key)
            after = world.transition(move_key, state, action)
            seen = world.observe(look_key, state, after)
            reward = self.asked.task.reward_of(state, action, after, world)
            return after, seen, reward, self.asked.task.is_over(after, world)

        return jax.vmap(one)(keys, states, actions, worlds)

    @eqx.filter_jit
    def begun(self, filter: Filter, keys: Key[Array, " episodes"], states: PyTree, worlds: World) -> FilterState:
        """The states of a filter before any observation."""

        def one(key: Key[Array, ""], state: PyTree, world: World) -> FilterState:
            return filter.init(key, world.still(state[1]))

        return jax.vmap(one)(keys, states, worlds)

    @eqx.filter_jit
    def rooted(
        self, filter: Filter, keys: Key[Array, " episodes"], tracked: FilterState, states: PyTree, worlds: World
    ) -> PyTree:
        """The states from which each search starts: draws of the belief, with what is public."""

        def one(key: Key[Array, ""], tracked: FilterState, state: PyTree, world: World) -> PyTree:
            belief = filter.belief(tracked, world.still(state[1]))
            count = self.searching.simulations
            public = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), state[1])
            return belief.sample(key, count), public

        return jax.vmap(one)(keys, tracked, states, worlds)

    @eqx.filter_jit
    def filtered(
        self, filter: Filter, keys: Key[Array, " episodes"], tracked: FilterState, states: PyTree, actions: PyTree,
        after: PyTree, seen: PyTree, worlds: World,
    ) -> tuple[FilterState, Float[Array, " episodes"]]:  # fmt: skip
        """The filters' states after an observation, and how likely they think the true state."""

        def one(key: Key[Array, ""], tracked: FilterState, state: PyTree, action: PyTree, new: PyTree, seen: PyTree,
                world: World) -> tuple[FilterState, Array]:  # fmt: skip
            now, policy = world.step(state[1], action)
            tracked, _ = filter.update(key, tracked, seen, now, policy)
            return tracked, _log_score(filter.belief(tracked, now), world.space, new[0])

        return jax.vmap(one)(keys, tracked, states, actions, after, seen, worlds)


def _log_score(belief: Belief, space: StateSpace, state: State) -> Float[Array, ""]:
    """log of a belief's probability of a state, or its density over real vectors."""
    continuous = capability(space, ContinuousSpace)
    if continuous is not None:
        return log_density(belief, continuous, state)
    finite = require(space, FiniteSpace, "A log score", "Give a Lattice or a Box.")
    return jnp.log((1 - UNIFORM) * jnp.exp(belief.log_prob(state)) + UNIFORM / finite.size)


def played(game: Game, filter: Filter, calls: int, key: Key[Array, ""], episodes: int) -> Scores:
    """Play episodes. Worlds, starts and noise follow from the key, and are the same for every filter.

    Args:
        game: The problem.
        filter: Whose belief is searched.
        calls: Of a search at most.
        key: Random key.
        episodes: How many.

    Returns:
        The scores.
    """
    horizon = game.asked.horizon
    worlds, states, begun_over = game.starts(jax.random.split(jax.random.fold_in(key, 0), episodes))
    tracked = game.begun(filter, jax.random.split(jax.random.fold_in(key, 1), episodes), states, worlds)
    over, factor = np.asarray(begun_over), 1.0
    totals, right = np.zeros(episodes), np.zeros(episodes)
    scores, used, looks, alive = (np.zeros(episodes) for _ in range(4))
    for step in range(horizon):
        search_key, root_key, move_key, filter_key = (
            jax.random.split(jax.random.fold_in(jax.random.fold_in(key, 2 + step), part), episodes) for part in range(4)
        )
        roots = game.rooted(filter, root_key, tracked, states, worlds)
        actions, spent, invalid = game.decided(search_key, roots, worlds, jnp.asarray(over), jnp.int32(calls))
        after, seen, rewards, ends = game.moved(move_key, states, actions, worlds)
        if int(np.sum(invalid)):
            raise RuntimeError(f"{int(np.sum(invalid))} numbers of a search of {game.asked.name} were none.")
        tracked, found = game.filtered(filter, filter_key, tracked, states, actions, after, seen, worlds)
        ended, gained = np.asarray(ends), np.asarray(rewards)
        totals += np.where(over, 0.0, factor * gained)
        last = ~over & (ended | (step == horizon - 1))
        right += last & np.asarray(jax.vmap(game.asked.right)(rewards, after[0]))
        scores += np.where(over | ended, 0.0, np.asarray(found))
        used += np.where(over, 0, np.asarray(spent))
        looks += ~(over | ended)
        alive += ~over
        over, states, factor = over | ended, after, factor * game.asked.task.discount
        if over.all():
            break
    return Scores(totals, scores / np.maximum(looks, 1), right, used / np.maximum(alive, 1))
