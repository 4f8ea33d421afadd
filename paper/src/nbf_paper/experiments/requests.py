"""What a user asks for, checked before any work starts: seeds, counts, names, and model files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nbf.contracts import BeliefModel
from nbf.errors import InputError
from nbf.files import description
from nbf.models.belief_model import EnumeratedConfig, FlowConfig
from nbf.models.kernel import BoxKernelConfig, LatticeKernelConfig
from nbf.prng import seed
from nbf_paper.config import GridworldConfig
from nbf_paper.experiments.gridworld import ARMS, EvaluationConfig, GridworldJob, arm_of, family_of
from nbf_paper.experiments.recurrent import is_recurrent
from nbf_paper.experiments.untrained import GridworldKernelJob

KERNELS = {LatticeKernelConfig: "kernel", BoxKernelConfig: "kernel"}
ARM_OF = {FlowConfig: "faithful", EnumeratedConfig: "enumerated", **KERNELS}


def at_least(least: int, **option: int) -> int:
    """The value of one option, if it is large enough."""
    ((name, value),) = option.items()
    if value < least:
        raise InputError(f"--{name} must be at least {least}; got {value}.")
    return value


def jobs(
    configs: Sequence[str], arms: Sequence[str], seeds: Sequence[int], steps: int | None, episodes: int
) -> list[GridworldJob]:
    """Every configuration with every arm and training seed."""
    if not arms:
        raise InputError(f"Name at least one arm: {', '.join(ARMS)}.")
    evaluation = EvaluationConfig(episodes=at_least(2, episodes=episodes))  # two, for a standard error
    found = []
    for config in map(GridworldConfig.parse, configs):
        family_of(replace(config, fixed=False), 0)  # refuses grids that cannot be
        for arm in arms:
            total = arm_of(config, arm)[1].steps if steps is None else at_least(1, steps=steps)
            found += [GridworldJob(config, arm, seed(number), total, evaluation) for number in seeds]
    return found


def kernel_jobs(configs: Sequence[str], seeds: Sequence[int], episodes: int) -> list[GridworldKernelJob]:
    """Every configuration with the kernel mean embedding, which is not trained."""
    evaluation = EvaluationConfig(episodes=at_least(2, episodes=episodes))
    found = [GridworldConfig.parse(name) for name in configs]
    for config in found:
        family_of(replace(config, fixed=False), 0)
    return [GridworldKernelJob(config, seed(number), evaluation) for config in found for number in seeds]


def described(path: Path) -> tuple[BeliefModel, dict[str, Any]]:
    """A model, what its file tells (see `nbf.files.description`), and the arm that it belongs to."""
    model, about = description.described(path)
    known = {kind.__name__: arm for kind, arm in ARM_OF.items()}
    arm = "recurrent" if is_recurrent(model) else known.get(about["class"]) or about["decoder"]
    return model, about | {"arm": arm}


def fitting_config(path: Path, about: Mapping[str, Any], name: str | None) -> GridworldConfig:
    """The configuration of that name, or else the one that the model was trained for; its states must
    be the model's."""
    if name is None and about["environment"] is None:
        raise InputError(f"{path} does not say which configuration it was trained for: name one with --config.")
    if name is None and about["class"] not in {kind.__name__ for kind in ARM_OF} and about["arm"] != "recurrent":
        raise InputError(
            f"{path} was trained for {about['environment']}, and `nbf-paper evaluate` knows the configurations of Gridworld: "
            f"`nbf-paper reproduce {about['environment']}` evaluates it."
        )
    config = GridworldConfig.parse(name or about["environment"])
    if f"lattice{config.shape}" != about["space"]:
        raise InputError(
            f"{path} is a model for states of {about['space']}, but {config.name} has states of lattice{config.shape}. "
            "Name a configuration of its own state space, or train a model for this one with `nbf-paper train`."
        )
    return config
