"""The paper's illustrative example: belief models of donuts (section "Illustrative Example: Donuts" and
the appendix "Illustrative Example using Conditional Flow Matching"), one arm for each decoder.

There is no filtering here. A model embeds 64 samples of an unseen donut, and its density is compared with the donut's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from nbf import prng
from nbf.contracts import BeliefModel
from nbf.errors import InputError
from nbf.evaluation.batches import in_batches, mean_and_error
from nbf.evaluation.calibration import calibrate
from nbf.models.belief_model import ModelConfig, space_config
from nbf.models.flow import CouplingFlowConfig
from nbf.models.flow_matching import FlowMatchingConfig
from nbf.models.mixture import MixtureConfig
from nbf.models.set_encoder import MeanConfig
from nbf.training.config import FitConfig
from nbf_paper.config import DonutsConfig
from nbf_paper.donuts import Donut, Donuts
from nbf_paper.experiments.job import Counter, Job
from nbf_paper.experiments.rows import with_training_seconds
from nbf_paper.experiments.settings import model_settings, training_settings
from nbf_paper.experiments.training_runs import TrainingRun
from nbf_paper.pictures import write_picture
from nbf_paper.records import ALL, Record

TRAINING = FitConfig(steps=30_000, batch=32, samples=128, optimizer="adam", learning_rate=3e-3, schedule="cosine")
"""The paper's table, but for a learning rate that starts at 0.003 and falls to zero."""
PAPER = replace(TRAINING, learning_rate=1e-3, schedule="constant")
"""The paper's table."""
DECODERS = {
    "flow": CouplingFlowConfig("affine", layers=8, width=32, depth=3, activation="silu"),
    "flow-paper": CouplingFlowConfig("affine", layers=8, width=32, depth=3),
    "nlsq": CouplingFlowConfig("nlsq", layers=4, width=32, depth=3, activation="silu"),
    "spline": CouplingFlowConfig("spline", layers=4, width=32, depth=3, activation="silu"),
    "mixture": MixtureConfig(),
    "cfm-independent": FlowMatchingConfig("independent"),
    "cfm-ot": FlowMatchingConfig("ot"),
    "cfm-independent-paper": FlowMatchingConfig("independent"),
    "cfm-ot-paper": FlowMatchingConfig("ot"),
}
"""The arms. `flow` and the two `cfm` have the sizes of the paper's table; those that end in `-paper` also have its
learning rate, and `flow-paper` the ReLU of its other models."""
FLOW_MATCHING = "cfm-ot-paper"
"""The arm of the paper's figure of flow matching: densities on a fine grid, with more points embedded."""
EMBEDDED, FINE_GRID = 256, 512
"""Of that figure: samples of a donut, and points along each axis."""
FINE_ARRAYS = ("axis", "points", "density")
"""Of its data; the truth would double them."""
SHOWN = 3
"""How many unseen donuts the figure shows."""
GRID = 120
"""Points along each axis of a density in the figure."""


@dataclass(frozen=True)
class DonutsEvaluation:
    """How a model of donuts is scored."""

    beliefs: int = 500
    """Unseen donuts."""
    embedded: int = 64
    """Samples of each that are embedded."""
    held_out: int = 256
    """Samples of each that are scored."""

    @property
    def settings(self) -> dict[str, Any]:
        """The settings under their stable names in run keys."""
        return {"beliefs": self.beliefs, "embedded": self.embedded, "held_out": self.held_out}


@dataclass(frozen=True)
class DonutsJob(Job):
    """One decoder with one training seed."""

    decoder: str
    seed: int = 0
    donuts: DonutsConfig = field(default_factory=DonutsConfig)
    steps: int | None = None
    """Gradient steps; None for all of `TRAINING`."""
    evaluation: DonutsEvaluation = field(default_factory=DonutsEvaluation)

    def __post_init__(self) -> None:
        if self.decoder not in DECODERS:
            raise InputError(f"There is no decoder {self.decoder!r} for donuts; choose from {', '.join(DECODERS)}.")

    @property
    def evaluated(self) -> int:
        return self.evaluation.beliefs

    @property
    def title(self) -> str:
        return f"donuts {self.decoder} seed {self.seed}"

    @property
    def source(self) -> Donuts:
        """The donuts to train on."""
        return Donuts(self.donuts.offset, self.donuts.radius, self.donuts.width)

    @property
    def model(self) -> ModelConfig:
        """The config of the model."""
        return ModelConfig(
            space_config(self.source.space), DECODERS[self.decoder], MeanConfig(width=64, depth=3), embedding=8
        )

    @property
    def training(self) -> FitConfig:
        """The training of the model."""
        config = PAPER if self.decoder.endswith("-paper") else TRAINING
        return config if self.steps is None else replace(config, steps=self.steps)

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "environment": self.donuts.settings, "arm": self.decoder, "seed": self.seed,
            "model": model_settings(self.model),
            "training": training_settings(self.training), "evaluation": self.evaluation.settings,
        }  # fmt: skip

    @property
    def label(self) -> str:
        return f"donuts/{self.decoder}/{self.seed}"

    def training_run(self, runs: Path) -> TrainingRun:
        folder = runs / "donuts" / f"{self.decoder}-{self.seed}"
        environment = {"name": "donuts", **self.donuts.settings}
        stream = ("donuts", self.decoder)
        return TrainingRun(
            folder, self.model, self.training, lambda: self.source, environment, self.seed, stream, self.title
        )

    def measure(self, results: Path, runs: Path, bar: Counter) -> list[Record]:
        training = self.training_run(runs)
        model = training.load().prepared()
        records = evaluate(self, model, bar)
        if self.seed == 0:
            write_picture(results / f"{self.decoder}.npz", pictures(self, model, self.evaluation.embedded, GRID))
        if self.seed == 0 and self.decoder == FLOW_MATCHING:
            fine = pictures(self, model, EMBEDDED, FINE_GRID)
            write_picture(results / f"{self.decoder}-{FINE_GRID}.npz", {name: fine[name] for name in FINE_ARRAYS})
        return with_training_seconds(records, training.timing()[0])


