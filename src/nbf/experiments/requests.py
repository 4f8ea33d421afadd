"""What a user asks for, checked before any work starts: seeds, counts, names, and model files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import jax

from nbf.config import GridworldConfig
from nbf.contracts import BeliefModel, InputError
from nbf.experiments.gridworld import ARMS, EvaluationConfig, GridworldJob, arm_of, family_of
from nbf.experiments.recurrent import is_recurrent
from nbf.experiments.untrained import GridworldKernelJob
from nbf.models.belief_model import MODELS, EnumeratedConfig, FlowConfig
from nbf.models.kernel import BoxKernelConfig, LatticeKernelConfig
from nbf.training.checkpoint import load_model, read_file

KERNELS = {LatticeKernelConfig: "kernel", BoxKernelConfig: "kernel"}
ARM_OF = {FlowConfig: "faithful", EnumeratedConfig: "enumerated", **KERNELS}
LARGEST_SEED = 2**31 - 1


def seed(number: int) -> int:
    """A seed that both JAX and a record can hold."""
    if not 0 <= number <= LARGEST_SEED:
        raise InputError(f"A seed is a whole number from 0 to {LARGEST_SEED}; got {number}.")
    return number


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
    """A model, and what its file tells, ready for JSON; None stands for what it does not tell."""
    if read_file(path)[0].get("kind") == "nbf training run":
        raise InputError(f"{path} is a training in progress; when it is finished, its model lies beside it.")
    model, config, notes = load_model(path, MODELS)
    about = {
        "class": type(config).__name__,
        "arm": "recurrent" if is_recurrent(model) else ARM_OF.get(type(config)) or type(config.decoder).__name__,
        "config": asdict(config),
        "space": model.space.signature,
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(model)),
        "bytes": path.stat().st_size,
        "library_version": notes.get("library_version"),
    }
    try:
        return model, about | _training(notes)
    except (ValueError, TypeError, LookupError) as error:
        raise InputError(f"The notes in {path} cannot be read ({error!r}): they are not this library's.") from None


def _training(notes: Mapping[str, str]) -> dict[str, Any]:
    """How the model was trained: notes that `nbf train` leaves, and that other writers may leave out."""
    names = ("environment", "training", "seed", "seconds", "loss_curve")
    environment, training, seed, seconds, curve = (json.loads(notes[name]) if name in notes else None for name in names)
    return {
        "environment": None if environment is None else str(environment["name"]),
        "training": None if training is None else dict(training),
        "seed": None if seed is None else int(seed),
        "seconds": None if seconds is None else float(seconds),
        "loss": None if curve is None else float(curve[-1]),
    }


def fitting_config(path: Path, about: Mapping[str, Any], name: str | None) -> GridworldConfig:
    """The configuration of that name, or else the one that the model was trained for; its states must
    be the model's."""
    if name is None and about["environment"] is None:
        raise InputError(f"{path} does not say which configuration it was trained for: name one with --config.")
    if name is None and about["class"] not in {kind.__name__ for kind in ARM_OF} and about["arm"] != "recurrent":
        raise InputError(
            f"{path} was trained for {about['environment']}, and `nbf evaluate` knows the configurations of Gridworld: "
            f"`nbf reproduce {about['environment']}` evaluates it."
        )
    config = GridworldConfig.parse(name or about["environment"])
    if f"lattice{config.shape}" != about["space"]:
        raise InputError(
            f"{path} is a model for states of {about['space']}, but {config.name} has states of lattice{config.shape}. "
            "Name a configuration of its own state space, or train a model for this one with `nbf train`."
        )
    return config
