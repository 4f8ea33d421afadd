"""Does a filter keep its contract? It must run compiled, batched and scanned, keep the shapes of its state, and on a
bad day (no observation, an impossible one) go on and say so."""

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
from nbf.testing.report import Checks, Failure, Report, first, same_kinds, take

SAMPLES = 256
ILLEGAL = 0.5
"""Share of illegal samples that a belief may have: not every decoder can mask them, and the filters give them no
weight, but a belief that is mostly there is none."""


def check_filter(
    filter: Filter, environment: Environment, policy: Policy, *, key: Key[Array, ""] | None = None
) -> Report:
    """Check a filter on an environment that itself passes `check_environment`. By default the draws are always the
    same."""
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
    """A filter under test, and what was seen of it so far."""

    def __init__(self, filter: Filter, environment: Environment, policy: Policy, key: Key[Array, ""]):
        self.filter, self.environment, self.policy, self.key = filter, environment, policy, key
        self.observations: Any = None
        self.state: Any = None

    def rolls_out(self) -> None:
        seen = simulation.rollouts(self.environment, self.policy, self.key)["observation"]
        # Steps come before episodes there: every EPISODES-th entry is one episode.
        self.observations = jax.tree.map(lambda leaf: leaf[:: simulation.EPISODES], seen)

    def traces(self) -> None:
        observation = jax.tree.map(lambda leaf: leaf[0], self.observations)
        start, (state, _) = jax.eval_shape(
            _start_and_update, self.filter, self.key, observation, self.environment, self.policy
        )
        same_kinds("the state that `update` gives, unlike that of `init`,", state, start)

    def batches(self) -> None:
        observations = jax.tree.map(lambda leaf: leaf[:2], self.observations)
        mapped = jax.vmap(_start_and_update, (None, 0, 0, None, None))
        keys = jax.random.split(self.key)
        start, (state, _) = jax.eval_shape(mapped, self.filter, keys, observations, self.environment, self.policy)
        same_kinds("the state that `update` gives in a batch, unlike that of `init`,", state, start)

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
            raise Failure("nothing was observed, so the evidence is 1", expected=0.0, found=info.log_evidence)

    def recovers(self) -> None:
        """With an environment in which every likelihood is zero, and then with the sound one again."""
        observation = take(self.observations, 1)
        hopeless = _with_zero_likelihood(self.environment)
        state, info = self.filter.step(self.key, self.state, observation, hopeless, self.policy)
        expected = {"recovered": True, "ess": 0.0, "log_evidence": -np.inf}
        for name, value in expected.items():
            if np.asarray(getattr(info, name)) != value:
                raise Failure(f"{name} of a step that nothing explains", expected=value, found=getattr(info, name))
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
    """The same environment, except that it thinks every observation impossible."""
    made = object.__new__(_hopeless(type(environment)))
    for field in dataclasses.fields(environment):
        object.__setattr__(made, field.name, getattr(environment, field.name))
    return made


@functools.cache
def _hopeless(kind: type[Environment]) -> type[Environment]:
    return type(f"Hopeless{kind.__name__}", (kind,), {"log_likelihood": _impossible})


def _impossible(self: Environment, observation: Observation, state: State, next_state: State) -> Float[Array, ""]:
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
    """Log weights and log probabilities may be -inf, nothing may be NaN."""
    for leaf in simulation.leaves(tree):
        if leaf.dtype.kind == "f" and np.any(np.isnan(leaf)):
            raise Failure("NaN in what the filter carries or draws", found=leaf)
