"""Optional packages in the tests: with them, and in a process in which they cannot be imported."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

HIDDEN = """
import sys
from importlib.abc import MetaPathFinder

class Hidden(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {packages!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hidden())
"""


def extra(module, name):
    """An optional package. One that is there and broken is no reason to skip."""
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed; it comes with the extra [{name}]")
    return importlib.import_module(module)


def without(packages: str, code: str, *argv: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run code in a process in which some packages cannot be imported."""
    program = HIDDEN.format(packages=packages.split()) + code
    return subprocess.run([sys.executable, "-c", program, *argv], capture_output=True, text=True, cwd=folder)
