"""The report of a conformance check: named checks and, for each failure, the smallest case that shows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from nbf.calls import told
from nbf.errors import InputError


class ConformanceError(InputError):
    """An object does not keep its contract; the message is the report."""


class Failure(Exception):  # noqa: N818
    """Raised by a check that fails.

    Args:
        detail: What went wrong.
        case: The case that shows it.
    """

    def __init__(self, detail: str, **case: Any):
        super().__init__(detail)
        self.detail = detail
        self.case = {name: text(value) for name, value in case.items()}


@dataclass(frozen=True)
class Check:
    """The result of one check."""

    name: str
    passed: bool | None
    """None if it was not run, because an earlier check failed."""
    detail: str = ""
    """What went wrong; or, for some that passed, how small an error would have been detected."""
    case: dict[str, str] = field(default_factory=dict)
    """The smallest case that shows a failure: state, next state, observation, expected, found."""


@dataclass(frozen=True)
class ConformanceReport:
    """The results of all checks of one object; `print` shows them."""

    subject: str
    """The class of the object."""
    checks: tuple[Check, ...]
    """The results, in the order of the checks."""
    capabilities: dict[str, str] = field(default_factory=dict)
    """What the object can do beyond its contract, and what each capability buys."""

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return not self.failures

    @property
    def failures(self) -> tuple[Check, ...]:
        """The checks that failed."""
        return tuple(check for check in self.checks if check.passed is False)

    def raise_if_failed(self) -> None:
        """Raise a `ConformanceError` with the report if a check failed."""
        if self.failures:
            raise ConformanceError(str(self))

    def __str__(self) -> str:
        passed = sum(check.passed is True for check in self.checks)
        lines = [f"{self.subject}: {passed} of {len(self.checks)} checks passed, {len(self.failures)} failed"]
        for check in self.checks:
            if check.passed is None:
                continue
            word = "ok     " if check.passed else "FAILED "
            lines.append(f"  {word}  {check.name}{': ' if check.detail else ''}{check.detail}")
            width = max(map(len, check.case), default=0)
            lines += [f"             {name:{width}}  {value}" for name, value in check.case.items()]
        skipped = [check.name for check in self.checks if check.passed is None]
        if skipped:
            lines.append(f"  not run  for that: {', '.join(skipped)}")
        if self.passed:
            lines += [f"  can do   {name}: buys {bought}" for name, bought in self.capabilities.items()]
        return "\n".join(lines)


class Checks:
    """Runs checks and collects their results.

    Args:
        subject: The class of the object under test.
    """

    def __init__(self, subject: str):
        self.subject, self.done = subject, list[Check]()
        self._stopped = False

    def run(self, name: str, function: Callable[..., str | None], *arguments: Any) -> None:
        """Run one check and note its result, unless an earlier failure prevents it.

        Args:
            name: The name of the check.
            function: The check: raises if it fails, and may return a detail.
            arguments: Passed to the function.
        """
        if self._stopped:
            self.done.append(Check(name, None))
            return
        try:
            detail = function(*arguments)
        except Failure as failure:
            self.done.append(Check(name, False, failure.detail, failure.case))
        except Exception as error:  # the code under test may raise anything, and the report says what
            self.done.append(Check(name, False, told(error)))
        else:
            self.done.append(Check(name, True, detail or ""))

    def need(self, *names: str) -> None:
        """Skip all further checks if an earlier one failed.

        Args:
            names: The checks that later ones depend on; without names, all so far.
        """
        self._stopped = self._stopped or any(
            check.passed is False and (not names or check.name in names) for check in self.done
        )

    def report(self, capabilities: dict[str, str] | None = None) -> ConformanceReport:
        """Make the report of all checks so far.

        Args:
            capabilities: What the object can do beyond its contract: see `nbf.capability.benefits`.

        Returns:
            The report.
        """
        return ConformanceReport(self.subject, tuple(self.done), capabilities or {})


def text(value: PyTree) -> str:
    """Format a value on one line.

    Args:
        value: A tree of numbers, or a text.

    Returns:
        The text.
    """

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
    """Describe the type and shape of every leaf.

    Args:
        tree: A tree of arrays.

    Returns:
        The same tree of texts such as `float32[3]`.
    """
    return jax.tree.map(lambda leaf: f"{leaf.dtype}{list(leaf.shape)}", jax.eval_shape(lambda tree: tree, tree))


def same_kinds(name: str, found: PyTree, expected: PyTree, remedy: str = "") -> None:
    """Fail unless two trees have the same structure, shapes and types.

    Args:
        name: What `found` is: the subject of the message.
        found: The tree under test.
        expected: The tree that it should resemble.
        remedy: What to do.
    """
    if kinds(found) != kinds(expected):
        more = f": {remedy}" if remedy else ""
        raise Failure(f"{name} has other shapes or types{more}", expected=str(kinds(expected)), found=str(kinds(found)))


def take(tree: PyTree, *place: Any) -> PyTree:
    """Take one entry of a set.

    Args:
        tree: The set, with leading axes on every leaf.
        place: Indices along these axes.

    Returns:
        The entry.
    """
    return jax.tree.map(lambda leaf: np.asarray(leaf)[place], tree)


def first(bad: np.ndarray) -> tuple[int, ...] | None:
    """Find the first true entry.

    Args:
        bad: A Boolean array.

    Returns:
        Its index; None if there is none.
    """
    return tuple(int(place) for place in np.argwhere(bad)[0]) if np.any(bad) else None
