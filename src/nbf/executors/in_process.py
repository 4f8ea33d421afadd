"""The executor that needs nobody else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nbf.errors import WorkerError
from nbf.executors.contract import Executor, Outcomes, check_calls
from nbf.executors.worker import told


class InProcess(Executor):
    """Does calls in this process, one after the other."""

    def outcomes(self, function: Callable[..., Any], calls: Sequence[tuple]) -> Outcomes:
        check_calls(calls)
        for number, call in enumerate(calls):
            try:
                outcome = function(*call)
            except Exception as error:
                outcome = WorkerError(f"calls[{number}] raised {told(error)}", number)
                outcome.__cause__ = error
            yield number, outcome

    def close(self) -> None:
        """Do nothing: there are no workers."""
