"""What all tests share: one fixed seed, printed in every run, and a named stream of it for each test."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from tolerances import SEED

os.environ.setdefault("MPLBACKEND", "Agg")
# Most of the tests' time is compilation, of programs that run once: compile them quickly instead of well.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true --xla_cpu_use_fusion_emitters=false "
    "--xla_cpu_parallel_codegen_split_count=1",
)

# No deadline, because the first example of a test also compiles it.
hypothesis.settings.register_profile("fixed", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("fixed")

HEADER = f"root seed of the tests: {SEED}"


def pytest_report_header() -> str:
    return HEADER


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not terminalreporter.showheader:
        terminalreporter.write_line(HEADER)


LONGEST = (
    "filters/test_neural_filter.py", "docs/test_tutorial.py", "filters/test_surrogate.py", "fitting/test_trust.py",
    "fitting/test_compare.py", "fitting/test_fitting.py", "docs/test_readme.py", "environments/test_goofspiel.py",
    "experiments/test_selfplay.py", "tests/cli/test_cli.py", "training/test_training.py", "training/test_resume.py",
    "filters/test_particle_filter.py", "filters/test_regeneration.py", "filters/test_calls.py",
    "experiments/test_shipped.py", "filters/test_asking.py", "adapters/test_oh_hell.py", "experiments/test_cards.py",
    "zoo/test_zoo.py", "executors/test_processes.py", "filters/test_interpolating.py",
    "environments/test_hidden_hands.py", "experiments/test_cards_large.py", "experiments/test_cards_learned.py",
    "experiments/test_card_search.py",
)  # fmt: skip
"""Files that take ten seconds or more: they are begun first, so that at the end no worker waits long for another."""


def pytest_configure(config: pytest.Config) -> None:
    """xdist would begin with the files of most tests, and end with those of one long test."""
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


EVERY = 5
"""Of a test with the mark `sampled` one in so many cases runs by default."""


@pytest.hookimpl(tryfirst=True)  # before `-m` looks at the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    cases: dict[str, int] = {}
    for item in items:
        if item.get_closest_marker("sampled"):
            name = item.nodeid.partition("[")[0]
            if cases.setdefault(name, 0) % EVERY:
                item.add_marker(pytest.mark.slow)
            cases[name] += 1
    items.sort(key=lambda item: not item.path.as_posix().endswith(LONGEST))


MOST_MEMORY = {"file": 950 * 2**20, "test": 1100 * 2**20}
"""Bytes of a worker beyond which compiled programs are let go after a file, and after a test: thousands of them take
gigabytes. Letting go takes a second, and what is common to files is then compiled again."""


def pytest_collection_finish() -> None:
    """One MLIR context for all lowerings: JAX makes a new one for each, a fifth of the time of a small program."""
    mlir = sys.modules.get("jax._src.interpreters.mlir")
    make = getattr(mlir, "make_ir_context", None)  # JAX's own, and therefore perhaps gone one day
    if make is not None and not hasattr(make, "cache_clear"):
        vars(mlir)["make_ir_context"] = functools.cache(make)


def _let_go() -> None:
    """Free compiled programs, and the context that they were lowered in."""
    import jax

    jax.clear_caches()
    getattr(sys.modules["jax._src.interpreters.mlir"].make_ir_context, "cache_clear", lambda: None)()
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # glibc's: give what is free back to the system
        ctypes.CDLL(None).malloc_trim(0)


def _resident() -> int:
    """Bytes of memory that this process has; 0 where the system does not tell in this way."""
    told = Path("/proc/self/statm")
    return int(told.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if told.exists() else 0


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Keep a worker small."""
    if nextitem is not None and _resident() > MOST_MEMORY["test" if nextitem.path == item.path else "file"]:
        _let_go()


@pytest.fixture
def unchecked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In an empty folder and as a user has it: without the type checks, which would find a file's wrong types first."""
    import jaxtyping

    monkeypatch.chdir(tmp_path)
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="module")
def untyped() -> Iterator[None]:
    """Without the type checks, for a file that reads all committed records: half of its time were checks of a million
    calls. What is called with other types is found where a few records are read."""
    import jaxtyping

    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory):
    """A headless Chromium with an empty profile and one tab: a `browser.Browser`. Skips where there is none."""
    from browser import NAMES, browsing, found  # for POSIX alone

    program = found()
    if program is None:
        pytest.skip(f"there is none of {', '.join(NAMES)}; .ci/install-browser installs one")
    with browsing(program, tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def key(request: pytest.FixtureRequest):
    """The key of this test (and of these parameters): the stream of the root seed that bears its name."""
    from nbf.prng import stream

    return stream(SEED, request.node.name)
