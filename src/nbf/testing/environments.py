"""Does an environment keep its contract? Its functions are called once, traced, rolled out, and compared with each
other: what `observe` draws with what `log_likelihood` says, what `transition` draws with `successors`."""

from __future__ import annotations

import functools
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree

from nbf import prng
from nbf.capabilities import Enumerable, KnownTransitions, Stencil
from nbf.capability import benefits, capability
from nbf.contracts import Environment, Policy
from nbf.errors import InputError
from nbf.testing import simulation
from nbf.testing.report import Checks, ConformanceReport, Failure, first, kinds, same_kinds, take
from nbf.testing.simulation import CASES, DRAWS, EPISODES, TOLERANCE
from nbf.testing.statistics import CENTRES, Reference, balance, smallest_found, worst_frequency

OUTCOMES = 256
"""Discrete observations beyond that many are taken together."""


def check_environment(
    environment: Environment, policy: Policy, *, key: Key[Array, ""] | None = None
) -> ConformanceReport:
    """Check an environment under a policy. The draws are those of `key`, by default always the same."""
    subject = _Subject(environment, policy, prng.stream(0, "check_environment") if key is None else key)
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
    if capability(environment, Enumerable) is not None:
        checks.run("states and index", subject.listing)
        checks.run("initial_log_probs agrees with init", subject.start)
        checks.run("successors sum to one", subject.sums)
        checks.run("successors agree with transition", subject.moves)
    if capability(environment, KnownTransitions) is not None:
        checks.run("transition_log_probs agree with successors", subject.known_transitions)
    if capability(environment, Stencil) is not None:
        checks.run("offsets agree with successors", subject.stencil)
    return checks.report(benefits(environment))


