"""Workers of a Ray cluster: many machines as one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import warnings
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

from nbf.errors import InputError, optional_imports
from nbf.executors.pool import LostError, Pool, Worker, end_all
from nbf.executors.processes import cores
from nbf.executors.worker import READY, Hands, Message

CLIENT, LOCAL = "ray://", "local"
CONNECT_SECONDS = 5.0
"""How long a cluster's address may take to answer."""
HEALTH_SECONDS = 60.0
"""How long the head of a cluster may take to say that it is well."""
THREADS = "OMP_NUM_THREADS"
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # else Ray warns of a change to come
}
"""Settings of Ray: nothing is told to its makers."""


class RayWorkers(Pool):
    """Does calls on a Ray cluster. Needs the extra `ray`.

    Each worker is an actor, which holds one core until `close`. The machines of the cluster need the same versions of
    Python, of Ray and of whatever the function imports; no file is shared. What workers print is in Ray's logs.

    Args:
        address: `ray://host:port` of a Ray Client server, or `host:port` of the head of a cluster that this machine
            belongs to, or `auto` for the one that runs on this machine. None: what the variable RAY_ADDRESS says, else
            a cluster of this machine alone, which ends with this executor. If this process has joined a cluster
            already, that is used.
        workers: How many workers; None for one for each core of the cluster.
        timeout: Seconds that a call may take before its worker is ended; None for no limit.
        retries: How many times a call is done again whose worker died or took too long.
    """

    hint = "Each worker needs a free core of the cluster, which other executors may hold: see `ray status`."

    def __init__(
        self,
        address: str | None = None,
        workers: int | None = None,
        *,
        timeout: float | None = None,
        retries: int = 1,
    ) -> None:
        super().__init__(1 if workers is None else workers, timeout, retries)
        self.address, self._wanted = address, workers
        self._session = _Session()
        weakref.finalize(self, _end, self.team, self._session)  # also when the interpreter exits

    def start(self) -> Worker:
        ray = self._session.joined(self.address, self._wanted)
        # How many there may be is only known now; whoever starts workers asks again.
        self.workers = self._wanted or max(int(ray.cluster_resources().get("CPU", 1)), 1)
        return _Actor(ray)

    def wait(self, workers: Sequence[Worker], seconds: float | None) -> Iterable[Worker]:
        ray = _ray()
        of = {worker.answer: worker for worker in workers if isinstance(worker, _Actor)}
        ready, _ = ray.wait(list(of), num_returns=1, timeout=seconds)
        return [of[answer] for answer in ready]

    def pack(self, value: Any) -> bytes:
        return _ray().cloudpickle.dumps(value)

    def close(self) -> None:
        """End the workers, and the cluster if it was started here; the next call starts new ones."""
        _end(self.team, self._session)


class _Actor(Worker):
    """An actor, and its answer to what was asked last."""

    def __init__(self, ray: Any) -> None:
        super().__init__()
        self.ray = ray
        kind = ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(RemoteHands)
        self.actor = kind.remote(os.environ.get(THREADS), sys.path)
        self.answer = self.actor.ready.remote()

    def send(self, word: str, payload: bytes) -> None:
        self.answer = getattr(self.actor, word).remote(payload)

    def receive(self) -> Message:
        try:
            return self.ray.get(self.answer, timeout=0)
        except self.ray.exceptions.RayError as error:
            told = str(error).strip().splitlines()
            raise LostError(f"died ({told[0].rstrip('.:') if told else type(error).__name__})") from None

    def dismiss(self) -> None:
        if self.ray.is_initialized():
            self.ray.kill(self.actor, no_restart=True)

    def end(self) -> None:
        """Nothing more: Ray sees to it."""


class RemoteHands(Hands):
    """What an actor does.

    Args:
        threads: The variable `THREADS` of the driver. Ray sets it to 1 in its workers, and the last bits of a matrix
            product may depend on it; NumPy reads it when it is first imported.
        path: Where the driver finds modules. Folders that this machine does not have are passed over.
    """

    def __init__(self, threads: str | None, path: list[str]) -> None:
        super().__init__()
        sys.path += [folder for folder in path if folder not in sys.path]
        os.environ.pop(THREADS, None)
        if threads is not None:
            os.environ[THREADS] = threads

    def ready(self) -> Message:
        """Say that the actor is there.

        Returns:
            `READY`.
        """
        return READY, None


class _Session:
    """The connection to a cluster, if it was made here."""

    def __init__(self) -> None:
        self.ours = False

    def joined(self, address: str | None, workers: int | None) -> Any:
        """Ray, connected."""
        ray = _ray()
        if ray.is_initialized():
            return ray
        address = address or os.environ.get("RAY_ADDRESS") or LOCAL
        _check_reachable(address)
        for name, value in QUIET.items():
            os.environ.setdefault(name, value)
        alone = {"num_cpus": workers or cores(), "include_dashboard": False} if address == LOCAL else {}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of what the error says as well
                ray.init(address, logging_level="error", log_to_driver=False, **alone)
        except Exception as error:
            raise _unreachable(address, error) from error
        self.ours = True
        return ray

    def leave(self) -> None:
        if self.ours:
            _ray().shutdown()
            self.ours = False


def _ray() -> Any:
    with optional_imports("nbf.executors.RayWorkers"):
        import ray
    return ray


def _check_reachable(address: str) -> None:
    """Raise unless something listens at an address: Ray itself would try for a long time."""
    host, _, port = address.removeprefix(CLIENT).rpartition(":")
    if address in (LOCAL, "auto"):
        return
    if not host or not port.isdigit():
        raise InputError(f"{address!r} is no address of a Ray cluster; write ray://host:port, or host:port.")
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
        if not address.startswith(CLIENT):  # whose client gives up in time by itself
            _check_health(address)
    except (OSError, OverflowError, subprocess.TimeoutExpired) as error:
        raise _unreachable(address, error) from None


def _check_health(address: str) -> None:
    """Raise unless a head of a cluster answers. In a process of its own: nothing else ends Ray's attempts."""
    command = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HEALTH_SECONDS)
    if done.returncode != 0:
        told = done.stderr.strip().splitlines()
        raise ConnectionError(told[-1] if told else "it is not healthy")


def _unreachable(address: str, error: BaseException) -> InputError:
    told = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
    return InputError(
        f"The Ray cluster {address!r} cannot be reached ({told}): check the address, that the cluster runs "
        "(`ray start --head` starts one) and, if it asks for a token, the variables RAY_AUTH_MODE and RAY_AUTH_TOKEN."
    )


def _end(team: list[Worker], session: _Session) -> None:
    end_all(team)
    session.leave()
