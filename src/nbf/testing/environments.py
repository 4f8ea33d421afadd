"""Conformance checks of an environment.

Its functions are called once, traced, rolled out, and compared with each other: the draws of `observe` with
`log_likelihood`, and what it claims by capabilities with the rest (`nbf.testing.enumerable`).
"""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree

from nbf import prng
from nbf.calls import check_state_fits, told
from nbf.capabilities import Enumerable, StateEmission
from nbf.capability import benefits, capability
from nbf.contracts import Environment, Policy
from nbf.errors import InputError
from nbf.testing import simulation
from nbf.testing.emission import reads_the_new_state_alone
from nbf.testing.enumerable import EnumerableChecks
from nbf.testing.periods import find_periods, hint, periods_of
from nbf.testing.report import Checks, ConformanceReport, Failure, first, kinds, same_kinds, take
from nbf.testing.simulation import CASES, DRAWS, EPISODES, TOLERANCE
from nbf.testing.statistics import CENTRES, Reference, balance, mistaken, smallest_found, worst_frequency

OUTCOMES = 256
"""Discrete observations that are counted one by one; the others are counted together."""


def check_environment(
    environment: Environment, policy: Policy, *, key: Key[Array, ""] | None = None
) -> ConformanceReport:
    """Check an environment under a policy.

    Args:
        environment: The environment.
        policy: A policy for it.
        key: The randomness of all draws; by default always the same.

    Returns:
        The report, with the capabilities of the environment and of its space.
    """
    if not isinstance(environment, Environment):
        raise InputError(
            f"check_environment takes an environment and a policy; got {type(environment).__name__}. A family is "
            "checked by check_family."
        )
    key = prng.stream(0, "check_environment") if key is None else key
    subject = _Subject(environment, policy, key)
    checks = Checks(type(environment).__name__)
    checks.run("runs", subject.runs)
    checks.need()
    checks.run("jit", subject.traces)
    checks.need()
    checks.run("same key, same program", subject.repeats)
    checks.run("shapes and types", subject.shapes)
    checks.run("vmap", subject.batches)
    checks.need()
    checks.run("rolls out", subject.rolls_out)
    checks.need()
    checks.run("states are finite", subject.finite_states)
    checks.run("states are legal", subject.legal_states)
    checks.run("encode and decode", subject.round_trip)
    checks.run("likelihood is a number", subject.numbers)
    checks.run("observation is possible", subject.possible)
    checks.run("check_observation", subject.accepts)
    checks.run("observe agrees with log_likelihood", subject.emission)
    enumerable = capability(environment, Enumerable)
    if enumerable is not None:
        EnumerableChecks(enumerable, policy, key, subject.cases).run(checks)
    emission = capability(environment, StateEmission)
    if emission is not None:
        checks.run("state emission: likelihood", reads_the_new_state_alone, emission, subject.seen)
    return checks.report(benefits(environment) | benefits(environment.space))