class _Subject:
    """An environment under test, and what was seen of it so far."""

    def __init__(self, environment: Environment, policy: Policy, key: Key[Array, ""]):
        self.environment, self.policy, self.key = environment, policy, key
        self.once: Any = None
        self.seen: Any = None

    # --- one call of everything ---

    def runs(self) -> None:
        try:
            self.once = self._traced()
        except Exception:  # code that JAX cannot trace may run all the same, and then that is what to say
            simulation.once(self.environment, self.policy, self.key)

    def traces(self) -> None:
        self.once = self._traced()

    def repeats(self) -> None:
        one, other = self._program(), self._program()
        if one[0] != other[0] or not all(map(simulation.same, one[1], other[1])):
            raise Failure("traced twice, it is not the same program: draw from `key` alone, by jax.random")

    def shapes(self) -> None:
        seen = self.once
        same_kinds("the state that `transition` gives, unlike that of `init`,", seen["next_state"], seen["state"])
        same_kinds("the state that `decode` gives, unlike that of `init`,", seen["decoded"], seen["state"])
        features = self.environment.space.num_features
        number = str(jnp.result_type(float))
        wanted = {"log_likelihood": f"{number}[]", "contains": "bool[]", "encoded": f"{number}[{features}]"}
        for name, kind in wanted.items():
            if kinds(seen[name]) != kind:
                raise Failure(f"{name} is not what it should be", expected=kind, found=str(kinds(seen[name])))

    def batches(self) -> None:
        stack = lambda tree: jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), tree)  # noqa: E731
        batch = stack(self.environment), stack(self.policy), jax.random.split(self.key)
        traced = jax.eval_shape(jax.vmap(simulation.once), *batch)
        for name, value in self.once.items():
            same_kinds(f"{name} of a batch", traced[name], jax.eval_shape(stack, value))

    def _traced(self) -> dict[str, PyTree]:
        return jax.eval_shape(lambda *arguments: simulation.once(*arguments), self.environment, self.policy, self.key)

    def _program(self) -> tuple[str, list[Any]]:
        program = jax.make_jaxpr(lambda *arguments: simulation.once(*arguments))
        traced = program(self.environment, self.policy, self.key)
        return re.sub("0x[0-9a-f]+", "", str(traced)), traced.consts

    # --- what a few episodes show ---

    def rolls_out(self) -> None:
        # Step by step rather than episode by episode: the first case found is then the earliest one.
        self.seen = jax.tree.map(np.asarray, simulation.rollouts(self.environment, self.policy, self.key))

    def finite_states(self) -> None:
        broken = [~np.isfinite(leaf) for leaf in jax.tree.leaves(self.seen["next_state"]) if leaf.dtype.kind == "f"]
        for bad in broken:
            place = first(bad.reshape(len(bad), -1).any(axis=1))
            if place is not None:
                raise Failure("`transition` leads to NaN or infinity", **self._pair(*place))

    def legal_states(self) -> None:
        place = first(~self.seen["legal"])
        if place is not None and place[0] < EPISODES:
            raise Failure(
                "`init` draws a state that `space.contains` says is illegal", state=self._pair(*place)["state"]
            )
        place = first(~self.seen["contains"])
        if place is not None:
            raise Failure("`transition` leads to a state that `space.contains` says is illegal", **self._pair(*place))

    def round_trip(self) -> None:
        place = first(~simulation.close(self.seen["decoded"], self.seen["next_state"]))
        if place is not None:
            raise Failure(
                "`space.decode(space.encode(state))` is another state",
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
            raise Failure("what `observe` drew has likelihood zero", **case, expected="above -inf", found="-inf")

    def accepts(self) -> None:
        observation = take(self.seen["observation"], 0)
        try:
            self.environment.check_observation(observation)
        except InputError as error:
            raise Failure(
                f"what `observe` drew is refused: {error}", **self._pair(0), observation=observation
            ) from error
        broken = jax.tree.map(lambda leaf: leaf * np.nan if leaf.dtype.kind == "f" else leaf, observation)
        if not any(leaf.dtype.kind == "f" for leaf in jax.tree.leaves(observation)):
            return
        try:
            self.environment.check_observation(broken)
        except InputError:
            return
        raise Failure("NaN is accepted", observation=broken, expected="InputError", found="nothing raised")

    # --- draws against probabilities ---

    def emission(self) -> str:
        cases = self._cases()
        drawn = simulation.observations(self.environment, self.key, *cases)
        if any(leaf.dtype.kind == "f" for leaf in jax.tree.leaves(jax.tree.map(np.asarray, drawn))):
            return self._density(cases, drawn)
        rows, rebuild = simulation.rows(drawn)
        test = rows[:, CENTRES:]
        # The outcomes are chosen by other draws than those that are counted, so that `the rest` is one of them.
        values, counts = np.unique(rows[:, :CENTRES].reshape(-1, rows.shape[-1]), axis=0, return_counts=True)
        values = values[np.argsort(-counts, kind="stable")[:OUTCOMES]]
        observations = rebuild(np.broadcast_to(values, (len(rows), *values.shape)))
        likelihoods = np.exp(np.asarray(simulation.likelihoods(self.environment, observations, *cases), np.float64))
        for number, (draws, probs) in enumerate(zip(test, likelihoods, strict=True)):
            seen = np.array([np.all(draws == value, axis=1).sum() for value in values], np.float64)
            pair = {"state": take(cases[0], number), "next_state": take(cases[1], number)}
            if not probs.sum() <= 1.0 + TOLERANCE:
                raise Failure(
                    "likelihoods do not sum to at most one", **pair, expected="at most 1", found=float(probs.sum())
                )
            rest = len(draws) - seen.sum(), max(1.0 - float(probs.sum()), TOLERANCE)
            worst = worst_frequency(np.append(seen, rest[0]), np.append(probs, rest[1]))
            if worst is not None:
                listed = worst[0] < len(values)
                raise Failure(
                    "the frequency of an observation is not its likelihood",
                    **pair,
                    observation=take(observations, number, worst[0]) if listed else "any not drawn so far",
                    expected=float(np.append(probs, rest[1])[worst[0]]),
                    found=worst[1],
                )
        return f"finds a probability that is off by {smallest_found(test.shape[1]):.2f}"

    def _density(self, cases: tuple[PyTree, PyTree], drawn: PyTree) -> str:
        rows, rebuild = simulation.rows(drawn)
        kept = rows[:, CENTRES : DRAWS // 2]
        rng = np.random.default_rng(0)
        real = np.concatenate(
            [np.full(simulation.width(leaf), leaf.dtype.kind == "f") for leaf in simulation.leaves(drawn)]
        )
        references = [Reference(some[:CENTRES], real) for some in rows]
        invented = np.stack([reference.sample(rng, kept.shape[1]) for reference in references])
        both = np.concatenate([kept, invented], axis=1)
        log_density = np.asarray(simulation.likelihoods(self.environment, rebuild(both), *cases), np.float64)
        finds, n = 1.0, kept.shape[1]
        for number, reference in enumerate(references):
            log_p, log_q = log_density[number], reference.log_density(both[number])
            pair = {"state": take(cases[0], number), "next_state": take(cases[1], number)}
            place = first(np.isnan(log_p) | (log_p == np.inf))
            if place is not None:
                observation = take(rebuild(both), number, *place)
                raise Failure("log_likelihood is NaN or +inf", **pair, observation=observation, found=log_p[place])
            ours, theirs, allowed, factor = balance((log_p[:n], log_p[n:]), (log_q[:n], log_q[n:]))
            if not abs(ours - theirs) <= allowed:
                raise Failure(
                    "observations do not have the density that log_likelihood says: with q like the draws of "
                    "`observe`, E[q/(H+q)] over those draws should be E[H/(H+q)] over draws of q",
                    **pair,
                    expected=f"{theirs:.4f} ± {allowed:.4f}",
                    found=f"{ours:.4f}",
                )
            finds = max(finds, factor)
        return f"finds a density that is off by a factor of {finds:.2f}" if finds < 100 else "not sharp: see `balance`"

    # --- where everything can be listed ---

    @functools.cached_property
    def lists(self) -> Any:
        """Every state, the index of each, log p0 of each, and the index of many first states."""
        assert isinstance(self.environment, Enumerable)
        return jax.tree.map(np.asarray, simulation.lists(self.environment, self.key))

    @functools.cached_property
    def branches(self) -> Any:
        """At each case the successors, their probabilities, indices and legality; and the index of many next states."""
        assert isinstance(self.environment, Enumerable)
        found = simulation.branches(self.environment, self.policy, self.key, self._cases()[0])
        ends, log_probs, places, legal, drawn = jax.tree.map(np.asarray, found)
        return ends, np.exp(log_probs.astype(np.float64)), places, legal, drawn

    def listing(self) -> None:
        states, found, _, _ = self.lists
        place = first(found != np.arange(len(found)))
        if place is not None:
            case = {"state": take(states, *place), "expected": place[0], "found": found[place]}
            raise Failure("`index` of an entry of `states()` is not its place", **case)

    def start(self) -> str:
        states, _, log_probs, drawn = self.lists
        probs = np.exp(log_probs.astype(np.float64))
        if not abs(probs.sum() - 1.0) <= TOLERANCE:
            raise Failure("initial_log_probs do not sum to one", expected=1.0, found=float(probs.sum()))
        worst = worst_frequency(np.bincount(drawn, minlength=len(probs)).astype(float), probs)
        if worst is not None:
            case = {"state": take(states, worst[0]), "expected": float(probs[worst[0]]), "found": worst[1]}
            raise Failure("the frequency of a first state is not its probability", **case)
        return f"finds a probability that is off by {smallest_found(DRAWS):.2f}"

    def sums(self) -> None:
        ends, probs, _, legal, _ = self.branches
        states, _ = self._cases()
        totals = probs.sum(axis=1)
        place = first(~(np.abs(totals - 1.0) <= TOLERANCE))
        if place is not None:
            case = {"state": take(states, *place), "expected": 1.0, "found": totals[place]}
            raise Failure("the probabilities of the successors do not sum to one", **case)
        place = first((probs > 0) & ~legal)
        if place is not None:
            case = {"state": take(states, place[0]), "next_state": take(ends, *place)}
            raise Failure("a successor is illegal", **case, expected=0.0, found=probs[place])

    def moves(self) -> str:
        _, probs, places, _, drawn = self.branches
        states, size = self._cases()[0], len(self.lists[1])
        for number, (row, ends) in enumerate(zip(probs, places, strict=True)):
            wanted = np.bincount(ends, weights=row, minlength=size)
            worst = worst_frequency(np.bincount(drawn[number], minlength=size).astype(float), wanted)
            if worst is not None:
                case = {"state": take(states, number), "next_state": take(self.lists[0], worst[0])}
                message = "the frequency of a next state is not its probability"
                raise Failure(message, **case, expected=wanted[worst[0]], found=worst[1])
        return f"finds a probability that is off by {smallest_found(DRAWS):.2f}"

    def known_transitions(self) -> None:
        assert isinstance(self.environment, KnownTransitions)
        told = simulation.known_transitions(self.environment, self.policy, self._cases()[0])
        self._same_moves("transition_log_probs and follow", *jax.tree.map(np.asarray, told))

    def stencil(self) -> None:
        assert isinstance(self.environment, Stencil)
        told = simulation.offsets(self.environment, self.policy, self._cases()[0])
        self._same_moves("offset_log_probs", *jax.tree.map(np.asarray, told))

    def _same_moves(self, what: str, ends: np.ndarray, moves: np.ndarray) -> None:
        """Whether moves to these indices have the probabilities of the successors."""
        _, probs, places, _, _ = self.branches
        states, size = self._cases()[0], len(self.lists[1])
        for number in range(CASES):
            expected = np.bincount(places[number], weights=probs[number], minlength=size)
            found = np.bincount(ends[number], weights=moves[number], minlength=size)
            place = first(~(np.abs(found - expected) <= TOLERANCE))
            if place is not None:
                case = {"state": take(states, number), "next_state": take(self.lists[0], *place)}
                raise Failure(what, **case, expected=expected[place], found=found[place])

    def _pair(self, place: int) -> dict[str, PyTree]:
        return {"state": take(self.seen["state"], place), "next_state": take(self.seen["next_state"], place)}

    def _cases(self) -> tuple[PyTree, PyTree]:
        """The first few pairs of a state and its next one that are all different."""
        rows = np.concatenate([simulation.rows(self.seen[name], axes=1)[0] for name in ("state", "next_state")], axis=1)
        _, places = np.unique(rows, axis=0, return_index=True)
        # As many as there are cases, so that one compilation serves: where there are fewer, some come again.
        chosen = np.resize(np.sort(places)[:CASES], CASES)
        return take(self.seen["state"], chosen), take(self.seen["next_state"], chosen)
