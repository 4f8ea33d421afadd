"""A training that is one file: made once, gone on with when it was stopped, never mistaken for another."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Array, Key

from nbf.contracts import BeliefModel, BeliefSource
from nbf.errors import InputError
from nbf.files.atomic import check_writable
from nbf.files.checkpoint import load_model, read_file, save_model
from nbf.models.belief_model import MODELS
from nbf.training.config import FitConfig
from nbf.training.fit import Fitted, fit
from nbf.training.loss import Loss
from nbf_paper.experiments.settings import training_settings
from nbf_paper.records import Record, Run, add, completed


@runtime_checkable
class Counter(Protocol):
    """Where an evaluation reports how far it is."""

    def describe(self, text: str) -> None: ...
    def advance(self, done: int) -> None: ...


@dataclass(frozen=True)
class TrainingRun:
    """Which model is trained, how, on what, and where it is kept."""

    folder: Path
    model: Any
    """The model's config."""
    training: FitConfig
    source: Callable[[], BeliefSource]
    """Makes the beliefs to train on, when there is something to train."""
    environment: dict[str, Any]
    """What the source is, for the notes."""
    seed: int
    title: str
    loss: Loss | None = None
    """What is minimised, if not the loss of belief models."""

    @property
    def path(self) -> Path:
        """Where the finished model lies."""
        return self.folder / "model.safetensors"

    def train(self, parameters: Key[Array, ""], key: Key[Array, ""], *, progress: bool = True) -> Path:
        """Train, or go on with a training that was stopped; the path of the model."""
        if self.path.exists():
            self.check_same()
            return self.path
        fitted = fit(
            self.model.build(parameters), self.source(), self.training, key=key,
            resume=self.folder / "training.safetensors", progress=progress, title=self.title,
            loss=self.loss,
        )  # fmt: skip
        self._keep(fitted)
        return self.path

    def check_same(self) -> None:
        """A model that is there already must have been trained with the settings that are asked for."""
        if self.path.exists():
            check_same(self.path, training_settings(self.training))

    def _keep(self, fitted: Fitted) -> None:
        blocks = [part for part in np.array_split(fitted.losses, 50) if len(part)]
        notes = {
            "environment": json.dumps(self.environment),
            "training": json.dumps(training_settings(self.training)),
            "seed": str(self.seed),
            "seconds": f"{fitted.seconds:.1f}",
            "loss_curve": json.dumps([round(float(part.mean()), 4) for part in blocks]),
        }
        save_model(self.path, fitted.model, self.model, **notes)


def check_same(path: Path, training: dict[str, Any]) -> None:
    """Raise unless a model was trained with these settings."""
    found = read_file(path)[0].get("training", "null")
    if json.loads(found) != training:
        raise InputError(
            f"{path} was trained with other settings ({found}, now {json.dumps(training)}). "
            "Ask for its own, remove it to train anew, or keep both by choosing another folder with --runs."
        )


@runtime_checkable
class Learned(Protocol):
    """A job that trains one model and scores it."""

    @property
    def key(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def settings(self) -> dict[str, Any]:
        """Everything that the numbers depend on."""
        ...

    def train(self, runs: Path) -> Path:
        """Train, or go on with a training that was stopped; the path of the model."""
        ...


def train_and_record(
    job: Learned, results: Path, runs: Path, evaluate: Callable[[BeliefModel, float], list[Record]], command: str
) -> bool:
    """Do what is not recorded yet of a job; whether anything was to do.

    `evaluate` gets the model and the seconds that its training took. Records and run are written together.
    """
    if completed(results, job.key):
        return False
    check_writable(results)
    model, _, metadata = load_model(job.train(runs), MODELS)
    start = time.monotonic()
    records = evaluate(model, float(metadata["seconds"]))
    seconds = {"training": float(metadata["seconds"]), "evaluation": round(time.monotonic() - start, 1)}
    config = {**job.settings, "seconds": seconds, "loss_curve": json.loads(metadata["loss_curve"])}
    add(results, records, Run(job.key, job.seed, command, sum(seconds.values()), config))
    return True
