"""Loading and saving models, and the trained models that are shipped with the library."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

from nbf.contracts import BeliefModel
from nbf.errors import InputError
from nbf.files import checkpoint
from nbf.models.belief_model import MODELS

SHIPPED = {
    "8-2D-random": "random 8 x 8 grids: the model of the library's own tables, a wide softmax over cells",
    "8-2D-random-faithful": "random 8 x 8 grids: the paper's model, a dequantized coupling flow",
    "triangulation": "Triangulation with beacons anywhere: a mixture of Gaussians, for the playground",
    "lake": "the search in a lake of the tutorial: a softmax over cells, for the playground",
}
"""The trained models that are shipped, and what each is."""


def load_model(path: str | Path) -> BeliefModel:
    """Load a model from a checkpoint. Nothing in the file is ever executed.

    Args:
        path: File that `save_model` or `FittedModel.save` wrote.

    Returns:
        The model.
    """
    return checkpoint.load_model(path, MODELS)[0]


def save_model(path: str | Path, model: BeliefModel, config: Any) -> None:
    """Save a model with the config that built it.

    Args:
        path: File to write, usually `.safetensors`.
        model: Model to save.
        config: Config whose `build` makes such a model.
    """
    checkpoint.save_model(path, model, config)


def shipped_model(name: str = "8-2D-random") -> BeliefModel:
    """Load a trained belief model that is shipped.

    Args:
        name: One of `SHIPPED`: a Gridworld configuration, with `-faithful` for the paper's model, or a problem of
            `nbf play`.

    Returns:
        The model.
    """
    if name not in SHIPPED:
        raise InputError(f"No model is shipped as {name!r}; choose one of {', '.join(SHIPPED)}.")
    with resources.as_file(resources.files("nbf.files") / f"{name}.safetensors") as path:
        return load_model(path)
