"""Conformance checks of a filter.

It must work under `jit`, `vmap` and `scan`, keep the shapes of its state, and go on after a missing or an impossible
observation, which it must report.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PyTree

from nbf import prng
from nbf.contracts import Environment, Filter, FilterInfo, FilterState, Observation, Policy, State
from nbf.filters.run import run
from nbf.testing import simulation
from nbf.testing.report import Checks, ConformanceReport, Failure, first, same_kinds, take

SAMPLES = 256
"""Samples of the belief."""
ILLEGAL = 0.5
"""Share of illegal samples that a belief may have. Not every decoder can mask them, and filters give them no weight,
but a belief with more than this is useless."""


def check_filter(
    filter: Filter, environment: Environment, policy: Policy, *, key: Key[Array, ""] | None = None
) -> ConformanceReport:
    """Check a filter on an environment.

    Args:
        filter: The filter.
        environment: An environment that passes `check_environment`.
        policy: A policy for it.
        key: The randomness of all draws; by default always the same.

    Returns:
        The report.
    """
    subject = _Subject(filter, environment, policy, prng.stream(0, "check_filter") if key is None else key)
    checks = Checks(type(filter).__name__)
    checks.run("rolls out", subject.rolls_out)
    checks.need()
    checks.run("jit", subject.traces)
    checks.run("vmap", subject.batches)
    checks.need()
    checks.run("scan", subject.scans)
    checks.run("step", subject.steps)
    checks.need()
    checks.run("belief", subject.believes)
    checks.run("missing observation", subject.misses)
    checks.run("zero likelihood", subject.recovers)
    return checks.report()


class _Subject:
    """A filter under test, and the results of earlier checks."""

    def __init__(self, filter: Filter, environment: Environment, policy: Policy, key: Key[Array, ""]):
        self.filter, self.environment, self.policy, self.key = filter, environment, policy, key
        self.observations: Any = None
        self.state: Any = None

    def rolls_out(self) -> None:
        seen = simulation.rollouts(self.environment, self.policy, self.key)["observation"]
        # Steps are the outer axis of the rollouts: every EPISODES-th entry belongs to one episode.
        self.observations = jax.tree.map(lambda leaf: leaf[:: simulation.EPISODES], seen)

    def traces(self) -> None:
        observation = jax.tree.map(lambda leaf: leaf[0], self.observations)
        start, (state, _) = jax.eval_shape(
            _start_and_update, self.filter, self.key, observation, self.environment, self.policy
        )
        same_kinds("the state that `update` returns, unlike that of `init`,", state, start)

    def batches(self) -> None:
        observations = jax.tree.map(lambda leaf: leaf[:2], self.observations)
        mapped = jax.vmap(_start_and_update, (None, 0, 0, None, None))
        keys = jax.random.split(self.key)
        start, (state, _) = jax.eval_shape(mapped, self.filter, keys, observations, self.environment, self.policy)
        same_kinds("the state that `update` returns in a batch, unlike that of `init`,", state, start)

    def scans(self) -> None:
        states, infos = _run(self.filter, self.key, self.observations, self.environment, self.policy)
        _check_info(infos)
        _check_finite(states)

    def steps(self) -> None:
        state = eqx.filter_jit(self.filter.init)(self.key, self.environment)
        observation = take(self.observations, 0)
        self.state, info = self.filter.step(self.key, state, observation, self.environment, self.policy)
        _check_info(jax.tree.map(lambda leaf: leaf[None], info))
        _check_finite(self.state)

    def believes(self) -> str:
        states, log_probs, legal = _samples(self.filter, self.key, self.state, self.environment)
        _check_finite(states)
        place = first(np.isnan(log_probs) | (np.asarray(log_probs) == np.inf))
        if place is not None:
            raise Failure("log_prob of a sample is NaN or +inf", state=take(states, *place))
        illegal = 1.0 - float(np.mean(np.asarray(legal)))
        if illegal > ILLEGAL:
            place = first(~np.asarray(legal)) or (0,)
            raise Failure(f"{illegal:.0%} of the samples are illegal", state=take(states, *place))
        return f"{illegal:.1%} of the samples are illegal" if illegal else ""

    def misses(self) -> None:
        state, info = self.filter.step(self.key, self.state, None, self.environment, self.policy)
        _check_info(jax.tree.map(lambda leaf: leaf[None], info))
        _check_finite(state)
        if abs(float(info.log_evidence)) > simulation.TOLERANCE and not bool(info.recovered):
            raise Failure("without an observation the log-evidence must be 0", expected=0.0, found=info.log_evidence)

    def recovers(self) -> None:
        """Step once with every likelihood zero, and once more with the environment itself."""
        observation = take(self.observations, 1)
        impossible = _with_zero_likelihood(self.environment)
        state, info = self.filter.step(self.key, self.state, observation, impossible, self.policy)
        expected = {"recovered": True, "ess": 0.0, "log_evidence": -np.inf}
        for name, value in expected.items():
            if np.asarray(getattr(info, name)) != value:
                raise Failure(
                    f"{name} of a step in which every likelihood is zero", expected=value, found=getattr(info, name)
                )
        _check_finite(state)
        state = jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), state, self.state)
        state, info = self.filter.step(self.key, state, observation, self.environment, self.policy)
        _check_info(jax.tree.map(lambda leaf: leaf[None], info))
        _check_finite(state)


def _start_and_update(
    filter: Filter, key: Key[Array, ""], observation: Observation, environment: Environment, policy: Policy
) -> tuple[FilterState, tuple[FilterState, FilterInfo]]:
    state = filter.init(key, environment)
    return state, filter.update(key, state, observation, environment, policy)


@eqx.filter_jit
def _run(
    filter: Filter, key: Key[Array, ""], observations: Observation, environment: Environment, policy: Policy
) -> tuple[FilterState, FilterInfo]:
    return run(filter, key, observations, environment, policy)


@eqx.filter_jit
def _samples(
    filter: Filter, key: Key[Array, ""], state: FilterState, environment: Environment
) -> tuple[State, Float[Array, " n"], Array]:
    belief = filter.belief(state, environment)
    states = belief.sample(key, SAMPLES)
    return states, belief.log_probs(states), jax.vmap(environment.space.contains)(states)


def _with_zero_likelihood(environment: Environment) -> Environment:
    """The same environment, with every observation impossible."""
    made = object.__new__(_zero_likelihood_class(type(environment)))
    for field in dataclasses.fields(environment):
        object.__setattr__(made, field.name, getattr(environment, field.name))
    return made


@functools.cache
def _zero_likelihood_class(kind: type[Environment]) -> type[Environment]:
    return type(f"ZeroLikelihood{kind.__name__}", (kind,), {"log_likelihood": _zero_likelihood})


def _zero_likelihood(self: Environment, observation: Observation, state: State, next_state: State) -> Float[Array, ""]:
    return jnp.full((), -jnp.inf)


def _check_info(infos: FilterInfo) -> None:
    ess, log_evidence, attempts = (np.asarray(part) for part in (infos.ess, infos.log_evidence, infos.attempts))
    for name, bad in {
        "ess": ~(np.isfinite(ess) & (ess >= 0)),
        "log_evidence": np.isnan(log_evidence) | (log_evidence == np.inf),
        "attempts": attempts < 1,
    }.items():
        place = first(bad)
        if place is not None:
            raise Failure(f"{name} of step {place[0] + 1}", found=np.asarray(getattr(infos, name))[place])


def _check_finite(tree: PyTree) -> None:
    """Fail at NaN; log weights and log probabilities may be -inf."""
    for leaf in simulation.leaves(tree):
        if leaf.dtype.kind == "f" and np.any(np.isnan(leaf)):
            raise Failure("NaN in the state of the filter or in its samples", found=leaf)
