"""Model files that the command line is given: what they are, and which configuration they fit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nbf.contracts import BeliefModel
from nbf.errors import InputError
from nbf.files import description
from nbf.models.belief_model import EnumeratedConfig, FlowConfig
from nbf.models.kernel import BoxKernelConfig, LatticeKernelConfig
from nbf_paper.config import GridworldConfig
from nbf_paper.experiments.recurrent import is_recurrent

KERNELS = {LatticeKernelConfig: "kernel", BoxKernelConfig: "kernel"}
ARM_OF = {FlowConfig: "faithful", EnumeratedConfig: "enumerated", **KERNELS}


def described(path: Path) -> tuple[BeliefModel, dict[str, Any]]:
    """A model, and what its file says of it (see `nbf.files.description`), with the arm that it belongs to."""
    model, about = description.described(path)
    known = {kind.__name__: arm for kind, arm in ARM_OF.items()}
    arm = "recurrent" if is_recurrent(model) else known.get(about["class"]) or about["decoder"]
    return model, about | {"arm": arm}


def fitting_config(path: Path, about: Mapping[str, Any], name: str | None) -> GridworldConfig:
    """The configuration of that name, or the one that the model was trained for; raises if its states are not the
    model's."""
    if name is None and about["environment"] is None:
        raise InputError(f"{path} does not say which configuration it was trained for: name one with --config.")
    if name is None and about["class"] not in {kind.__name__ for kind in ARM_OF} and about["arm"] != "recurrent":
        raise InputError(
            f"{path} was trained for {about['environment']}, and `nbf-paper evaluate` knows the configurations of "
            f"Gridworld: `nbf-paper reproduce {about['environment']}` evaluates it."
        )
    config = GridworldConfig.parse(name or about["environment"])
    if f"lattice{config.shape}" != about["space"]:
        raise InputError(
            f"{path} is a model for states of {about['space']}, but {config.name} has states of lattice{config.shape}. "
            "Name a configuration of its own state space, or train a model for this one with `nbf-paper train`."
        )
    return config
