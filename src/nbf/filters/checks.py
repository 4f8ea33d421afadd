"""Checks of arguments that several filters share."""

from __future__ import annotations

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
