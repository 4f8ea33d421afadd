"""What a model file says about itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax

from nbf.contracts import BeliefModel
from nbf.errors import InputError
from nbf.files.checkpoint import load_model, read_file, read_note
from nbf.models.belief_model import MODELS


def described(path: Path) -> tuple[BeliefModel, dict[str, Any]]:
    """Read a model and describe its file.

    Args:
        path: Model file.

    Returns:
        The model, and its description ready for JSON, with None for what the file does not say.
    """
    if read_file(path)[0].get("kind") == "nbf training run":
        raise InputError(f"{path} is a training in progress; when it is finished, its model is saved beside it.")
    model, config, notes = load_model(path, MODELS)
    about = {
        "class": type(config).__name__,
        "decoder": type(getattr(model, "decoder", model)).__name__,
        "config": asdict(config),
        "space": model.space.signature,
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(model)),
        "bytes": path.stat().st_size,
        "library_version": notes.get("library_version"),
    }
    try:
        return model, about | _training(notes)
    except (ValueError, TypeError, LookupError, OverflowError) as error:
        raise InputError(f"The notes in {path} cannot be read ({error!r}): they are not this library's.") from None


def _training(notes: Mapping[str, str]) -> dict[str, Any]:
    """How the model was trained: metadata that `nbf-paper train` writes and other writers may leave out. What `nbf.fit`
    knows is read by `FittedModel.load`."""
    if "fitted" in notes:
        return {"fitted": True}
    names = ("environment", "training", "seed", "seconds", "loss_curve")
    environment, training, seed, seconds, curve = (read_note(notes[name]) if name in notes else None for name in names)
    return {
        "environment": None if environment is None else str(environment["name"]),
        "training": None if training is None else dict(training),
        "seed": None if seed is None else int(seed),
        "seconds": None if seconds is None else float(seconds),
        "loss": None if curve is None else float(curve[-1]),
    }
