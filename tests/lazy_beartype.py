"""Type checks that are made ready when a function is first called: most of thousands never are in a worker."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from beartype import beartype


def checked(function: Callable) -> Callable:
    """A function that checks its arguments by beartype."""
    ready: Callable | None = None

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        nonlocal ready
        if ready is None:
            ready = beartype(function)
        return ready(*arguments, **options)

    return call
