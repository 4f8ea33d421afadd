"""What an executor is."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from types import TracebackType
from typing import Any, TypeVar

from nbf.errors import InputError, WorkerError

Outcomes = Generator[tuple[int, Any], None, None]
"""Numbers of calls, each with its result or its `WorkerError`."""


Kind = TypeVar("Kind", bound="Executor")


class Executor(ABC):
    """Does many calls of one function. A context manager: leaving it ends the workers.

    Each call must stand for itself: which worker does it, and after which others, is not said. After an error, and
    after `close`, an executor can be used again.
    """

    @abstractmethod
    def outcomes(self, function: Callable[..., Any], calls: Sequence[tuple]) -> Outcomes:
        """Do calls, and tell of each when it is finished. A call that fails does not stop the others.

        Args:
            function: What is called.
            calls: The arguments of each call.

        Returns:
            A generator of pairs in the order in which calls are finished: the number of the call, an index of `calls`,
            and its result, or a `WorkerError` if it failed. Closing the generator stops what is not finished.
        """

    def map(
        self,
        function: Callable[..., Any],
        calls: Sequence[tuple],
        *,
        report: Callable[[int, Any], object] | None = None,
    ) -> list:
        """Do calls; the first that fails stops the others.

        Args:
            function: What is called, as `function(*call)`.
            calls: The arguments of each call.
            report: Called here, in this process, with the number and the result of each call when it is finished.

        Returns:
            The results, in the order of the calls.
        """
        results: list[Any] = [None] * len(calls)
        with contextlib.closing(self.outcomes(function, calls)) as outcomes:
            for number, outcome in outcomes:
                if isinstance(outcome, WorkerError):
                    raise outcome
                results[number] = outcome
                if report is not None:
                    report(number, outcome)
        return results

    @abstractmethod
    def close(self) -> None:
        """End the workers; the next call starts new ones."""

    def __enter__(self: Kind) -> Kind:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        self.close()


def check_calls(calls: Sequence[tuple]) -> None:
    """Raise unless every call is a tuple of arguments.

    Args:
        calls: The calls.
    """
    for number, call in enumerate(calls):
        if not isinstance(call, tuple):
            raise InputError(
                f"calls[{number}] is of type {type(call).__name__}, where a tuple of arguments is expected; for one "
                "argument write `(argument,)`."
            )
