"""A job in a worker, of this machine or of another: the worker trains and measures, the driver records.

Never imports jax before a job does.
"""

from __future__ import annotations

import contextlib
import io
import socket
from dataclasses import dataclass
from pathlib import Path

from nbf.errors import InputError, WorkerError
from nbf_paper.experiments.job import Job, Measured
from nbf_paper.records.provenance import CodeVersion, code_version


@dataclass(frozen=True)
class Mistake:
    """A job that cannot be done, and why; the user is to mend it."""

    sentence: str


@dataclass(frozen=True)
class Sent:
    """What a worker sends to the driver."""

    found: Measured | Mistake
    code: CodeVersion
    """What the worker ran."""
    host: str


class _Silent:
    """Progress that nobody sees: the driver says when a job is finished."""

    def describe(self, text: str) -> None:
        """Nothing."""

    def advance(self, done: int) -> None:
        """Nothing."""


_LAST: list[str] = []
"""The experiment of the job before, if there was one in this process."""


def work(job: Job, results: Path, runs: Path, quick: bool) -> Sent:
    """Do a job in a worker; `results` is only read. With `quick`, compile with few optimizations, as a driver does."""
    import jax

    code = code_version()
    jax.config.update("jax_disable_most_optimizations", quick)
    if _LAST and _LAST[0] != results.name:
        jax.clear_caches()  # the programs of all experiments together need too much memory
    _LAST[:] = [results.name]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            found: Measured | Mistake = job.work(results, runs, _Silent())
        except (InputError, FloatingPointError) as error:
            found = Mistake(str(error))
    return Sent(found, code, socket.gethostname())


def received(sent: Sent | WorkerError) -> Measured:
    """What a worker measured; raises `InputError` if it could not, or ran other code than this process."""
    if isinstance(sent, WorkerError):
        raise sent
    if isinstance(sent.found, Mistake):
        raise InputError(sent.found.sentence)
    here, there = code_version(), sent.code
    if here != there:
        raise InputError(
            f"The worker on {sent.host} ran other code (commit {there.commit}, clean: {there.clean}) than this process "
            f"that is to record it (commit {here.commit}, clean: {here.clean}). Check out one commit on all machines."
        )
    return sent.found
