"""Executors by name, for command lines."""

from __future__ import annotations

from nbf.errors import InputError
from nbf.executors.contract import Executor
from nbf.executors.in_process import InProcess
from nbf.executors.processes import Processes
from nbf.executors.ray_workers import RayWorkers

NAMES = "here, processes, processes:N (N of them), ray, ray://host:port"
"""What `executor` takes, for a help text."""


def executor(on: str | None) -> Executor:
    """Make an executor by its name.

    Args:
        on: `here` or None: this process. `processes`: one worker process for each core; `processes:4`: four. `ray`: the
            Ray cluster that the variable RAY_ADDRESS names, else one of this machine alone. `ray://host:port`: the
            cluster whose Ray Client server listens there.

    Returns:
        The executor. No worker is started before it is needed.
    """
    kind, _, rest = (on or "here").partition(":")
    if on in (None, "here"):
        return InProcess()
    if kind == "processes" and on == "processes":
        return Processes()
    if kind == "processes" and rest.isascii() and rest.isdigit() and int(rest) > 0:
        return Processes(int(rest))
    if on == "ray":
        return RayWorkers()
    if kind == "ray" and rest.startswith("//") and _is_place(rest[2:]):
        return RayWorkers(on)
    raise InputError(f"There is no executor {on!r}; possible are: {NAMES}.")


def _is_place(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and port.isascii() and port.isdigit() and 0 < int(port) < 2**16
