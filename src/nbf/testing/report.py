"""What a conformance check found: named checks, and for a failed one the smallest case that shows it."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from nbf.errors import InputError


class ConformanceError(InputError):
    """Something does not keep the promises of its contract; the message names the checks it failed."""


class Failure(Exception):  # noqa: N818
    """Raised inside a check; the keywords are the case that shows it."""

    def __init__(self, detail: str, **case: Any):
        super().__init__(detail)
        self.detail = detail
        self.case = {name: text(value) for name, value in case.items()}


@dataclass(frozen=True)
class Check:
    """One check by name."""

    name: str
    passed: bool | None
    """None if it was not run, since an earlier one failed."""
    detail: str = ""
    """What went wrong or, where that is worth saying, how sharp the check was."""
    case: dict[str, str] = field(default_factory=dict)
    """The smallest case that shows a failure: state, next state, observation, expected, found."""


@dataclass(frozen=True)
class Report:
    """All checks of one subject. `print` it."""

    subject: str
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        return not self.failures

    @property
    def failures(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.passed is False)

    def raise_if_failed(self) -> None:
        """Raise a `ConformanceError` that names what failed."""
        if self.failures:
            raise ConformanceError(str(self))

    def __str__(self) -> str:
        words = {True: "ok     ", False: "FAILED ", None: "not run"}
        passed = sum(check.passed is True for check in self.checks)
        lines = [f"{self.subject}: {passed} of {len(self.checks)} checks passed, {len(self.failures)} failed"]
        for check in self.checks:
            lines.append(f"  {words[check.passed]}  {check.name}{': ' if check.detail else ''}{check.detail}")
            width = max(map(len, check.case), default=0)
            lines += [f"             {name:{width}}  {value}" for name, value in check.case.items()]
        return "\n".join(lines)


class Checks:
    """A report in the making."""

    def __init__(self, subject: str):
        self.subject, self.done = subject, list[Check]()
        self._stopped = False

    def run(self, name: str, function: Callable[..., str | None], *arguments: Any) -> None:
        """Enter one check: `function` raises if it fails, and may return how sharp it was."""
        if self._stopped:
            self.done.append(Check(name, None))
            return
        try:
            detail = function(*arguments)
        except Failure as failure:
            self.done.append(Check(name, False, failure.detail, failure.case))
        except Exception as error:  # whatever the code under test raises is what the report is about
            self.done.append(Check(name, False, f"{type(error).__name__}: {_first_line(error)}{_place(error)}"))
        else:
            self.done.append(Check(name, True, detail or ""))

    def need(self, *names: str) -> None:
        """What follows cannot be run if one of these checks failed; without names, if any did."""
        self._stopped = self._stopped or any(
            check.passed is False and (not names or check.name in names) for check in self.done
        )

    def report(self) -> Report:
        return Report(self.subject, tuple(self.done))


def text(value: PyTree) -> str:
    """A value for a reader, on one line."""

    def leaf(part: Any) -> str:
        array = np.asarray(part)
        if array.dtype.kind not in "biuf":
            return str(part)
        return " ".join(np.array2string(array, precision=6, threshold=64, separator=", ").split())

    if isinstance(value, str):
        return value
    leaves, structure = jax.tree.flatten(value)
    return leaf(value) if jax.tree_util.treedef_is_leaf(structure) else str(structure.unflatten(map(leaf, leaves)))


def kinds(tree: PyTree) -> PyTree:
    """Shape and type of every leaf."""
    return jax.tree.map(lambda leaf: f"{leaf.dtype}{list(leaf.shape)}", jax.eval_shape(lambda tree: tree, tree))


def same_kinds(name: str, found: PyTree, expected: PyTree) -> None:
    """Fail unless two trees have the same structure, shapes and types."""
    if kinds(found) != kinds(expected):
        raise Failure(f"{name} has other shapes or types", expected=str(kinds(expected)), found=str(kinds(found)))


def take(tree: PyTree, *place: Any) -> PyTree:
    """One entry of a set."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[place], tree)


def first(bad: np.ndarray) -> tuple[int, ...] | None:
    """The place of the first true entry."""
    return tuple(int(place) for place in np.argwhere(bad)[0]) if np.any(bad) else None


def _first_line(error: Exception) -> str:
    return (str(error).strip() or "no message").splitlines()[0]


def _place(error: Exception) -> str:
    """Where in the code under test an error arose."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "site-packages" not in frame.filename and "<" not in frame.filename and frame.filename != __file__
    ]
    return f" (in {frames[-1].name}, {frames[-1].filename} line {frames[-1].lineno})" if frames else ""
