"""Checks of arguments that several filters share."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from nbf.contracts import BeliefModel, Environment
from nbf.errors import InputError


def check_space(model: BeliefModel, environment: Environment) -> None:
    """Raise unless a model is for the states of an environment.

    Args:
        model: A belief model.
        environment: Whose states are to be embedded.
    """
    mine, theirs = model.space.signature, environment.space.signature
    if mine != theirs:
        raise InputError(
            f"This model was trained for states of {mine}, the environment has states of {theirs}: "
            "load a model that was trained for it, or train one."
        )


def check_counts(who: str, *, least: int = 1, **counts: object) -> None:
    """Raise unless options are whole numbers that are large enough.

    Args:
        who: The filter, as the message's subject.
        least: The smallest number that makes sense.
        **counts: The options by name.
    """
    for name, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, int | np.integer):
            raise InputError(f"{who} needs a whole number as {name}; got {name}={count!r}. Pass an int, such as 32.")
        if count < least:
            raise InputError(f"{who} needs {name} of at least {least}; got {count}.")


def check_numbers(who: str, *, least: float = 0.0, most: float = np.inf, above: bool = False, **numbers: Any) -> None:
    """Raise unless options are finite numbers in a range. Arrays, whose numbers may not be known yet, are not checked.

    Args:
        who: What has the options, as the message's subject.
        least: The smallest number that makes sense.
        most: The largest one.
        above: Whether `least` itself makes no sense.
        **numbers: The options by name.
    """
    for name, number in numbers.items():
        if isinstance(number, jax.Array | np.ndarray):
            continue
        known = isinstance(number, int | float | np.number) and not isinstance(number, bool)
        value = float(number) if known else np.nan
        if not ((value > least if above else value >= least) and value <= most and value < np.inf):
            start = f"above {least:g}" if above else f"of at least {least:g}"
            wanted = start if most == np.inf else f"between {least:g} and {most:g}"
            raise InputError(f"{who} needs a number {wanted} as {name}; got {name}={number!r}. Pass such a number.")


def check_unused(who: str, why: str, **options: tuple[object, object]) -> None:
    """Raise if an option was given that would do nothing.

    Args:
        who: What has the options, as the message's subject.
        why: When these options do nothing, as the end of a sentence.
        **options: By name, the value that was given and the default one. An array, whose numbers may not be known yet,
            is taken for the default, and so is a number that rounding has moved away from it.
    """
    for name, (given, usual) in options.items():
        if isinstance(given, jax.Array | np.ndarray) or given == usual:
            continue
        if not (isinstance(given, float) and isinstance(usual, float) and np.isclose(given, usual)):
            raise InputError(f"{name} of {who} does nothing {why}; got {name}={given!r}. Leave {name} out.")
