"""Laws of executors: the order of calls is kept, results are those of a loop, and a lost worker loses nothing."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import chores
import numpy as np
import pytest

from nbf.errors import InputError, WorkerError
from nbf.executors import Executor, InProcess, Processes, RayWorkers, executor

CALLS = [(seed, 50) for seed in range(12)]
TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def pool() -> Iterator[Processes]:
    with Processes(2) as pool:
        yield pool


@pytest.fixture(params=["here", "processes"])
def each(request: pytest.FixtureRequest, pool: Processes) -> Executor:
    return InProcess() if request.param == "here" else pool


def looped() -> list[bytes]:
    return [chores.drawn(*call).tobytes() for call in CALLS]


def test_results_are_those_of_a_loop_bit_for_bit(each: Executor) -> None:
    assert [result.tobytes() for result in each.map(chores.drawn, CALLS)] == looped()
    assert each.map(chores.drawn, []) == []


def test_the_number_of_workers_does_not_matter() -> None:
    with Processes(3) as three:
        assert [result.tobytes() for result in three.map(chores.drawn, CALLS)] == looped()


def test_each_finished_call_is_reported_once_with_its_result(each: Executor) -> None:
    reported: dict[int, bytes] = {}
    each.map(chores.drawn, CALLS, report=lambda number, result: reported.update({number: result.tobytes()}))
    assert [reported[number] for number in range(len(CALLS))] == looped()


def test_workers_are_other_processes_and_are_used_again(pool: Processes) -> None:
    first = set(pool.map(chores.process, [(i,) for i in range(8)]))
    assert len(first) == 2
    assert os.getpid() not in first
    assert set(pool.map(chores.process, [(i,) for i in range(8)])) == first


def test_no_worker_is_started_before_there_is_a_call_for_it() -> None:
    with Processes(4) as pool:
        assert pool.team == []
        assert pool.map(chores.bad, [(1,)]) == [1]
        assert len(pool.team) == 1


def test_an_exception_names_the_call_and_leaves_the_pool_usable(each: Executor) -> None:
    with pytest.raises(WorkerError, match=r"calls\[2\] raised ZeroDivisionError: three is too many") as caught:
        each.map(chores.bad, [(1,), (2,), (3,)])
    assert caught.value.number == 2
    assert "in bad\n" in str(caught.value)  # the traceback
    assert each.map(chores.bad, [(1,), (2,)]) == [1, 2]


def test_a_call_that_fails_does_not_stop_the_others(each: Executor) -> None:
    outcomes = dict(each.outcomes(chores.bad, [(number,) for number in range(5)]))
    assert isinstance(outcomes.pop(3), WorkerError)
    assert outcomes == {0: 0, 1: 1, 2: 2, 4: 4}


def test_the_share_of_a_worker_that_dies_is_done_again(pool: Processes, tmp_path: Path) -> None:
    assert pool.map(chores.mortal, [(i, str(tmp_path)) for i in range(5)]) == [(i, i * i) for i in range(5)]
    assert (tmp_path / "was here").exists()


def test_a_call_whose_worker_always_dies_is_an_error_that_says_so(pool: Processes) -> None:
    with pytest.raises(WorkerError, match=r"calls\[1\] died \(killed by signal 9\)\. It was tried 2 times") as caught:
        pool.map(chores.doomed, [(i,) for i in range(4)])
    assert caught.value.number == 1
    assert pool.map(chores.doomed, [(2,), (3,)]) == [4, 9]


@pytest.mark.parametrize("retries", [0, 1])
def test_a_worker_that_hangs_is_ended(retries: int, tmp_path: Path) -> None:
    calls = [(i, str(tmp_path)) for i in range(3)]
    with Processes(2, timeout=0.5, retries=retries) as pool:
        if retries:
            assert pool.map(chores.hanging_once, calls) == [0, 1, 2]
            return
        with pytest.raises(WorkerError, match=r"calls\[1\] did not finish within 0\.5 s"):
            pool.map(chores.hanging_once, calls)
        assert pool.map(chores.hanging_once, calls) == [0, 1, 2]


def test_what_cannot_be_pickled_is_an_error_that_says_what_to_do(pool: Processes) -> None:
    with pytest.raises(InputError, match=r"cannot be sent to workers .* top level of a module"):
        pool.map(lambda number: number, [(1,)])
    with pytest.raises(WorkerError, match=r"arguments of calls\[1\] cannot be sent"):
        pool.map(chores.bad, [(1,), (lambda: 3,)])
    with pytest.raises(WorkerError, match=r"calls\[0\] raised .*pickle"):
        pool.map(chores.unsendable, [(1,)])
    assert pool.map(chores.bad, [(2,)]) == [2]


def test_a_function_that_workers_do_not_find(pool: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    def new(number: int) -> int:
        return number

    new.__module__, new.__qualname__ = "chores", "new"
    monkeypatch.setattr(chores, "new", new, raising=False)  # here alone
    for _ in range(3):  # with two workers, of which the second fails when the first has been heard
        with pytest.raises(
            WorkerError, match=r"(?s)cannot load the function: AttributeError.*module that workers can import"
        ):
            pool.map(new, [(1,), (1,)])
        assert pool.map(chores.bad, [(2,), (2,)]) == [2, 2]


def test_report_may_not_use_the_executor_that_is_at_work(pool: Processes) -> None:
    with pytest.raises(InputError, match="is at work"):
        pool.map(chores.bad, [(1,)], report=lambda *_: pool.map(chores.bad, [(2,)]))
    assert pool.map(chores.bad, [(2,)]) == [2]


@pytest.mark.usefixtures("unchecked")
def test_calls_are_tuples(each: Executor) -> None:
    with pytest.raises(InputError, match=r"calls\[1\] is of type int"):
        each.map(chores.bad, [(1,), 2])  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("arguments", "match"),
    [({"workers": 0}, "at least 1 worker"), ({"timeout": 0.0}, "must be positive"), ({"retries": -1}, "`retries`")],
)
def test_limits_that_are_none(arguments: dict[str, float], match: str) -> None:
    for kind in (Processes, RayWorkers):
        with pytest.raises(InputError, match=match):
            kind(**arguments)  # pyright: ignore[reportArgumentType]


def test_executors_by_name() -> None:
    assert isinstance(executor(None), InProcess)
    assert isinstance(executor("here"), InProcess)
    assert isinstance(many := executor("processes"), Processes)
    assert many.workers >= 1
    assert isinstance(four := executor("processes:4"), Processes)
    assert four.workers == 4
    assert isinstance(executor("ray"), RayWorkers)
    assert isinstance(far := executor("ray://there:10001"), RayWorkers)
    assert far.address == "ray://there:10001"


@pytest.mark.parametrize(
    "name", ["", "here:", "process", "processes:", "processes:0", "processes:-1", "processes:²", "ray:", "ray://",
             "ray://host", "ray://:1", "ray://host:99999", "Ray"]
)  # fmt: skip
def test_a_bad_name_lists_what_is_possible(name: str) -> None:
    with pytest.raises(InputError, match=r"here, processes, processes:N .*, ray, ray://host:port"):
        executor(name)


# --- no orphans ----------------------------------------------------------------------------------

SCRIPT = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # tests that a shell runs in the background inherit SIG_IGN
import chores
from nbf.executors import Processes
if __name__ == "__main__":
    pool = Processes(2)
    print(*set(pool.map(chores.process, [(i,) for i in range(8)])), flush=True)
    pool.map(chores.hanging, [(1,), (1,)])
"""


