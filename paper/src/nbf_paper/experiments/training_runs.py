"""The training of one model, kept in one file: made once, resumed when it was stopped, never mistaken for another."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nbf import prng
from nbf.contracts import BeliefModel, BeliefSource
from nbf.errors import InputError
from nbf.files.checkpoint import load_model, read_file, read_note, save_model
from nbf.models.belief_model import MODELS
from nbf.training.config import FitConfig
from nbf.training.fit import Fitted, train
from nbf.training.loss import Loss
from nbf_paper.experiments.settings import training_settings
from nbf_paper.records import alone


@dataclass(frozen=True)
class TrainingRun:
    """Which model is trained, how, on what, and where it is kept."""

    folder: Path
    model: Any
    """The model's config."""
    training: FitConfig
    source: Callable[[], BeliefSource]
    """Makes the beliefs to train on; called only if there is something to train."""
    environment: dict[str, Any]
    """The settings of the source, for the notes of the model file."""
    seed: int
    stream: tuple[str, ...]
    """Names the random streams of the parameters and of the training."""
    title: str
    loss: Loss | None = None
    """What is minimised, if not the loss of belief models."""

    @property
    def path(self) -> Path:
        """The file of the finished model."""
        return self.folder / "model.safetensors"

    def train(self) -> Path:
        """Train, or resume a training that was stopped or, at a constant rate, shorter; returns the path of the model.

        If another process is training it, that one is waited for.
        """
        if self._wanted():
            with alone(self.folder):
                if self._wanted():
                    self._train()
        self.check_same()
        return self.path

    def _wanted(self) -> bool:
        """Whether there is no model yet, or one of fewer steps whose training can go on."""
        if not self.path.exists():
            return True
        wanted, found = training_settings(self.training), self._found()
        if not self._progress.exists() or self.training.schedule != "constant" or not isinstance(found, dict):
            return False
        steps = found.get("steps")
        return {**found, "steps": self.training.steps} == wanted and type(steps) is int and steps < self.training.steps

    @property
    def _progress(self) -> Path:
        """The file of the run in progress, which is kept."""
        return self.folder / "training.safetensors"

    def _found(self) -> Any:
        """The settings that the model was trained with; None if its file does not say."""
        try:
            return read_note(read_file(self.path)[0].get("training", "null"))
        except ValueError:
            return None

    def _train(self) -> None:
        parameters, key = (prng.stream(self.seed, *self.stream, name) for name in ("parameters", "training"))
        fitted = train(
            self.model.build(parameters), self.source(), self.training, key=key,
            resume=self._progress, title=self.title, loss=self.loss,
        )  # fmt: skip
        self._save(fitted)

    def load(self) -> BeliefModel:
        """The finished model."""
        return load_model(self.path, MODELS)[0]

    def timing(self) -> tuple[float, list[float]]:
        """Seconds of the finished training, and its loss curve."""
        metadata, _ = read_file(self.path)
        try:
            return float(read_note(metadata["seconds"])), [float(loss) for loss in read_note(metadata["loss_curve"])]
        except (KeyError, ValueError, TypeError, OverflowError) as error:
            raise InputError(
                f"{self.path} does not say how it was trained ({error!r}). Remove it to train anew."
            ) from None

    def check_same(self) -> None:
        """Raise if there is a model already that was trained with other settings."""
        if not self.path.exists():
            return
        found, wanted = self._found(), training_settings(self.training)
        if found != wanted:
            raise InputError(
                f"{self.path} was trained with other settings ({json.dumps(found)}, now {json.dumps(wanted)}). "
                "Ask for its own, remove it to train anew, or keep both by choosing another folder with --runs."
            )

    def _save(self, fitted: Fitted) -> None:
        blocks = [part for part in np.array_split(fitted.losses, 50) if len(part)]
        notes = {
            "environment": json.dumps(self.environment),
            "training": json.dumps(training_settings(self.training)),
            "seed": str(self.seed),
            "seconds": f"{fitted.seconds:.1f}",
            "loss_curve": json.dumps([round(float(part.mean()), 4) for part in blocks]),
        }
        save_model(self.path, fitted.model, self.model, **notes)
