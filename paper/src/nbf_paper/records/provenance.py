"""Which code made a record: the commit that both packages were imported from, and whether they were as committed.

It is looked for where the packages lie, never in the folder of the records or in the one that a command was typed in:
git obeys the configuration of the repository that it is run in, so it is run in our own alone.
"""

from __future__ import annotations

import functools
import inspect
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from nbf.errors import InputError

PACKAGES = (Path(__file__).resolve().parents[1], Path(inspect.getfile(InputError)).resolve().parent)
"""The folders of `nbf_paper` and `nbf`."""
SAFE = ("-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}", "-c", "safe.bareRepository=explicit")
"""Options of git: no program that a configuration names is run."""
TIMEOUT = 10.0
"""Seconds."""
TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
"""Of dates in UTC: `2026-01-31T12:00:00Z`. As text they sort by time."""


@dataclass(frozen=True)
class CodeVersion:
    """The code that ran."""

    commit: str | None
    """Commit of the checkout; None where the packages are in none."""
    clean: bool | None
    """Whether all source files were as committed; None where that is unknown."""


@functools.cache
def code_version(packages: Sequence[Path] = PACKAGES) -> CodeVersion:
    """The commit of the checkout that the first package is in, and whether all packages are as committed there.

    Found once in a process, on the first call: make it before long work, during which files may change.
    """
    commit, root = (_git(packages[0], "rev-parse", *words) for words in (["HEAD"], ["--show-toplevel"]))
    # A package that was installed into some folder of another project's checkout is none of its files.
    if not commit or not root or not _tracked(packages[0]):
        return CodeVersion(None, None)
    states = [_changes(package, root) for package in packages]
    return CodeVersion(commit, None if None in states else states == [""] * len(states))


def _tracked(package: Path) -> bool:
    return bool(_git(package, "ls-files", "--error-unmatch", "--", "__init__.py"))


def _changes(package: Path, root: str) -> str | None:
    """What differs from the commit of the checkout at `root`; empty if nothing does, None if that is unknown."""
    if not _tracked(package) or _git(package, "rev-parse", "--show-toplevel") != root:
        return "of another checkout, or of none"
    return _git(package, "status", "--porcelain", "--untracked-files=all", "--", ".")


def _git(folder: Path, *words: str) -> str | None:
    """What git prints; None if it fails, or if there is no git."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
    command = ["git", "-C", str(folder), *SAFE, *words]
    try:
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def utc_now() -> str:
    """The time, in `TIME_FORMAT`."""
    return datetime.now(UTC).strftime(TIME_FORMAT)
