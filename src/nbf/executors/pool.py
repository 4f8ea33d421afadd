"""Who does which call, and what happens when a worker is lost. The same for processes and for Ray.

A worker is started when there is a call for it, and kept for the next ones. It does one call at a time. If it dies, or
takes longer than it may, it is given up and its call is done again by a new one.
"""

from __future__ import annotations

import pickle
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from nbf.errors import InputError, MissingExtraError, WorkerError
from nbf.executors.contract import Executor, Outcomes, check_calls
from nbf.executors.worker import DONE, LOADED, RAISED, READY, Message

STARTING, IDLE, LOADING, BUSY = "starting", "idle", "loading", "busy"
START_SECONDS = 120.0
"""How long a worker may take to start and to load a function, if no other is at work meanwhile."""
IMPORTABLE = "Define it at the top level of a module that workers can import, and pass what else it needs as arguments."


class LostError(Exception):
    """A worker is gone; the message says how."""


class Worker(ABC):
    """A worker as the driver sees it."""

    def __init__(self) -> None:
        self.state, self.since = STARTING, time.monotonic()
        self.function: bytes | None = None
        """What it has loaded, or is loading."""
        self.number = -1
        """The call that it does, or did last."""

    def turn(self, state: str) -> None:
        """Note what the worker does from now on.

        Args:
            state: What.
        """
        self.state, self.since = state, time.monotonic()

    @abstractmethod
    def send(self, word: str, payload: bytes) -> None:
        """Ask for something; raises `LostError` if the worker is gone.

        Args:
            word: `load` or `call`, methods of `nbf.executors.worker.Hands`.
            payload: Their argument.
        """

    @abstractmethod
    def receive(self) -> Message:
        """Take what the worker has answered; raises `LostError` if it is gone.

        Returns:
            The answer.
        """

    @abstractmethod
    def dismiss(self) -> None:
        """Ask the worker to end, whatever it is doing, without waiting for it."""

    @abstractmethod
    def end(self) -> None:
        """End the worker that was dismissed; returns when it is gone."""


class Pool(Executor):
    """An executor with workers. Subclasses are final; they say how a worker is started and heard.

    Calls of `map` from several threads wait for each other.
    """

    hint: str
    """What to do if no worker can be started."""

    def __init__(self, workers: int, timeout: float | None, retries: int) -> None:
        """Keep the limits.

        Args:
            workers: How many workers, at most.
            timeout: Seconds that a call may take; None for no limit.
            retries: How many times a call is done again whose worker was lost.
        """
        _check_limits(workers, timeout, retries)
        self.workers, self.timeout, self.retries = workers, timeout, retries
        self.team: list[Worker] = []
        self._lock = threading.RLock()
        self._at_work = False

    @abstractmethod
    def start(self) -> Worker:
        """Start a worker.

        Returns:
            The worker, which says `READY` when it is.
        """

    @abstractmethod
    def wait(self, workers: Sequence[Worker], seconds: float | None) -> Iterable[Worker]:
        """Wait until workers have answered, or are gone.

        Args:
            workers: Those that are waited for.
            seconds: At most so long; None for no limit.

        Returns:
            Those that can `receive`.
        """

    def pack(self, value: Any) -> bytes:
        """Pickle what is sent to a worker.

        Args:
            value: A function or a tuple of arguments.

        Returns:
            The bytes.
        """
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)

    def outcomes(self, function: Callable[..., Any], calls: Sequence[tuple]) -> Outcomes:
        check_calls(calls)
        packed = self._packed(function)
        with self._lock:
            if self._at_work:
                raise InputError(
                    "This executor is at work: `report` must not use it for other calls. Make another one."
                )
            self._at_work = True
            try:
                yield from _Round(self, packed, calls).outcomes()
            finally:
                self._at_work = False
                self.give_up([worker for worker in self.team if worker.state == BUSY])

    def _packed(self, function: Callable[..., Any]) -> bytes:
        try:
            return self.pack(function)
        except MissingExtraError:
            raise
        except Exception as error:
            raise InputError(f"{function!r} cannot be sent to workers ({_first_line(error)}). {IMPORTABLE}") from error

    def give_up(self, workers: Sequence[Worker]) -> None:
        """End workers, and forget them.

        Args:
            workers: Which.
        """
        self.team[:] = [worker for worker in self.team if worker not in workers]
        end_all(list(workers))

    def close(self) -> None:
        """End the workers; the next call starts new ones."""
        end_all(self.team)


def end_all(workers: list[Worker]) -> None:
    """End workers together, and empty the list.

    Args:
        workers: The list.
    """
    for worker in workers:
        worker.dismiss()
    while workers:
        workers.pop().end()


