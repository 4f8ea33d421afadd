"""Optional packages in the tests."""

from __future__ import annotations

import importlib.util

import pytest


def extra(module, name):
    """An optional package. One that is there and broken is no reason to skip."""
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed; it comes with the extra [{name}]")
    return importlib.import_module(module)
