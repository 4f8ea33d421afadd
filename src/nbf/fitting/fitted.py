"""A trained belief model with what is known of it, and its file."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from nbf.contracts import BeliefModel, Filter
from nbf.errors import InputError
from nbf.evaluation.calibration import Calibration
from nbf.files.checkpoint import load_model, save_model
from nbf.filters.approximate import ApproxBeliefs
from nbf.filters.checks import check_counts
from nbf.filters.neural import CarryRule, NeuralBayesianFilter, Trust
from nbf.fitting.comparison import Comparison
from nbf.fitting.history import History
from nbf.fitting.reference import described, rebuilt
from nbf.fitting.trust import FEWEST_CARRIED, MeasuredTrust
from nbf.models.belief_model import MODELS, ModelConfig

FEW_STEPS = 2000
"""Fewer gradient steps than these are told as few."""
LONGEST_METADATA = 4_000_000
"""Characters of JSON that are read from a model file: a hostile file must not exhaust memory."""


@dataclass(frozen=True)
class FittedModel:
    """A trained belief model, what it was trained on, and its calibration. `print` shows a summary."""

    model: BeliefModel
    """The trained model."""
    config: ModelConfig
    """The config that built it."""
    calibration: Calibration
    """Measured on beliefs that were not trained on."""
    teacher: str
    """The filter that made the training beliefs."""
    teacher_ess: float | None
    """Mean effective sample size of the teacher, if it is a particle filter."""
    on_walls: float
    """Share of training samples that lie exactly on a wall of a bounded box, before any `wall_band`."""
    steps: int
    """Training steps: fewer than allowed if training stopped early."""
    seconds: float
    """Time that `nbf.fit` took: making beliefs, training (over all sessions of a run that was resumed) and calibration,
    compilation included."""
    losses: Float[np.ndarray, " chunks"]
    """Training loss in nats per sample, averaged over every 20 steps."""
    held_out: Float[np.ndarray, " evaluations"]
    """Loss on held-out beliefs, every 1000 steps, by which training stops early."""
    reference: Filter | None = None
    """The filter that made the training beliefs, the truth of `ceiling`. None if that is not known: a filter of your
    own, or one with a model in it, is not in the file."""

    trial: Comparison | None = None
    """The filter with this model beside the prior, filters without a network and its ceiling, on fresh episodes. None
    if it was not asked for, or could not be made, and for files of older versions."""
    trust: MeasuredTrust | None = None
    """How far the model is trusted beside what particles say themselves, by calls of the simulator. None where the
    filter trusts the model alone, and for files of older versions."""
    history: History | None = None
    """The rounds of `nbf.learn`; None for a model of `nbf.fit`."""

    def filter(self, num_particles: int = 32, *, max_attempts: int = 5) -> NeuralBayesianFilter:
        """Make a filter with this model.

        Args:
            num_particles: Particles simulated per step.
            max_attempts: How often a step is simulated at most while all weights are zero.

        Returns:
            The filter.
        """
        check_counts("A filter", num_particles=num_particles)
        trust = None if self.trust is None else self.trust.at(num_particles)
        return NeuralBayesianFilter(self.model, num_particles, trust=trust, max_attempts=max_attempts)

    def faithful(self, num_particles: int = 32, *, max_attempts: int = 5) -> NeuralBayesianFilter:
        """Make the paper's filter with this model: Algorithm 1, independent draws and no correction.

        Args:
            num_particles: Particles simulated per step.
            max_attempts: How often a step is simulated at most while all weights are zero.

        Returns:
            The filter.
        """
        return NeuralBayesianFilter.faithful(self.model, num_particles, max_attempts=max_attempts)

    def ceiling(self, num_samples: int = 64, *, truth: Filter | None = None) -> ApproxBeliefs:
        """Make the filter that embeds samples of the truth at each step (the paper's "Approx Beliefs"): its error is
        the model's alone. A filter with this model has more, unless what it carries from step to step makes up for it.

        Args:
            num_samples: Samples of the truth at each step.
            truth: The filter that is taken for the truth; None is the one that made the training beliefs.

        Returns:
            The filter.
        """
        truth = self.reference if truth is None else truth
        if truth is None:
            raise InputError(
                f"The file of this model does not hold its teacher, {self.teacher}. Pass it, or a better one: "
                "fitted.ceiling(truth=filter), for example truth=nbf.ParticleFilter(4096)."
            )
        return ApproxBeliefs(self.model, num_samples, truth=truth)

    def save(self, path: str | Path) -> None:
        """Save the model and everything else here. `nbf.load_model` reads the model alone.

        Args:
            path: File to write, usually `.safetensors`.
        """
        known = {name: getattr(self, name) for name in _KNOWN}
        known["reference"] = described(self.reference)
        known["trust"] = None if self.trust is None else asdict(self.trust)
        known["trial"] = None if self.trial is None else self.trial.to_dict()
        known["history"] = None if self.history is None else self.history.to_dict()
        save_model(path, self.model, self.config, fitted=json.dumps(known, default=_plain))

    @classmethod
    def load(cls, path: str | Path) -> FittedModel:
        """Read what `save` wrote. Nothing in the file is ever executed.

        Args:
            path: File to read.

        Returns:
            The fitted model.
        """
        model, config, metadata = load_model(path, MODELS)
        note = metadata.get("fitted")
        if note is None:
            raise InputError(f"{path} holds a model that nbf.fit did not save: read it with nbf.load_model.")
        try:
            if len(note) > LONGEST_METADATA:
                raise ValueError(f"{len(note)} characters")
            values = json.loads(note)
            calibration = Calibration(**_typed(Calibration, values.pop("calibration")))
            _check_shapes(calibration)
            # Files of older versions do not tell, or told trust in another way.
            reference, tried = rebuilt(values.pop("reference", None)), values.pop("trial", None)
            known: dict[str, Any] = {"trial": None if tried is None else Comparison.from_dict(tried)}
            known["trust"], history = _trust(values.pop("trust", None)), values.pop("history", None)
            known["history"] = None if history is None else History.from_dict(history)
            for old in ("shares", "carry"):
                values.pop(old, None)
            known |= _typed(cls, values)
            return cls(model=model, config=config, calibration=calibration, reference=reference, **known)
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise InputError(
                f"What is known of the model in {path} cannot be read ({error}); nbf.load_model reads the model alone."
            ) from error

    def __str__(self) -> str:
        ess = "" if self.teacher_ess is None else f" (ESS {self.teacher_ess:.0f} on average)"
        lines = [
            f"{type(self.config.decoder).__name__} for {self.model.space.signature}: {self.steps} steps on beliefs of "
            f"{self.teacher}{ess}; {self.seconds:.0f} s in all, with what was measured afterwards"
        ]
        if self.on_walls > 0:
            lines.append(
                f"{self.on_walls:.1%} of their samples lie on a wall of the box, where a density is unbounded: "
                "see `wall_band` of nbf.fit"
            )
        if self.steps < FEW_STEPS:
            lines.append(
                f"{self.steps} gradient steps are few: compiling is part of the time, so allow more `minutes`, or name "
                "the `steps`"
            )
        if self.trust is not None:
            lines += _told(self.trust)
        if self.history is not None:
            lines += ["", str(self.history)]
        limits = "This verdict is on the model, given samples of its teacher's beliefs."
        if self.trial is None:
            limits += (
                " It says nothing of a filter with it, which lives on its own beliefs: print(nbf.compare(family, "
                "fitted)) does."
            )
            return "\n".join([*lines, "", str(self.calibration), "", limits])
        heading = "The filter, which lives on its own beliefs (nbf.compare tells more):"
        return "\n".join([*lines, "", str(self.calibration), "", limits, "", heading, self.trial.brief])


_APART = ("model", "config", "calibration", "reference", "trial", "trust", "history")
_KNOWN = tuple(each.name for each in fields(FittedModel) if each.name not in ("model", "config"))


def _told(trust: MeasuredTrust) -> list[str]:
    """Measured trust, for a reader."""
    if trust.sizes[0] == FEWEST_CARRIED:
        carry = trust.found[0].carry
        return [
            f"From {FEWEST_CARRIED} particles on, carried branches have the share {carry.share:g} (1 - random "
            f"mass)^{carry.fading:g} of a belief, the model the rest"
        ]
    told = ", ".join(
        f"{found.model_share:.0%} with {size} calls" for size, found in zip(trust.sizes, trust.found, strict=True)
    )
    scales = ", ".join(f"{found.kernel_scale:g}" for found in trust.found)
    return [f"Share earned beside a kernel density: {told} (kernels of {scales} times Silverman's width)"]


def _trust(values: Any) -> MeasuredTrust | None:
    if values is None:
        return None
    if any(type(size) is not int for size in values["sizes"]):
        raise ValueError(f"trust is {str(values)[:40]!r}")
    found = []
    for one in values["found"]:
        numbers = one["model_share"], one["kernel_scale"], one["carry"]["share"], one["carry"]["fading"]
        if any(type(number) not in (int, float) for number in numbers):
            raise ValueError(f"trust is {str(values)[:40]!r}")
        found.append(Trust(*numbers[:2], CarryRule(*numbers[2:])))
    return MeasuredTrust(tuple(values["sizes"]), tuple(found))


def _plain(value: Any) -> Any:
    """Values that JSON cannot represent by itself."""
    return asdict(value) if isinstance(value, Calibration) else np.asarray(value).tolist()


def _typed(kind: type, values: dict[str, Any]) -> dict[str, Any]:
    """The fields of a dataclass from plain values: text, numbers, and lists of numbers as arrays."""
    wanted = {each.name: str(each.type) for each in fields(kind) if each.name not in _APART}
    if set(values) != set(wanted):
        raise ValueError(f"expected {', '.join(wanted)}")
    return {name: _one(name, annotation, values[name]) for name, annotation in wanted.items()}


def _one(name: str, annotation: str, value: Any) -> Any:
    if "ndarray" in annotation and isinstance(value, list):
        return np.asarray(value, np.float32 if name in ("losses", "held_out") else np.float64)
    if annotation == "str" and isinstance(value, str):
        return value
    if annotation == "int" and type(value) is int:
        return value
    if annotation.startswith("float") and type(value) in (int, float):
        return float(value)
    if annotation.endswith("None") and value is None:
        return None
    raise ValueError(f"{name} is {str(value)[:40]!r}")


def _check_shapes(found: Calibration) -> None:
    d, bins = found.pit.shape
    sound = found.pit_band.shape == (d, bins) and found.pit_p.shape == (d,) and d * bins > 0
    if not sound or not found.levels.shape == found.coverage.shape == found.coverage_band.shape == (found.levels.size,):
        raise ValueError("arrays of a calibration do not fit together")