class _Round:
    """The calls of one `map`: what is to do, what was lost, what comes out."""

    def __init__(self, pool: Pool, function: bytes, calls: Sequence[tuple]) -> None:
        self.pool, self.function, self.calls = pool, function, calls
        self.todo = deque(range(len(calls)))
        self.left = len(calls)
        self.losses = [0] * len(calls)
        self.failed_starts = 0

    def outcomes(self) -> Outcomes:
        while self.left:
            while len(self.pool.team) < min(self.pool.workers, self.left):
                self.pool.team.append(self.pool.start())
            yield from self._counted(self._assigned())
            yield from self._counted(self._heard())
            yield from self._counted(self._overdue())

    def _counted(self, found: Outcomes) -> Outcomes:
        for number, outcome in found:
            self.left -= 1
            yield number, outcome

    def _assigned(self) -> Outcomes:
        """Give every idle worker something to do."""
        for worker in [worker for worker in self.pool.team if worker.state == IDLE]:
            try:
                if self.todo and worker.function != self.function:
                    worker.turn(LOADING)
                    worker.function = self.function
                    worker.send("load", self.function)
                elif self.todo:
                    yield from self._begun(worker, self.todo.popleft())
            except LostError as lost:
                yield from self._lost(worker, str(lost))

    def _begun(self, worker: Worker, number: int) -> Outcomes:
        try:
            arguments = self.pool.pack(self.calls[number])
        except Exception as error:
            told = f"The arguments of calls[{number}] cannot be sent to workers ({_first_line(error)})."
            wanted = "Pass plain values, NumPy arrays, or objects of classes that workers can import."
            yield number, WorkerError(f"{told} {wanted}", number)
            return
        worker.number = number
        worker.turn(BUSY)
        worker.send("call", arguments)

    def _heard(self) -> Outcomes:
        waited = [worker for worker in self.pool.team if worker.state != IDLE]
        for worker in self.pool.wait(waited, self._patience()) if waited else ():
            try:
                word, payload = worker.receive()
            except LostError as lost:
                yield from self._lost(worker, str(lost))
                continue
            was = worker.state
            worker.turn(IDLE)
            if word in (READY, LOADED):
                self.failed_starts = 0 if word == LOADED else self.failed_starts
            elif was == LOADING:
                stale, worker.function = worker.function != self.function, None
                if stale:  # what an earlier call of `map` gave up
                    continue
                raise WorkerError(f"A worker cannot load the function: {payload}\n\n{IMPORTABLE}")
            else:
                yield worker.number, self._outcome(worker.number, word, payload)

    def _outcome(self, number: int, word: str, payload: Any) -> Any:
        if word == RAISED:
            return WorkerError(f"calls[{number}] raised {payload}", number)
        assert word == DONE
        try:
            return pickle.loads(payload)
        except Exception as error:
            return WorkerError(f"The result of calls[{number}] cannot be read here: {_first_line(error)}.", number)

    def _overdue(self) -> Outcomes:
        """Give up workers that take too long."""
        now, limit = time.monotonic(), self.pool.timeout
        for worker in [worker for worker in self.pool.team if worker.state == BUSY]:
            if limit is not None and now - worker.since > limit:
                yield from self._lost(
                    worker, f"did not finish within {limit:g} s, the time limit of a call, and was ended"
                )
        starting = [worker for worker in self.pool.team if worker.state in (STARTING, LOADING)]
        if starting and len(starting) == len(self.pool.team):
            first = min(starting, key=lambda worker: worker.since)
            if now - first.since > START_SECONDS:
                yield from self._lost(first, f"was not ready within {START_SECONDS:g} s, and was ended")

    def _patience(self) -> float | None:
        """Seconds until the next worker may be overdue; None if none ever is."""
        limits = {BUSY: self.pool.timeout, STARTING: START_SECONDS, LOADING: START_SECONDS}
        ends = [worker.since + limit for worker in self.pool.team if (limit := limits.get(worker.state)) is not None]
        return max(min(ends) - time.monotonic(), 0.0) + 1e-3 if ends else None

    def _lost(self, worker: Worker, why: str) -> Outcomes:
        """Give up a worker; its call is to do again, or has failed."""
        self.pool.give_up([worker])
        if worker.state != BUSY:
            self.failed_starts += 1
            if self.failed_starts > self.pool.retries:
                raise WorkerError(f"A worker {why} before it could do anything. {self.pool.hint}")
            return
        number = worker.number
        self.losses[number] += 1
        if self.losses[number] <= self.pool.retries:
            self.todo.appendleft(number)
            return
        times = self.losses[number]
        tried = "" if times == 1 else f" It was tried {times} times."
        yield number, WorkerError(f"The worker of calls[{number}] {why}.{tried}", number)


def _check_limits(workers: int, timeout: float | None, retries: int) -> None:
    if workers < 1:
        raise InputError(f"An executor needs at least 1 worker; got {workers}.")
    if timeout is not None and not timeout > 0:
        raise InputError(f"The time limit of a call must be positive, in seconds, or None for none; got {timeout}.")
    if retries < 0:
        raise InputError(f"`retries` must be at least 0; got {retries}.")


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
