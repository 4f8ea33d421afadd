"""Conformance check of `StateEmission`: the likelihood of an observation must not change with the state before."""

from __future__ import annotations

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, PyTree

from nbf.capabilities import StateEmission
from nbf.testing.report import Failure, first, take
from nbf.testing.simulation import TOLERANCE


@eqx.filter_jit
def _likelihoods(
    environment: StateEmission, observations: PyTree, states: PyTree, next_states: PyTree
) -> tuple[Float[Array, "k k"], Float[Array, " k"]]:
    """log H(x, x')[y] of every y and x' with each x, and what the capability says of them."""
    each = jax.vmap(environment.log_likelihood, (None, 0, None))
    both = jax.vmap(each, (0, None, 0))(observations, states, next_states)
    return both, jax.vmap(environment.state_log_likelihood)(observations, next_states)


def reads_the_new_state_alone(environment: StateEmission, seen: dict[str, PyTree]) -> None:
    """Fail if the likelihood of an observation changes when the state before the step is another one.

    Args:
        environment: That claims `StateEmission`.
        seen: What a few episodes show: see `simulation.rollouts`.
    """
    found, told = (
        np.asarray(values, np.float64)
        for values in _likelihoods(environment, seen["observation"], seen["state"], seen["next_state"])
    )
    wanted = np.asarray(seen["log_likelihood"], np.float64)
    place = first(~_same(found, wanted[:, None]))
    if place is not None:
        case = {name: take(seen[name], place[0]) for name in ("state", "next_state", "observation")}
        raise Failure(
            "StateEmission is claimed, but log_likelihood changes with the state before the step",
            **case, other_state=take(seen["state"], place[1]), expected=wanted[place[0]], found=found[place],
        )  # fmt: skip
    place = first(~_same(told, wanted))
    if place is not None:
        case = {name: take(seen[name], *place) for name in ("next_state", "observation")}
        raise Failure("state_log_likelihood is not log_likelihood", **case, expected=wanted[place], found=told[place])


def _same(found: Float[np.ndarray, "..."], wanted: Float[np.ndarray, "..."]) -> np.ndarray:
    return np.isclose(found, wanted, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)
