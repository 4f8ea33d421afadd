"""The laws of executors on a real Ray cluster: two workers on this machine, one of which is killed in the middle."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import chores
import pytest
from extras import extra

from nbf.errors import InputError, MissingExtraError, WorkerError
from nbf.executors import InProcess, RayWorkers

CALLS = [(seed, 50) for seed in range(12)]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@pytest.mark.parametrize("address", ["ray://127.0.0.1:{}", "127.0.0.1:{}", "ray://no-such-host.invalid:{}"])
def test_a_cluster_that_cannot_be_reached_is_one_sentence(address: str) -> None:
    extra("ray", "ray")
    begin = time.monotonic()
    with pytest.raises(InputError, match=r"^The Ray cluster .* cannot be reached .*\.$") as caught:
        RayWorkers(address.format(free_port())).map(chores.bad, [(1,)])
    assert "\n" not in str(caught.value)
    assert time.monotonic() - begin < 30


@pytest.mark.parametrize("address", ["somewhere", "ray://somewhere", "somewhere:http"])
def test_what_is_no_address(address: str) -> None:
    extra("ray", "ray")
    with pytest.raises(InputError, match=r"is no address of a Ray cluster; write ray://host:port"):
        RayWorkers(address).map(chores.bad, [(1,)])


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"neural-bayesian-filtering\[ray\]"):
        RayWorkers().map(chores.bad, [(1,)])


# --- on a cluster, which this process has joined from here on -------------------------------------


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayWorkers]:
    extra("ray", "ray")
    with RayWorkers("local", workers=2) as cluster:
        yield cluster


@pytest.mark.slow
def test_results_are_those_of_this_process_bit_for_bit(cluster: RayWorkers) -> None:
    here, there = (one.map(chores.drawn, CALLS) for one in (InProcess(), cluster))
    assert [result.tobytes() for result in there] == [result.tobytes() for result in here]


@pytest.mark.slow
def test_a_worker_that_is_killed_in_the_middle_loses_nothing(cluster: RayWorkers) -> None:
    """Killed from outside, as by a system that is out of memory, while both workers are in a call."""
    pids = set(cluster.map(chores.process, [(i,) for i in range(8)]))
    assert len(pids) == 2
    assert os.getpid() not in pids
    victim = min(pids)
    threading.Timer(0.3, os.kill, (victim, signal.SIGKILL)).start()
    found = cluster.map(chores.slow_square, [(i,) for i in range(12)])  # 0.2 s each: the kill falls into a call
    assert [square for square, _ in found] == [i * i for i in range(12)]
    seen, end = set[int](), time.monotonic() + 60
    while not seen - pids and time.monotonic() < end:  # a new worker takes a while to start on a busy machine
        seen = set(cluster.map(chores.process, [(i,) for i in range(8)]))
        assert victim not in seen
    assert seen - pids


@pytest.mark.slow
def test_errors_name_the_call_and_leave_the_cluster_usable(cluster: RayWorkers) -> None:
    with pytest.raises(WorkerError, match=r"calls\[2\] raised ZeroDivisionError: three is too many") as caught:
        cluster.map(chores.bad, [(1,), (2,), (3,)])
    assert "in bad\n" in str(caught.value)
    with pytest.raises(WorkerError, match=r"(?s)calls\[1\] died .*It was tried 2 times"):
        cluster.map(chores.doomed, [(i,) for i in range(3)])
    with pytest.raises(WorkerError, match=r"arguments of calls\[0\] cannot be sent"):
        cluster.map(chores.bad, [(threading.Lock(),)])
    with pytest.raises(InputError, match="cannot be sent to workers"):
        cluster.map(threading.Lock().acquire, [()])
    assert cluster.map(chores.bad, [(1,), (2,)]) == [1, 2]


@pytest.mark.slow
def test_a_worker_that_hangs_is_ended(cluster: RayWorkers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "timeout", 1.0)
    assert cluster.map(chores.hanging_once, [(i, str(tmp_path)) for i in range(3)]) == [0, 1, 2]
    with pytest.raises(WorkerError, match=r"calls\[1\] did not finish within 1 s.*tried 2 times"):
        cluster.map(chores.hanging, [(0,), (1,)])
    assert cluster.map(chores.hanging, [(0,), (2,)]) == [0, 2]
