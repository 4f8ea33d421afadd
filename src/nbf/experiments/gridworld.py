"""The paper's Figures "fixed grids" and "randomized grids": Jensen-Shannon divergence by step on the
eight Gridworld configurations, for exact, Approx, PF and NBF."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from nbf import prng
from nbf.beliefs.sources import ExactPosteriors
from nbf.config import GridworldConfig
from nbf.contracts import Family, InputError
from nbf.environments.gridworld import gridworld_family
from nbf.models.belief_model import EnumeratedConfig, FlowConfig
from nbf.training.checkpoint import save_model
from nbf.training.fit import Fitted, FitConfig, fit

ARMS = ("faithful", "enumerated")


def family_of(config: GridworldConfig, seed: int) -> Family:
    """The environments and policies of a configuration; a *fixed* one is drawn by the training seed."""
    key = prng.stream(seed, "gridworld", config.name, "instance") if config.fixed else None
    return gridworld_family(
        config.size, config.dimension, key=key, temperature=config.temperature, error=config.error
    )


def arm_of(config: GridworldConfig, arm: str) -> tuple[Any, FitConfig]:
    """The model and the training of an arm: `faithful` is the paper's table, `enumerated` a softmax
    over all cells in place of the flow."""
    if arm == "faithful":
        return FlowConfig(config.shape, quadrature=4 if config.dimension < 3 else 3), FitConfig()
    if arm == "enumerated":
        return EnumeratedConfig(config.shape), FitConfig(optimizer="adam", learning_rate=1e-3)
    raise InputError(f"There is no arm {arm!r}; choose from {', '.join(ARMS)}.")


def run_folder(root: Path, config: GridworldConfig, arm: str, seed: int) -> Path:
    """Where a training run keeps its files."""
    return root / "gridworld" / config.name / f"{arm}-{seed}"


def train(
    config: GridworldConfig, arm: str, seed: int, root: Path, *, steps: int | None = None, progress: bool = True
) -> Path:
    """Train one model, or go on with a training that was stopped; returns the path of the model."""
    model_config, fit_config = arm_of(config, arm)
    fit_config = fit_config if steps is None else replace(fit_config, steps=steps)
    folder = run_folder(root, config, arm, seed)
    path = folder / "model.safetensors"
    if path.exists():
        return path
    fitted = fit(
        model_config.build(prng.stream(seed, "gridworld", config.name, arm, "parameters")),
        ExactPosteriors(family_of(config, seed), config.horizon),
        fit_config,
        key=prng.stream(seed, "gridworld", config.name, arm, "training"),
        resume=folder / "training.safetensors",
        progress=progress,
        title=f"{config.name} {arm} seed {seed}",
    )
    _keep(path, fitted, model_config, fit_config, config, seed)
    return path


def _keep(
    path: Path, fitted: Fitted, model_config: Any, fit_config: FitConfig, config: GridworldConfig, seed: int
) -> None:
    losses = fitted.losses
    curve = [round(float(part.mean()), 4) for part in _blocks(losses, 50)]
    notes = {
        "environment": json.dumps(asdict(config)),
        "training": json.dumps(asdict(fit_config)),
        "seed": str(seed),
        "seconds": f"{fitted.seconds:.1f}",
        "loss_curve": json.dumps(curve),
    }
    save_model(path, fitted.model, model_config, **notes)


def _blocks(values: Any, count: int) -> list[Any]:
    edges = [round(i * len(values) / count) for i in range(count + 1)]
    return [values[a:b] for a, b in zip(edges[:-1], edges[1:], strict=True) if b > a]
