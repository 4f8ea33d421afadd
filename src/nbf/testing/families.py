"""Conformance checks of a family: of an environment that it draws and, if it has a schedule, of those of an episode."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Key

from nbf import prng
from nbf.capabilities import Scheduled
from nbf.capability import benefits, capability
from nbf.contracts import Environment, Family, Policy
from nbf.environments.rollout import at_step
from nbf.filters.checks import check_counts
from nbf.testing import simulation
from nbf.testing.environments import check_environment
from nbf.testing.report import Checks, ConformanceReport, Failure, first, take

HORIZON = 20
"""Steps of an episode, unless they are named."""


def check_family(family: Family, *, horizon: int = HORIZON, key: Key[Array, ""] | None = None) -> ConformanceReport:
    """Check an environment of a family under its policy and, if the family is `Scheduled`, those of an episode.

    Args:
        family: The family.
        horizon: Steps of an episode of a schedule. The environment of the first, the middle and the last one is checked
            by itself.
        key: The randomness of all draws; by default always the same.

    Returns:
        The report, with the capabilities of the environment, of its space and of the family.
    """
    check_counts("check_family", horizon=horizon)
    key = prng.stream(0, "check") if key is None else key
    environment, policy = family.sample(key)
    report = check_environment(environment, policy)
    report = replace(report, capabilities=report.capabilities | benefits(family))
    scheduled = capability(family, Scheduled)
    if scheduled is None:
        return report
    schedule = _Schedule(scheduled, environment, key, horizon)
    checks = Checks(report.subject)
    checks.run("schedule: runs", schedule.runs)
    checks.need()
    checks.run("schedule: one entry for each step", schedule.has_steps)
    checks.need()
    checks.run("schedule: the same space", schedule.keeps_the_space)
    checks.run("schedule: rolls out", schedule.rolls_out)
    checks.need()
    checks.run("schedule: states are legal and finite", schedule.sound_states)
    checks.run("schedule: observation is possible", schedule.possible)
    for step in sorted({0, horizon // 2, horizon - 1}):
        checks.run(f"schedule: environment and policy of step {step}", schedule.step, step)
    return replace(report, checks=report.checks + checks.report().checks)


class _Schedule:
    """A schedule under test, and the results of earlier checks."""

    def __init__(self, family: Scheduled, environment: Environment, key: Key[Array, ""], horizon: int):
        self.family, self.environment, self.key, self.horizon = family, environment, key, horizon
        self.drawn: tuple[Any, Policy] = (None, None)
        self.seen: Any = None

    def runs(self) -> None:
        jax.eval_shape(lambda key: self.family.schedule(key, 1), self.key)
        self.drawn = self.family.schedule(self.key, self.horizon)

    def has_steps(self) -> None:
        for name, tree in zip(("environment", "policy"), self.drawn, strict=True):
            for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
                if np.shape(leaf)[:1] != (self.horizon,):
                    raise Failure(
                        f"a leaf of the {name} has no leading axis of steps: {jax.tree_util.keystr(path)}",
                        expected=(self.horizon, "..."),
                        found=np.shape(leaf),
                    )

    def keeps_the_space(self) -> None:
        found = at_step(self.drawn[0], 0, changing=True).space.signature
        if found != self.environment.space.signature:
            expected = self.environment.space.signature
            raise Failure("the states are others than those of `sample`", expected=expected, found=found)

    def rolls_out(self) -> None:
        self.seen = jax.tree.map(np.asarray, simulation.scheduled_rollouts(*self.drawn, self.key))

    def sound_states(self) -> None:
        for leaf in jax.tree.leaves(self.seen["next_state"]):
            place = (
                first(~np.isfinite(leaf.reshape(*leaf.shape[:2], -1)).all(axis=2)) if leaf.dtype.kind == "f" else None
            )
            if place is not None:
                raise Failure("`transition` returns NaN or infinity", **self._case(place))
        place = first(~self.seen["contains"])
        if place is not None:
            raise Failure("`transition` returns a state that is illegal at its step", **self._case(place))

    def possible(self) -> None:
        values = self.seen["log_likelihood"]
        place = first(~np.isfinite(values))
        if place is not None:
            case = self._case(place) | {"observation": take(self.seen["observation"], *place)}
            raise Failure(
                "an observation that `observe` drew has no finite log_likelihood", **case, found=take(values, *place)
            )

    def step(self, step: int) -> str:
        environment, policy = at_step(self.drawn, step, changing=True)
        report = check_environment(environment, policy)
        if report.failures:
            failure = report.failures[0]
            raise Failure(f"{failure.name}: {failure.detail}", **failure.case)
        return f"{len(report.checks)} checks passed"

    def _case(self, place: tuple[int, ...]) -> dict[str, Any]:
        return {"step": place[0]} | {name: take(self.seen[name], *place) for name in ("state", "next_state")}