@eqx.filter_jit
def _scores(
    model: BeliefModel, source: Donuts, settings: DonutsEvaluation, keys: Key[Array, " beliefs"]
) -> tuple[Float[Array, " beliefs"], ...]:
    """For each donut: the model's held-out NLL, its excess over the donut's own NLL, and the donut's entropy."""

    def one(key: Key[Array, ""]) -> tuple[Float[Array, ""], ...]:
        donut_key, sample_key = jax.random.split(key)
        donut = source.belief(donut_key)
        samples = donut.sample(sample_key, settings.embedded + settings.held_out)
        embedding = model.embed(samples[: settings.embedded], jnp.zeros(settings.embedded))
        held_out = samples[settings.embedded :]
        log_prob = model.log_prob(embedding, held_out, source.space)
        return -jnp.mean(log_prob), jnp.mean(donut.log_probs(held_out) - log_prob), donut.entropy()

    return jax.vmap(one)(keys)


def evaluate(job: DonutsJob, model: BeliefModel, bar: Counter) -> list[Record]:
    """Records of one model; times are those of this machine under its load at that moment."""
    settings, source = job.evaluation, job.source
    bar.describe(job.title)
    key = prng.stream(job.seed, "donuts", "evaluation")
    keys = jax.random.split(key, settings.beliefs)
    values = in_batches(
        lambda keys: _scores(model, source, settings, keys), (keys,), batch=min(20, settings.beliefs),
        advance=bar.advance,
    )  # fmt: skip
    base = Record(
        experiment="donuts", config="donuts", filter="approx", arm=job.decoder, particles=settings.embedded, calls=0,
        seed=job.seed, step=ALL, metric="nll", value=0.0, se=None, episodes=settings.beliefs,
    )  # fmt: skip
    records = []
    for metric, value in zip(("nll", "nll_gap", "entropy"), values, strict=True):
        mean, error = mean_and_error(value)
        records.append(replace(base, metric=metric, value=float(mean), se=float(error)))
    found = calibrate(key, model, source, beliefs=min(200, settings.beliefs), embed=settings.embedded)
    records += [
        replace(base, metric="energy_distance", value=found.energy, se=found.energy_error),
        replace(base, metric="coverage_gap", value=found.coverage_gap),
    ]
    for metric, microseconds in _times(model, source).items():
        records.append(replace(base, metric=metric, value=microseconds))
    return records


def _times(model: BeliefModel, source: Donuts) -> dict[str, float]:
    """Microseconds of sampling 16 states and of 64 densities, compiled: the tenth percentile of many calls."""
    embedding = model.embed(source.sample(jax.random.key(0), 64)[0], jnp.zeros(64))
    points, _ = source.sample(jax.random.key(1), 64)
    leaves, structure = jax.tree.flatten((model, embedding, points))

    def compiled(function: Callable) -> Callable:
        return jax.jit(lambda *leaves: function(*structure.unflatten(leaves)))

    calls = {
        "us_sample_16": compiled(lambda model, θ, _: model.sample(jax.random.key(2), θ, 16, source.space)),
        "us_density_64": compiled(lambda model, θ, points: model.log_prob(θ, points, source.space)),
    }
    found = {}
    for name, call in calls.items():
        jax.block_until_ready(call(*leaves))
        times, end = [], time.perf_counter() + 1.0
        while time.perf_counter() < end or len(times) < 5:
            start = time.perf_counter()
            jax.block_until_ready(call(*leaves))
            times.append(time.perf_counter() - start)
        found[name] = float(np.percentile(times, 10)) * 1e6
    return found


def pictures(job: DonutsJob, model: BeliefModel, embedded: int, points_an_axis: int) -> dict[str, np.ndarray]:
    """The data of a figure: for a few unseen donuts the embedded points, and the model's and the true density."""
    reach = job.source.space.high[0]
    axis = np.linspace(-1.3 * reach, 1.3 * reach, points_an_axis, dtype=np.float32)
    rows = jnp.asarray(np.stack(np.meshgrid(axis, axis), axis=-1))

    @eqx.filter_jit
    def one(model: BeliefModel, key: Key[Array, ""]) -> tuple[Array, Array, Array]:
        donut_key, sample_key = jax.random.split(key)
        donut: Donut = job.source.belief(donut_key)
        points = donut.sample(sample_key, embedded)
        embedding = model.embed(points, jnp.zeros(len(points)))
        density = jax.lax.map(lambda row: model.log_prob(embedding, row, job.source.space), rows)
        return points, density, donut.log_probs(rows.reshape(-1, 2)).reshape(density.shape)

    keys = jax.random.split(prng.stream(0, "donuts", "picture"), SHOWN)
    points, density, truth = (np.stack(part) for part in zip(*(one(model, key) for key in keys), strict=True))
    return {
        "axis": axis, "points": points, "density": np.exp(density).astype(np.float16),
        "truth": np.exp(truth).astype(np.float16),
    }  # fmt: skip
