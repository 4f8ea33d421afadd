"""A finite POMDP or hidden Markov model from its tables.

    T[a, x, x'] (or T[x, x'])    H[x', y] (or H[x, x', y])    p0[x]

Everything is listed, so the exact filter is the forward algorithm of the tables.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int, Key
from numpy.typing import ArrayLike

from nbf import prng
from nbf.capabilities import TransitionMatrix
from nbf.contracts import Observation, Policy
from nbf.errors import InputError
from nbf.spaces import Lattice

ROW_TOLERANCE = 1e-5
"""How far the sum of a row may be from one: up to 10 000 entries, rounding to float32 changes it by less."""


class FiniteEnvironment(TransitionMatrix):
    """What `from_matrices` builds. A state is an `Int[1]` vector, an observation one integer.

    The policy of an environment with actions is an integer, the action taken; or the probabilities of the actions,
    `Float[A]`; or a table of them for every state, `Float[S, A]`. Without actions it is ignored. Where all
    probabilities are zero, the state stays the same.
    """

    space: Lattice
    moves: Float[Array, "actions S S"]
    """T[a, x, x']."""
    symbols: Float[Array, "S Y"] | Float[Array, "S S Y"]
    """H[x', y] or H[x, x', y]."""
    start: Float[Array, " S"]
    """p0."""
    controlled: bool = eqx.field(static=True)
    """Whether there are actions."""

    def init(self, key: Key[Array, ""]) -> Int[Array, " 1"]:
        return prng.categorical(key, self.start)[None]

    def transition(self, key: Key[Array, ""], state: Int[Array, " 1"], policy: Policy) -> Int[Array, " 1"]:
        return prng.categorical(key, self._row(state, policy))[None]

    def observe(self, key: Key[Array, ""], state: Int[Array, " 1"], next_state: Int[Array, " 1"]) -> Int[Array, ""]:
        return prng.categorical(key, self._emission(state, next_state))

    def log_likelihood(
        self, observation: Int[Array, ""], state: Int[Array, " 1"], next_state: Int[Array, " 1"]
    ) -> Float[Array, ""]:
        return jnp.log(self._emission(state, next_state)[observation])

    def check_observation(self, observation: Observation) -> None:
        value, last = np.asarray(observation), self.symbols.shape[-1] - 1
        if value.shape != () or not np.issubdtype(value.dtype, np.integer) or not 0 <= int(value) <= last:
            raise InputError(
                f"An observation of this environment is one integer in 0..{last}; got {observation!r} "
                f"({value.dtype} of shape {value.shape})."
            )

    def check_policy(self, policy: Policy) -> None:
        if not self.controlled or policy is None:
            return
        actions, size = self.moves.shape[:2]
        value = np.asarray(policy)
        if value.shape == () and value.dtype.kind in "iu" and not 0 <= int(value) < actions:
            raise InputError(
                f"Action {int(value)} is none of the {actions} actions 0..{actions - 1} of this environment."
            )
        if value.dtype.kind != "f" or value.shape not in ((actions,), (size, actions)):
            return  # `_row` says what a policy is
        rows = value.reshape(-1, actions).astype(np.float64)
        totals = rows.sum(axis=1)
        # A row of zeros leaves the state as it is.
        bad = ~((np.abs(totals - 1.0) <= ROW_TOLERANCE) | (totals == 0)) | np.any(~(rows >= 0), axis=1)
        if np.any(bad):
            row = int(np.argmax(bad))
            where = f" in state {row}" if value.ndim == 2 else ""
            raise InputError(
                f"The probabilities of the {actions} actions{where} must be 0 or more and sum to 1 (or all be 0: the "
                f"state then stays); they are {rows[row].tolist()}, with sum {float(totals[row]):.6g}. Normalise them, "
                "or pass the action that is taken as an integer."
            )

    def states(self) -> Int[Array, "S 1"]:
        return jnp.asarray(self.space.points())

    def index(self, state: Int[Array, " 1"]) -> Int[Array, ""]:
        return self.space.index(state)

    def initial_log_probs(self) -> Float[Array, " S"]:
        return jnp.log(self.start)

    def successors(self, state: Int[Array, " 1"], policy: Policy) -> tuple[Int[Array, "S 1"], Float[Array, " S"]]:
        return self.states(), self.transition_log_probs(state, policy)

    @property
    def num_branches(self) -> int:
        return self.space.size

    def transition_log_probs(self, state: Int[Array, " 1"], policy: Policy) -> Float[Array, " S"]:
        return jnp.log(self._row(state, policy))

    def transition_matrix(self, policy: Policy) -> Float[Array, "S S"]:
        return jax.vmap(lambda state: self._row(state, policy))(self.states()) if self.controlled else self.moves[0]

    def log_likelihood_table(self, observation: Int[Array, ""]) -> Float[Array, " S"] | Float[Array, "S S"]:
        return jnp.log(self.symbols[..., observation])

    def _row(self, state: Int[Array, " 1"], policy: Policy) -> Float[Array, " S"]:
        """T(x, π)."""
        rows = self.moves[:, state[0]]
        if not self.controlled:
            return rows[0]
        actions, size = rows.shape
        control = jnp.asarray(jnp.nan if policy is None else policy)
        if control.shape == () and jnp.issubdtype(control.dtype, jnp.integer):
            return rows[control]
        if control.shape not in ((actions,), (size, actions)) or not jnp.issubdtype(control.dtype, jnp.floating):
            raise InputError(
                f"The policy of {actions} actions in {size} states is an integer action, probabilities of shape "
                f"({actions},), or a table of them of shape ({size}, {actions}); got {policy!r}."
            )
        row = (control if control.ndim == 1 else control[state[0]]) @ rows
        return jnp.where(jnp.sum(row) > 0, row, (jnp.arange(size) == state[0]).astype(row.dtype))

    def _emission(self, state: Int[Array, " 1"], next_state: Int[Array, " 1"]) -> Float[Array, " Y"]:
        """H(x, x')."""
        symbols = self.symbols if self.symbols.ndim == 2 else self.symbols[state[0]]
        return symbols[next_state[0]]


def from_matrices(T: ArrayLike | Array, H: ArrayLike | Array, p0: ArrayLike | Array) -> FiniteEnvironment:  # noqa: N803
    """Build the environment of a finite POMDP. Every row of a table, along its last axis, is a distribution.

    Args:
        T: Transition probabilities T[x, x'], `[S, S]`; with actions T[a, x, x'], `[A, S, S]`.
        H: Emission probabilities H[x', y], `[S, Y]`, or H[x, x', y], `[S, S, Y]`.
        p0: Probabilities of the first state, `[S]`.

    Returns:
        The environment.
    """
    moves, symbols, start = _table("T", T), _table("H", H), _table("p0", p0)
    size = start.shape[0] if start.ndim == 1 else 0
    fits = moves.ndim in (2, 3) and moves.shape[-2:] == (size, size) and symbols.ndim in (2, 3)
    if size < 1 or 0 in moves.shape or not fits or symbols.shape[:-1] != (size,) * (symbols.ndim - 1):
        raise InputError(
            "The tables of S states, A actions and Y symbols are T [S, S] or [A, S, S], H [S, Y] or [S, S, Y], and "
            f"p0 [S]; got T of shape {moves.shape}, H of {symbols.shape} and p0 of {start.shape}."
        )
    stacked = moves if moves.ndim == 3 else moves[None]
    stacked, symbols, start = (jnp.asarray(table, jnp.float32) for table in (stacked, symbols, start))
    return FiniteEnvironment(Lattice((size,), ordered=False), stacked, symbols, start, moves.ndim == 3)


def _table(name: str, table: ArrayLike | Array) -> np.ndarray | Array:
    """The table as float64, after a check that its rows are distributions; inside a trace there is no check."""
    if isinstance(table, Tracer):
        return table
    values = np.asarray(table, np.float64)
    totals = values.sum(axis=-1)
    bad = ~(np.abs(totals - 1.0) <= ROW_TOLERANCE) | np.any(~(values >= 0), axis=-1)
    if np.any(bad):
        row = tuple(int(place) for place in np.argwhere(bad)[0])
        where = f"{name}[{', '.join(map(str, row))}]" if row else name
        raise InputError(
            f"{where} must be probabilities of 0 or more that sum to 1; it is {values[row].tolist()}, with sum "
            f"{float(totals[row]):.6g}."
        )
    return values