def interrupted(driver: subprocess.Popen[str]) -> None:
    os.killpg(driver.pid, signal.SIGINT)  # as Ctrl-C does


def killed(driver: subprocess.Popen[str]) -> None:
    driver.kill()


@pytest.mark.parametrize("end", [interrupted, killed])
def test_workers_end_with_the_driver(end: Callable[[subprocess.Popen[str]], None], tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *filter(None, sys.path)])}
    driver = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        start_new_session=True,
    )  # fmt: skip
    with driver:
        assert driver.stdout is not None
        assert driver.stderr is not None
        workers = [int(word) for word in driver.stdout.readline().split()]
        assert len(workers) == 2
        end(driver)
        said = driver.stderr.read()  # ends when every process that could write there has ended
        driver.wait(timeout=20)
    assert said.count("Traceback") == (1 if end is interrupted else 0)
    for worker in workers:
        assert gone(worker), f"process {worker} is an orphan"


def gone(process: int) -> bool:
    for _ in range(100):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def test_a_script_without_its_guard_is_told_so(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("from math import sqrt\nfrom nbf.executors import Processes\nProcesses(1).map(sqrt, [(4,)])\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=environment, timeout=60)
    assert "if __name__" in done.stderr.splitlines()[-1]


def test_the_script_of_the_page_runs(tmp_path: Path) -> None:
    page = (TESTS.parent / "docs" / "many-machines.md").read_text(encoding="utf-8")
    (code,) = [block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "__main__" in block]
    script = tmp_path / "script.py"
    script.write_text(f"{code}        print([array.shape for array in arrays])\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=environment, timeout=60)
    assert done.stdout.strip() == str([(3,)] * 8), done.stderr


def test_results_are_numpy_arrays_of_the_same_kind(pool: Processes) -> None:
    (found,) = pool.map(np.sin, [(np.arange(3, dtype=np.float32),)])
    assert found.dtype == np.float32
