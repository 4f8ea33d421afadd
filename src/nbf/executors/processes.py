"""Worker processes of this machine."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import weakref
from collections.abc import Iterable, Iterator, Sequence
from multiprocessing.connection import Connection, wait

from nbf.executors.pool import LostError, Pool, Worker, end_all
from nbf.executors.worker import Message, serve

GRACE = 5.0
"""Seconds that a process has to end before it is killed: what it does is interrupted, and may save its work."""


class Processes(Pool):
    """Does calls in worker processes of this machine.

    Processes are spawned, not forked: a fork of a process that has used JAX may hang. So a function and its arguments
    must be picklable, and a script must use executors below `if __name__ == "__main__":`. Workers are started when
    they are first needed, are used again, and end with this process in any case.

    Args:
        workers: How many processes; None for one for each core that this process may use.
        timeout: Seconds that a call may take before its worker is ended; None for no limit.
        retries: How many times a call is done again whose worker died or took too long.
    """

    hint = (
        'In a script, use an executor only below `if __name__ == "__main__":`; otherwise see what the worker printed.'
    )

    def __init__(self, workers: int | None = None, *, timeout: float | None = None, retries: int = 1) -> None:
        super().__init__(cores() if workers is None else workers, timeout, retries)
        weakref.finalize(self, end_all, self.team)  # also when the interpreter exits

    def start(self) -> Worker:
        return _Process()

    def wait(self, workers: Sequence[Worker], seconds: float | None) -> Iterable[Worker]:
        of = {}
        for worker in workers:
            assert isinstance(worker, _Process)
            of |= {worker.connection: worker, worker.process.sentinel: worker}
        return list(dict.fromkeys(of[ready] for ready in wait(list(of), seconds)))


class _Process(Worker):
    """A process, and the pipe to it."""

    def __init__(self) -> None:
        super().__init__()
        context = multiprocessing.get_context("spawn")
        self.connection: Connection
        self.connection, other = context.Pipe()
        self.process = context.Process(target=serve, args=(other,), daemon=True, name="nbf worker")
        with _without_interrupts():
            self.process.start()
        other.close()

    def send(self, word: str, payload: bytes) -> None:
        try:
            self.connection.send((word, payload))
        except OSError:
            raise LostError(self._death()) from None

    def receive(self) -> Message:
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            raise LostError(self._death()) from None

    def _death(self) -> str:
        self.process.join(GRACE)
        code = self.process.exitcode
        if code is None:
            return "closed its pipe"
        return f"died (killed by signal {-code})" if code < 0 else f"died (exit code {code})"

    def dismiss(self) -> None:
        self.connection.close()
        self.process.terminate()

    def end(self) -> None:
        self.process.join(GRACE)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.process.close()


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Start processes that Ctrl-C does not reach, not even while they start: the driver ends them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def cores() -> int:
    """Count the cores that this process may use.

    Returns:
        The number.
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
