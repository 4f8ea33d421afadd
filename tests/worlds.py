"""Worlds small enough to know everything about, and that everything by brute force in float64.

A `HiddenMarkov` world is three tables. `trajectories` walks through every sequence of states there is:
no recursion, no filter, nothing in common with what it is the truth for.
"""

from __future__ import annotations

import itertools

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from nbf import prng
from nbf.capabilities import KnownTransitions
from nbf.errors import InputError
from nbf.spaces import Lattice


class HiddenMarkov(KnownTransitions):
    """k states with explicit tables. The policy is the probability of staying put instead of moving."""

    space: Lattice
    start: Float[Array, " k"]
    """p0."""
    moves: Float[Array, "k k"]
    """T[x, x'], before the policy has its say."""
    symbols: Float[Array, "k k y"]
    """H[x, x', y]. Rows need not sum to one: a world may be wrong on purpose."""

    def init(self, key: Key[Array, ""]) -> Int[Array, " 1"]:
        return prng.categorical(key, self.start)[None]

    def transition(self, key: Key[Array, ""], state: Int[Array, " 1"], policy: Float[Array, ""]) -> Int[Array, " 1"]:
        return prng.categorical(key, self._row(state, policy))[None]

    def observe(self, key: Key[Array, ""], state: Int[Array, " 1"], next_state: Int[Array, " 1"]) -> Int[Array, ""]:
        return prng.categorical(key, self.symbols[state[0], next_state[0]])

    def log_likelihood(
        self, observation: Int[Array, ""], state: Int[Array, " 1"], next_state: Int[Array, " 1"]
    ) -> Float[Array, ""]:
        return jnp.log(self.symbols[state[0], next_state[0], observation])

    def check_observation(self, observation: Int[Array, ""]) -> None:
        if not 0 <= int(observation) < self.symbols.shape[-1]:
            raise InputError(f"Observation {int(observation)} is outside 0..{self.symbols.shape[-1] - 1}.")

    def states(self) -> Int[Array, "k 1"]:
        return jnp.asarray(self.space.points())

    def index(self, state: Int[Array, " 1"]) -> Int[Array, ""]:
        return state[0]

    def initial_log_probs(self) -> Float[Array, " k"]:
        return jnp.log(self.start)

    def successors(
        self, state: Int[Array, " 1"], policy: Float[Array, ""]
    ) -> tuple[Int[Array, "k 1"], Float[Array, " k"]]:
        return self.states(), self.transition_log_probs(state, policy)

    @property
    def num_branches(self) -> int:
        return self.space.size

    def transition_log_probs(self, state: Int[Array, " 1"], policy: Float[Array, ""]) -> Float[Array, " k"]:
        return jnp.log(self._row(state, policy))

    def _row(self, state: Int[Array, " 1"], policy: Float[Array, ""]) -> Float[Array, " k"]:
        stay = jnp.arange(self.start.shape[0]) == state[0]
        return policy * stay + (1.0 - policy) * self.moves[state[0]]


def hidden_markov(start, moves, symbols) -> HiddenMarkov:
    """A world from nested lists or arrays."""
    start, moves, symbols = (jnp.asarray(table, jnp.float32) for table in (start, moves, symbols))
    return HiddenMarkov(Lattice((start.shape[0],)), start, moves, symbols)


def three_rooms() -> HiddenMarkov:
    """Three states, three symbols, every likelihood positive; emissions depend on both x and x'."""
    rng = np.random.default_rng(2026)
    return hidden_markov(
        [0.5, 0.3, 0.2],
        [[0.1, 0.6, 0.3], [0.25, 0.25, 0.5], [0.7, 0.2, 0.1]],
        rng.dirichlet([0.7, 0.7, 0.7], size=(3, 3)),
    )


def trap_door(open_probability: float) -> HiddenMarkov:
    """Symbol 1 is certain on the way through a door that rarely opens, and impossible otherwise.

    Symbol 0 is what happens otherwise; symbol 2 never happens, symbol 3 has likelihood NaN, and
    symbol 4 an infinite one. From behind the door (state 2) the way leads back to state 0.
    """
    p = open_probability
    symbols = np.zeros((3, 3, 5))
    symbols[:, :2, 0] = 1.0
    symbols[:, 2, 1] = 1.0
    symbols[:, :, 3] = np.nan
    symbols[:, :, 4] = np.inf
    moves = [[0.5 - p / 2, 0.5 - p / 2, p], [0.5 - p / 2, 0.5 - p / 2, p], [1.0, 0.0, 0.0]]
    return hidden_markov([0.5, 0.5, 0.0], moves, symbols)


def trajectories(world: HiddenMarkov, observations, policies) -> tuple[np.ndarray, np.ndarray]:
    """Every trajectory x_0..x_T, and p(x_0:T, y_1:T) of each."""
    start, moves, symbols = (np.asarray(table, np.float64) for table in (world.start, world.moves, world.symbols))
    paths = np.array(list(itertools.product(range(len(start)), repeat=len(observations) + 1)))
    joint = start[paths[:, 0]]
    for step, (symbol, policy) in enumerate(zip(observations, policies, strict=True)):
        before, after = paths[:, step], paths[:, step + 1]
        joint = joint * (policy * (before == after) + (1 - policy) * moves[before, after])
        joint = joint * symbols[before, after, symbol]
    return paths, joint


def posterior(world: HiddenMarkov, observations, policies) -> tuple[np.ndarray, float]:
    """p(x_T | y_1:T) and p(y_1:T), summed over all trajectories."""
    paths, joint = trajectories(world, observations, policies)
    mass = np.bincount(paths[:, -1], weights=joint, minlength=world.start.shape[0])
    return mass / mass.sum(), float(mass.sum())
