"""Checks of settings, which come from a page and may be anything."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from nbf.errors import InputError


def known(settings: Any, defaults: dict[str, Any]) -> dict[str, Any]:
    """Take the settings that a problem has.

    Args:
        settings: A mapping of some of them.
        defaults: All of them, with the values of those that are not named.

    Returns:
        All of them.
    """
    if not isinstance(settings, dict):
        raise InputError(f"Settings are an object of names and values; got {settings!r:.60}.")
    unknown = [str(name)[:20] for name in settings if name not in defaults]
    if unknown:
        raise InputError(f"There is no setting {unknown[0]!r}; the settings are {', '.join(defaults)}.")
    return defaults | settings


def number(name: str, value: Any, low: float, high: float) -> float:
    """Take a real number of a range.

    Args:
        name: Of the setting.
        value: What was given.
        low: The least.
        high: The greatest.

    Returns:
        The number.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InputError(f"{name} is a number from {low:g} to {high:g}; got {value!r:.60}.")
    if not low <= value <= high:
        raise InputError(f"{name} is from {low:g} to {high:g}; got {value:g}.")
    return float(value)


def choice(name: str, value: Any, choices: Sequence[Any]) -> Any:
    """Take one of a few values.

    Args:
        name: Of the setting.
        value: What was given.
        choices: What may be given.

    Returns:
        The value.
    """
    if isinstance(value, bool) or not isinstance(value, str | int) or value not in choices:
        raise InputError(f"{name} is one of {', '.join(map(str, choices))}; got {value!r:.60}.")
    return value


def point(name: str, value: Any, low: float, high: float) -> list[float]:
    """Take two numbers of a range.

    Args:
        name: Of the setting.
        value: What was given.
        low: The least.
        high: The greatest.

    Returns:
        The numbers.
    """
    if not isinstance(value, list) or len(value) != 2:
        raise InputError(f"{name} is two numbers from {low:g} to {high:g}; got {value!r:.60}.")
    return [number(name, each, low, high) for each in value]
