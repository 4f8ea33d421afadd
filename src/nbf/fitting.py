"""One call from a family of environments to a trained, measured filter.

    fitted = nbf.fit(family, horizon=20)
    tracker = fitted.filter(num_particles=32)
    print(fitted)

The decoder is chosen by the state space, the beliefs to train on come from the exact filter where there is one
and from a large particle filter elsewhere; everything can be said otherwise.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from nbf import prng
from nbf.beliefs.particles import effective_sample_size
from nbf.beliefs.sources import ExactPosteriors
from nbf.contracts import BeliefModel, BeliefSource, Enumerable, Environment, Family, InputError, Policy, StateSpace
from nbf.environments.functional import One
from nbf.evaluation.calibration import Calibration, calibrate
from nbf.filters.neural import NeuralBayesianFilter, check_space
from nbf.filters.particle import ParticleFilter
from nbf.filters.posteriors import FilterPosteriors
from nbf.models.autoregressive import AutoregressiveConfig
from nbf.models.belief_model import MODELS, AnyDecoder, AnyEncoder, ModelConfig, space_config
from nbf.models.dequantization import DequantizedFlowConfig
from nbf.models.enumerated import EnumeratedDecoderConfig
from nbf.models.flow import CouplingFlowConfig
from nbf.models.mixture import MixtureConfig
from nbf.models.set_encoder import MeanConfig
from nbf.spaces import Box, Lattice, Tokens
from nbf.training.checkpoint import load_model, save_model
from nbf.training.fit import FitConfig
from nbf.training.fit import fit as train

LISTED = 4096
"""Up to this many cells of a lattice the decoder is a softmax over all of them."""
QUICK = FitConfig(
    steps=30_000, batch=32, samples=64, optimizer="adam", learning_rate=1e-3, random_sets=True, patience=5
)
"""Of `fit`: enough for small problems, and stopped early where it is too much."""


@dataclass(frozen=True)
class FittedModel:
    """A trained belief model, what it was trained on, and how good it is."""

    model: BeliefModel
    config: ModelConfig
    calibration: Calibration
    """On beliefs that were never trained on."""
    teacher: str
    """Where the beliefs came from."""
    teacher_ess: float | None
    """Mean effective sample size of the particle filter that they came from; None where they are exact."""
    losses: np.ndarray
    held_out: np.ndarray
    seconds: float

    def filter(self, num_particles: int = 32, *, max_attempts: int = 5) -> NeuralBayesianFilter:
        """A filter with this model."""
        return NeuralBayesianFilter(self.model, num_particles, max_attempts=max_attempts)

    def save(self, path: str | Path) -> None:
        """Keep the model and what is known of it; `nbf.load_model` reads it back."""
        about = {**self.calibration.summary(), "teacher_ess": self.teacher_ess}
        known = {
            name: None if value is None or not np.isfinite(value) else float(value) for name, value in about.items()
        }
        notes = {"teacher": self.teacher, "seconds": f"{self.seconds:.1f}", "quality": json.dumps(known)}
        save_model(path, self.model, self.config, **notes)

    def __str__(self) -> str:
        ess = "" if self.teacher_ess is None else f", ESS {self.teacher_ess:.0f} on average"
        head = f"{type(self.config.decoder).__name__} for {self.model.space.signature}"
        return f"{head}, trained in {self.seconds:.0f} s on posteriors of {self.teacher}{ess}\n\n{self.calibration}"


def load(path: str | Path, environment: Environment | None = None) -> BeliefModel:
    """A saved model; with an environment, checked to be for its states."""
    model, _, _ = load_model(path, MODELS)
    if environment is not None:
        check_space(model, environment)
    return model


def decoder_for(space: StateSpace) -> AnyDecoder:
    """A decoder that suits a state space, without any knowledge of its beliefs."""
    if isinstance(space, Lattice):
        if space.size <= LISTED:
            return EnumeratedDecoderConfig()
        return DequantizedFlowConfig() if space.dimension > 1 else EnumeratedDecoderConfig()
    if isinstance(space, Tokens):
        return AutoregressiveConfig()
    if isinstance(space, Box):
        return CouplingFlowConfig("spline") if space.dimension > 1 else MixtureConfig()
    raise InputError(f"No decoder is known for {space.signature}; give one, or use a Box, a Lattice or Tokens.")


def beliefs_of(family: Family, environment: Environment, horizon: int, particles: int) -> tuple[BeliefSource, str]:
    """Exact posteriors where states can be listed, else those of a particle filter; and what they are called."""
    if isinstance(environment, Enumerable):
        return ExactPosteriors(family, horizon), "the exact filter"
    return FilterPosteriors(ParticleFilter(particles), family, horizon), f"a particle filter of {particles}"


def fit(
    family: Family | tuple[Environment, Policy],
    *,
    horizon: int = 20,
    seed: int = 0,
    decoder: AnyDecoder | None = None,
    encoder: AnyEncoder | None = None,
    embedding: int = 32,
    particles: int = 1024,
    training: FitConfig = QUICK,
    steps: int | None = None,
    resume: str | Path | None = None,
    progress: bool = True,
) -> FittedModel:
    """Train a belief model for the environments and policies of a family, or for one environment and policy.

    `horizon` is the length of the episodes whose beliefs are learned, `particles` the size of the particle
    filter that they come from where there is no exact one, `steps` the most steps of training. `resume` names a
    file for a run in progress, with which a stopped one goes on.
    """
    if horizon < 0 or particles < 2:
        raise InputError(f"fit needs a horizon of at least 0 and at least 2 particles; got {horizon} and {particles}.")
    if isinstance(family, tuple):
        family = One(*family)
    key = prng.stream(seed, "fit")
    environment, _ = family.sample(key)
    space = environment.space
    context = 0 if space.context is None else space.context.shape[-1]
    config = ModelConfig(
        space_config(space),
        decoder or decoder_for(space),
        encoder or MeanConfig(),
        embedding=embedding,
        context=context,
    )
    source, teacher = beliefs_of(family, environment, horizon, particles)
    settings = training if steps is None else replace(training, steps=steps)
    streams = [prng.stream(seed, "fit", name) for name in ("parameters", "training", "calibration", "teacher")]
    fitted = train(
        config.build(streams[0]), source, settings, key=streams[1], resume=resume, progress=progress,
        title=f"{type(config.decoder).__name__} for {space.signature}",
    )  # fmt: skip
    quality = calibrate(streams[2], fitted.model, source)
    ess = float(_mean_ess(streams[3], source)) if isinstance(source, FilterPosteriors) else None
    return FittedModel(fitted.model, config, quality, teacher, ess, fitted.losses, fitted.held_out, fitted.seconds)


@eqx.filter_jit
def _mean_ess(key: Key[Array, ""], source: FilterPosteriors, count: int = 64) -> Array:
    """Of a particle filter's posteriors, at random depths."""
    states = jax.vmap(lambda key: source.posterior(key)[0])(jax.random.split(key, count))
    return jnp.mean(jax.vmap(effective_sample_size)(states.log_weights))
