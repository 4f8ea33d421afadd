"""Checks of arguments that several filters share."""

from __future__ import annotations

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