class _Subject:
    """An environment under test, and the results of earlier checks."""

    def __init__(self, environment: Environment, policy: Policy, key: Key[Array, ""]):
        self.environment, self.policy, self.key = environment, policy, key
        self.once: Any = None
        self.seen: Any = None

    # --- one call of everything ---

    def runs(self) -> None:
        try:
            self.once = self._traced()
        except Exception:
            self._fits()
            # It may run untraced; then the next check says that it cannot be traced.
            simulation.once(self.environment, self.policy, self.key)

    def traces(self) -> None:
        if self.once is None:
            try:
                self.once = self._traced()
            except jax.errors.JAXTypeError as error:  # a branch in Python, or NumPy
                raise Failure(f"{told(error)}: a function of JAX decides with jnp.where, and uses jax.numpy") from error

    def repeats(self) -> None:
        one, other = self._program(), self._program()
        if one[0] != other[0] or not all(map(simulation.same, one[1], other[1])):
            raise Failure("tracing it twice gives two programs: draw random numbers only from `key`, by jax.random")

    def shapes(self) -> None:
        seen = self.once
        self._fits()
        same_kinds(
            "the state that `transition` returns, unlike that of `init`,", seen["next_state"], seen["state"],
            "both are one state: let the one give what the other does, such as 0.0 for 0",
        )  # fmt: skip
        same_kinds("the state that `decode` returns, unlike that of `init`,", seen["decoded"], seen["state"])
        features = self.environment.space.num_features
        number = str(jnp.result_type(float))
        wanted = {"log_likelihood": f"{number}[]", "contains": "bool[]", "encoded": f"{number}[{features}]"}
        for name, kind in wanted.items():
            if kinds(seen[name]) != kind:
                raise Failure(f"{name} has another shape or type", expected=kind, found=str(kinds(seen[name])))

    def batches(self) -> None:
        stack = lambda tree: jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), tree)  # noqa: E731
        batch = stack(self.environment), stack(self.policy), jax.random.split(self.key)
        traced = jax.eval_shape(jax.vmap(simulation.once), *batch)
        for name, value in self.once.items():
            same_kinds(f"{name} of a batch", traced[name], jax.eval_shape(stack, value))

    def _fits(self) -> None:
        try:
            check_state_fits(self.environment)
        except InputError as error:
            raise Failure(str(error)) from error

    def _traced(self) -> dict[str, PyTree]:
        return jax.eval_shape(lambda *arguments: simulation.once(*arguments), self.environment, self.policy, self.key)

    def _program(self) -> tuple[str, list[Any]]:
        program = jax.make_jaxpr(lambda *arguments: simulation.once(*arguments))
        traced = program(self.environment, self.policy, self.key)
        return re.sub("0x[0-9a-f]+", "", str(traced)), traced.consts

    # --- what a few episodes show ---

    def rolls_out(self) -> None:
        # The outer axis is time, so the first case that is found is the earliest.
        self.seen = jax.tree.map(np.asarray, simulation.rollouts(self.environment, self.policy, self.key))

    def finite_states(self) -> None:
        broken = [~np.isfinite(leaf) for leaf in jax.tree.leaves(self.seen["next_state"]) if leaf.dtype.kind == "f"]
        for bad in broken:
            place = first(bad.reshape(len(bad), -1).any(axis=1))
            if place is not None:
                raise Failure("`transition` returns NaN or infinity", **self._pair(*place))

    def legal_states(self) -> None:
        place = first(~self.seen["legal"])
        remedy = ": clip or reflect it, widen the space, or give a Box bounded=False"
        if place is not None and place[0] < EPISODES:
            state = self._pair(*place)["state"]
            raise Failure(f"`init` draws a state that is illegal by `space.contains`{remedy}", state=state)
        place = first(~self.seen["contains"])
        if place is not None:
            raise Failure(
                f"`transition` returns a state that is illegal by `space.contains`{remedy}", **self._pair(*place)
            )

    def round_trip(self) -> None:
        place = first(~simulation.close(self.seen["decoded"], self.seen["next_state"]))
        if place is not None:
            raise Failure(
                "`space.decode(space.encode(state))` is not the same state",
                expected=take(self.seen["next_state"], *place),
                found=take(self.seen["decoded"], *place),
                encoded=take(self.seen["encoded"], *place),
            )

    def numbers(self) -> None:
        for name, observation in (("log_likelihood", "observation"), ("other_log_likelihood", "other")):
            values = self.seen[name]
            place = first(np.isnan(values) | (values == np.inf))
            if place is not None:
                case = self._pair(*place) | {"observation": take(self.seen[observation], *place)}
                raise Failure("log_likelihood is NaN or +inf", **case, found=take(values, *place))

    def possible(self) -> None:
        place = first(self.seen["log_likelihood"] == -np.inf)
        if place is not None:
            case = self._pair(*place) | {"observation": take(self.seen["observation"], *place)}
            raise Failure(
                "an observation that `observe` drew has likelihood zero", **case, expected="above -inf", found="-inf"
            )

    def accepts(self) -> None:
        observation = take(self.seen["observation"], 0)
        try:
            self.environment.check_observation(observation)
        except InputError as error:
            raise Failure(
                f"an observation that `observe` drew is refused: {error}", **self._pair(0), observation=observation
            ) from error
        broken = jax.tree.map(lambda leaf: leaf * np.nan if leaf.dtype.kind == "f" else leaf, observation)
        if not any(leaf.dtype.kind == "f" for leaf in jax.tree.leaves(observation)):
            return
        try:
            self.environment.check_observation(broken)
        except InputError:
            return
        raise Failure(
            "an observation of NaN is accepted", observation=broken, expected="InputError", found="nothing raised"
        )

    # --- draws against probabilities ---

    def emission(self) -> str:
        cases = self.cases()
        drawn = simulation.observations(self.environment, self.key, *cases)
        if any(leaf.dtype.kind == "f" for leaf in jax.tree.leaves(jax.tree.map(np.asarray, drawn))):
            return self._density(cases, drawn)
        rows, rebuild = simulation.rows(drawn)
        test = rows[:, CENTRES:]
        # The outcomes are chosen from draws that are not counted, so that "all others" is an outcome like the rest.
        values, counts = np.unique(rows[:, :CENTRES].reshape(-1, rows.shape[-1]), axis=0, return_counts=True)
        values = values[np.argsort(-counts, kind="stable")[:OUTCOMES]]
        observations = rebuild(np.broadcast_to(values, (len(rows), *values.shape)))
        likelihoods = np.exp(np.asarray(simulation.likelihoods(self.environment, observations, *cases), np.float64))
        for number, (draws, probs) in enumerate(zip(test, likelihoods, strict=True)):
            seen = np.array([np.all(draws == value, axis=1).sum() for value in values], np.float64)
            pair = {"state": take(cases[0], number), "next_state": take(cases[1], number)}
            if not probs.sum() <= 1.0 + TOLERANCE:
                plain = np.log(np.maximum(probs, 1e-300))  # what log_likelihood gave
                cause = ": these look like probabilities, so return their logarithms" if np.all(plain >= 0) else ""
                raise Failure(
                    f"the likelihoods of different observations sum to more than one{cause}",
                    **pair,
                    expected="at most 1",
                    found=float(probs.sum()),
                )
            rest = len(draws) - seen.sum(), max(1.0 - float(probs.sum()), TOLERANCE)
            worst = worst_frequency(np.append(seen, rest[0]), np.append(probs, rest[1]))
            if worst is not None:
                listed = worst[0] < len(values)
                raise Failure(
                    "the frequency of an observation is not its likelihood",
                    **pair,
                    observation=take(observations, number, worst[0]) if listed else "any other",
                    expected=float(np.append(probs, rest[1])[worst[0]]),
                    found=worst[1],
                )
        return f"would detect a probability wrong by {smallest_found(test.shape[1]):.2f}"

    def _density(self, cases: tuple[PyTree, PyTree], drawn: PyTree) -> str:
        rows, rebuild = simulation.rows(drawn)
        kept = rows[:, CENTRES : DRAWS // 2]
        rng = np.random.default_rng(0)
        real = np.concatenate(
            [np.full(simulation.width(leaf), leaf.dtype.kind == "f") for leaf in simulation.leaves(drawn)]
        )
        periods = find_periods(
            lambda rows: np.asarray(simulation.likelihoods(self.environment, rebuild(rows), *cases), np.float64),
            np.concatenate([kept, kept], axis=1), real, periods_of(self.environment.space),
        )  # fmt: skip
        references = [Reference(some[:CENTRES], real, periods) for some in rows]
        proposed = np.stack([reference.sample(rng, kept.shape[1]) for reference in references])
        both = np.concatenate([kept, proposed], axis=1)
        log_density = np.asarray(simulation.likelihoods(self.environment, rebuild(both), *cases), np.float64)
        detected, n = 1.0, kept.shape[1]
        for number, reference in enumerate(references):
            log_p, log_q = log_density[number], reference.log_density(both[number])
            pair = {"state": take(cases[0], number), "next_state": take(cases[1], number)}
            place = first(np.isnan(log_p) | (log_p == np.inf))
            if place is not None:
                observation = take(rebuild(both), number, *place)
                raise Failure("log_likelihood is NaN or +inf", **pair, observation=observation, found=log_p[place])
            ours, theirs, allowed, factor = balance((log_p[:n], log_p[n:]), (log_q[:n], log_q[n:]))
            if not abs(ours - theirs) <= allowed:
                cause = mistaken((log_p[:n], log_p[n:]), (log_q[:n], log_q[n:])) or hint(rows[number], periods)
                raise Failure(
                    f"what `observe` draws does not have the density H that log_likelihood tells{cause} (tested by a "
                    "kernel density q of draws: E[q/(H+q)] over draws of `observe` should equal E[H/(H+q)] over draws "
                    "of q)",
                    **pair,
                    expected=f"{theirs:.4f} ± {allowed:.4f}",
                    found=f"{ours:.4f}",
                )
            detected = max(detected, factor)
        return f"would detect a density wrong by a factor of {detected:.2f}"

    def _pair(self, place: int) -> dict[str, PyTree]:
        return {"state": take(self.seen["state"], place), "next_state": take(self.seen["next_state"], place)}

    def cases(self) -> tuple[PyTree, PyTree]:
        """The first few distinct pairs of a state and its next one."""
        rows = np.concatenate([simulation.rows(self.seen[name], axes=1)[0] for name in ("state", "next_state")], axis=1)
        _, places = np.unique(rows, axis=0, return_index=True)
        # Always as many as CASES, so that one compilation serves: where there are fewer, some are repeated.
        chosen = np.resize(np.sort(places)[:CASES], CASES)
        return take(self.seen["state"], chosen), take(self.seen["next_state"], chosen)
