"""Conformance checks of an environment's capabilities `Enumerable`, `KnownTransitions` and `Stencil`.

Its lists of states and successors are compared with draws of `init` and `transition`, and with each other.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree

from nbf.capabilities import Enumerable, KnownTransitions, Stencil, TransitionMatrix
from nbf.capability import capability
from nbf.contracts import Policy
from nbf.testing import simulation
from nbf.testing.report import Checks, Failure, first, take
from nbf.testing.simulation import CASES, DRAWS, TOLERANCE
from nbf.testing.statistics import smallest_found, worst_frequency


class EnumerableChecks:
    """Checks of an environment whose states can be listed.

    Args:
        environment: The environment.
        policy: A policy for it.
        key: The randomness of all draws.
        cases: Returns the pairs of a state and its next one to look at.
    """

    def __init__(
        self,
        environment: Enumerable,
        policy: Policy,
        key: Key[Array, ""],
        cases: Callable[[], tuple[PyTree, PyTree]],
    ):
        self.environment, self.policy, self.key, self.cases = environment, policy, key, cases

    def run(self, checks: Checks) -> None:
        """Run the checks of all capabilities that the environment claims.

        Args:
            checks: Where the results go.
        """
        checks.run("states and index", self._listing)
        checks.run("initial_log_probs agrees with init", self._start)
        checks.run("successors sum to one", self._sums)
        checks.run("successors agree with transition", self._moves)
        if (known := capability(self.environment, KnownTransitions)) is not None:
            checks.run("transition_log_probs agree with successors", self._known_transitions, known)
        if (stencil := capability(self.environment, Stencil)) is not None:
            checks.run("offsets agree with successors", self._stencil, stencil)
        if (matrix := capability(self.environment, TransitionMatrix)) is not None:
            checks.run("transition_matrix agrees with successors", self._matrix, matrix)
            checks.run("log_likelihood_table agrees with log_likelihood", self._table, matrix)

    @functools.cached_property
    def _lists(self) -> Any:
        """All states, the index and log p0 of each, and the indices of many initial states."""
        return jax.tree.map(np.asarray, simulation.lists(self.environment, self.key))

    @functools.cached_property
    def _branches(self) -> Any:
        """For each case the successors with their probability, index and legality, and indices of many next states."""
        found = simulation.branches(self.environment, self.policy, self.key, self.cases()[0])
        ends, log_probs, places, legal, drawn = jax.tree.map(np.asarray, found)
        return ends, np.exp(log_probs.astype(np.float64)), places, legal, drawn

    def _listing(self) -> None:
        states, found, _, _ = self._lists
        place = first(found != np.arange(len(found)))
        if place is not None:
            case = {"state": take(states, *place), "expected": place[0], "found": found[place]}
            raise Failure("`index` of an entry of `states()` is not its position", **case)

    def _start(self) -> str:
        states, _, log_probs, drawn = self._lists
        probs = np.exp(log_probs.astype(np.float64))
        if not abs(probs.sum() - 1.0) <= TOLERANCE:
            raise Failure("initial_log_probs do not sum to one", expected=1.0, found=float(probs.sum()))
        worst = worst_frequency(np.bincount(drawn, minlength=len(probs)).astype(float), probs)
        if worst is not None:
            case = {"state": take(states, worst[0]), "expected": float(probs[worst[0]]), "found": worst[1]}
            raise Failure("the frequency of an initial state is not its probability", **case)
        return f"would detect a probability wrong by {smallest_found(DRAWS):.2f}"

    def _sums(self) -> None:
        ends, probs, _, legal, _ = self._branches
        states, _ = self.cases()
        totals = probs.sum(axis=1)
        place = first(~(np.abs(totals - 1.0) <= TOLERANCE))
        if place is not None:
            case = {"state": take(states, *place), "expected": 1.0, "found": totals[place]}
            raise Failure("the probabilities of the successors do not sum to one", **case)
        place = first((probs > 0) & ~legal)
        if place is not None:
            case = {"state": take(states, place[0]), "next_state": take(ends, *place)}
            raise Failure("a successor is illegal", **case, expected=0.0, found=probs[place])

    def _moves(self) -> str:
        _, probs, places, _, drawn = self._branches
        states, size = self.cases()[0], len(self._lists[1])
        for number, (row, ends) in enumerate(zip(probs, places, strict=True)):
            wanted = np.bincount(ends, weights=row, minlength=size)
            worst = worst_frequency(np.bincount(drawn[number], minlength=size).astype(float), wanted)
            if worst is not None:
                case = {"state": take(states, number), "next_state": take(self._lists[0], worst[0])}
                message = "the frequency of a next state is not its probability"
                raise Failure(message, **case, expected=wanted[worst[0]], found=worst[1])
        return f"would detect a probability wrong by {smallest_found(DRAWS):.2f}"

    def _known_transitions(self, environment: KnownTransitions) -> None:
        told = simulation.known_transitions(environment, self.policy, self.cases()[0])
        self._same_moves("transition_log_probs and follow", *jax.tree.map(np.asarray, told))

    def _stencil(self, environment: Stencil) -> None:
        told = simulation.offsets(environment, self.policy, self.cases()[0])
        self._same_moves("offset_log_probs", *jax.tree.map(np.asarray, told))

    def _matrix(self, environment: TransitionMatrix) -> None:
        told = _rows(environment, self.policy, self.cases()[0])
        self._same_moves("the rows of transition_matrix", *jax.tree.map(np.asarray, told))

    def _table(self, environment: TransitionMatrix) -> None:
        states, ends = self.cases()
        told, known = jax.tree.map(np.asarray, _likelihoods(environment, self.key, states, ends))
        place = first(~((told == known) | (np.abs(told - known) <= TOLERANCE)))
        if place is not None:
            case = {"state": take(states, *place), "next_state": take(ends, *place)}
            raise Failure(
                "log_likelihood_table gives another likelihood", **case, expected=known[place], found=told[place]
            )

    def _same_moves(self, what: str, ends: np.ndarray, moves: np.ndarray) -> None:
        """Fail unless moves to these indices have the probabilities of the successors."""
        _, probs, places, _, _ = self._branches
        states, size = self.cases()[0], len(self._lists[1])
        for number in range(CASES):
            expected = np.bincount(places[number], weights=probs[number], minlength=size)
            found = np.bincount(ends[number], weights=moves[number], minlength=size)
            place = first(~(np.abs(found - expected) <= TOLERANCE))
            if place is not None:
                case = {"state": take(states, number), "next_state": take(self._lists[0], *place)}
                raise Failure(
                    f"{what} give a next state another probability than successors",
                    **case,
                    expected=expected[place],
                    found=found[place],
                )


@eqx.filter_jit
def _rows(environment: TransitionMatrix, policy: Policy, states: PyTree) -> tuple[Array, Array]:
    """The index of every next state of each state, and its probability by the matrix."""
    rows = environment.transition_matrix(policy)[jax.vmap(environment.index)(states)]
    return jnp.broadcast_to(jnp.arange(rows.shape[1]), rows.shape), rows


@eqx.filter_jit
def _likelihoods(
    environment: TransitionMatrix, key: Key[Array, ""], states: PyTree, next_states: PyTree
) -> tuple[Array, Array]:
    """The log likelihood of an observation of each transition, by the table and by `log_likelihood`."""

    def each(key: Key[Array, ""], state: PyTree, next_state: PyTree) -> tuple[Array, Array]:
        observation = environment.observe(key, state, next_state)
        table, place = environment.log_likelihood_table(observation), environment.index(next_state)
        told = table[place] if table.ndim == 1 else table[environment.index(state), place]
        return told, environment.log_likelihood(observation, state, next_state)

    return jax.vmap(each)(jax.random.split(key, CASES), states, next_states)
