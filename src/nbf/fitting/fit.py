"""One call from a family of environments to a trained, measured filter.

    fitted = nbf.fit(family, horizon=20)
    print(fitted)
    tracker = fitted.filter(num_particles=32)

The decoder is chosen by the state space, the beliefs to train on come from the exact filter where there is one
and from a large particle filter elsewhere; everything can be said otherwise.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from nbf import prng
from nbf.contracts import BeliefModel, BeliefSource, Enumerable, Environment, Family, Filter, Policy, StateSpace
from nbf.environments.functional import One
from nbf.errors import InputError
from nbf.evaluation.calibration import Calibration, calibrate
from nbf.files.checkpoint import load_model, save_model
from nbf.filters.neural.filter import NeuralBayesianFilter
from nbf.filters.particle import ParticleFilter
from nbf.models.autoregressive import AutoregressiveConfig
from nbf.models.belief_model import MODELS, AnyDecoder, AnyEncoder, ModelConfig, space_config
from nbf.models.dequantization import DequantizedFlowConfig
from nbf.models.enumerated import EnumeratedDecoderConfig
from nbf.models.flow import CouplingFlowConfig
from nbf.models.mixture import MixtureConfig
from nbf.models.set_encoder import MeanConfig
from nbf.resampling.weights import effective_sample_size
from nbf.sources.exact import ExactPosteriors
from nbf.sources.filtered import FilterPosteriors
from nbf.spaces import Box, Lattice, Tokens
from nbf.training import intervals
from nbf.training.config import FitConfig
from nbf.training.fit import fit as train
from nbf.training.progress import Progress

LISTED = 4096
"""Up to this many cells of a lattice the decoder is a softmax over all of them."""
QUICK = FitConfig(
    steps=10_000, batch=32, samples=64, optimizer="adam", learning_rate=3e-3, schedule="cosine", random_sets=True,
    patience=5,
)  # fmt: skip
"""Of `fit`: enough for small problems, and stopped early where it is too much."""
POOLED = 20_000
"""Beliefs of a filter to train on: a belief costs a whole episode, so that each is used several times, with other
samples of it."""
LARGEST_POOL = 50_000_000
"""Numbers in a pool of beliefs; with more there are fewer beliefs."""
BELIEFS = 200
"""Unseen beliefs that a fitted model is measured on."""
TAUGHT = 64
"""Beliefs, and samples of each, by which the teacher itself is measured."""
LONGEST_NOTE = 4_000_000
"""Characters of what is known of a model: a hostile file must not cost memory."""


@dataclass(frozen=True)
class FittedModel:
    """A trained belief model, what it was trained on, and how good it is. `print` it."""

    model: BeliefModel
    config: ModelConfig
    calibration: Calibration
    """On beliefs that were never trained on."""
    teacher: str
    """Where the beliefs came from."""
    teacher_ess: float | None
    """Mean effective sample size of the particle filter that they came from; None where it was another filter."""
    on_walls: float
    """The share of their samples that lie exactly on a wall of a bounded box, before any `spread`."""
    steps: int
    """Of training: fewer than were allowed if it stopped early."""
    seconds: float
    """Of making the beliefs and of training, compilation included."""
    losses: Float[np.ndarray, " chunks"]
    """Training loss in nats per sample, a mean over every 20 steps."""
    held_out: Float[np.ndarray, " looks"]
    """Loss on held-out beliefs, every 1000 steps, which training stops early by."""

    def filter(self, num_particles: int = 32, *, max_attempts: int = 5) -> NeuralBayesianFilter:
        """A filter with this model."""
        return NeuralBayesianFilter(self.model, num_particles, max_attempts=max_attempts)

    def save(self, path: str | Path) -> None:
        """Keep the model and all that is known of it. `FittedModel.load` reads it back, `nbf.load_model` the model."""
        known = {name: getattr(self, name) for name in _KNOWN}
        save_model(path, self.model, self.config, fitted=json.dumps(known, default=_plain))

    @classmethod
    def load(cls, path: str | Path) -> FittedModel:
        """What `save` kept. Nothing in the file is ever executed."""
        model, config, metadata = load_model(path, MODELS)
        note = metadata.get("fitted")
        if note is None:
            raise InputError(f"{path} holds a model that nbf.fit did not save: read it with nbf.load_model.")
        try:
            if len(note) > LONGEST_NOTE:
                raise ValueError(f"{len(note)} characters")
            values = json.loads(note)
            calibration = Calibration(**_typed(Calibration, values.pop("calibration")))
            _check_shapes(calibration)
            return cls(model=model, config=config, calibration=calibration, **_typed(cls, values))
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise InputError(
                f"What is known of the model in {path} cannot be read ({error}); nbf.load_model reads the model alone."
            ) from error

    def __str__(self) -> str:
        ess = "" if self.teacher_ess is None else f" (ESS {self.teacher_ess:.0f} on average)"
        lines = [
            f"{type(self.config.decoder).__name__} for {self.model.space.signature}: {self.steps} steps in "
            f"{self.seconds:.0f} s on beliefs of {self.teacher}{ess}"
        ]
        if self.on_walls > 0:
            lines.append(
                f"{self.on_walls:.1%} of their samples lie on a wall of the box, under which a density has no bound: "
                "see `spread` of nbf.fit"
            )
        return "\n".join([*lines, "", str(self.calibration)])


_KNOWN = tuple(each.name for each in fields(FittedModel) if each.name not in ("model", "config"))


def decoder_for(space: StateSpace) -> AnyDecoder:
    """A decoder that suits a state space, without any knowledge of its beliefs."""
    if isinstance(space, Lattice):
        listed = space.size <= LISTED or space.dimension == 1
        return EnumeratedDecoderConfig() if listed else DequantizedFlowConfig()
    if isinstance(space, Tokens):
        return AutoregressiveConfig()
    if isinstance(space, Box):
        return CouplingFlowConfig("spline") if space.dimension > 1 else MixtureConfig()
    raise InputError(f"No decoder is known for {space.signature}; give one, or use a Box, a Lattice or Tokens.")


def fit(
    family: Family | Environment | tuple[Environment, Policy],
    *,
    horizon: int = 20,
    seed: int = 0,
    decoder: AnyDecoder | None = None,
    encoder: AnyEncoder | None = None,
    embedding: int = 32,
    particles: int = 1024,
    teacher: Filter | None = None,
    spread: float = 0.0,
    training: FitConfig = QUICK,
    steps: int | None = None,
    resume: str | Path | None = None,
    progress: bool = True,
) -> FittedModel:
    """Train a belief model for the environments and policies of a family, or for one environment and policy; an
    environment alone has the policy None.

    `horizon` is the length of the episodes whose beliefs are learned. These are exact where states can be listed, else
    those of a particle filter of `particles`; a `teacher` is another filter to take them from. Motion that the walls
    of a box stop leaves atoms on them: `spread` is how far beyond the walls they are spread (`FilterPosteriors`).
    `steps` is the most steps of training; `resume` names a file for the run in progress, with which a stopped one
    goes on.
    """
    family = _family(family)
    environment, _ = family.sample(prng.stream(seed, "fit"))
    space = environment.space
    _check_state(environment)
    source, name = _beliefs(family, environment, horizon, particles, teacher, spread)
    config = ModelConfig(
        space_config(space),
        decoder or decoder_for(space),
        encoder or MeanConfig(),
        embedding=embedding,
        context=0 if space.context is None else space.context.shape[-1],
    )
    settings = training if steps is None else replace(training, steps=steps)
    streams = [prng.stream(seed, "fit", name) for name in ("parameters", "training", "calibration", "teacher")]
    title = f"{type(config.decoder).__name__} for {space.signature}"
    model = config.build(streams[0])
    begin = time.monotonic()
    taught = _pool(prng.stream(seed, "fit", "pool"), source, settings, space, progress)
    made = time.monotonic() - begin
    fitted = train(
        model, taught, settings, key=streams[1], resume=resume, progress=progress, title=title,
        purpose=f"{config} on {horizon} steps of {name}, spread by {spread:g}, in {type(environment).__name__}",
        held_out=source,
    )  # fmt: skip
    calibration = _calibrate(streams[2], fitted.model, source, progress)
    ess, walls = _quality(streams[3], source)
    return FittedModel(
        fitted.model, config, calibration, name, ess, walls, len(fitted.losses) * intervals.CHUNK, made + fitted.seconds,
        fitted.losses, fitted.held_out,
    )  # fmt: skip


def _pool(
    key: Key[Array, ""], source: BeliefSource, settings: FitConfig, space: StateSpace, progress: bool
) -> BeliefSource:
    """What is trained on: exact posteriors as they come, all beliefs of many episodes where a filter makes them."""
    if not isinstance(source, FilterPosteriors):
        return source
    samples = 2 * settings.samples
    beliefs = min(POOLED, settings.steps * settings.batch, LARGEST_POOL // (samples * space.num_features))
    episodes = -(-max(beliefs, 1) // (source.horizon + 1))
    with Progress("beliefs", episodes, 0, enabled=progress, unit="episode") as bar:
        return source.pool(key, episodes=episodes, samples=samples, advance=bar.advance)


def _family(given: Family | Environment | tuple[Environment, Policy]) -> Family:
    if isinstance(given, Environment):
        return One(given, None)
    return One(*given) if isinstance(given, tuple) else given


def _check_state(environment: Environment) -> None:
    """Raise unless the environment's first state is one of its space, as far as shapes tell."""
    space = environment.space
    try:
        numbers = jax.eval_shape(lambda key: space.encode(environment.init(key)), jax.random.key(0))
        wrong = "" if numbers.shape == (space.num_features,) else f"it is encoded in shape {numbers.shape}"
    except Exception as error:
        wrong = f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}"
    if wrong:
        raise InputError(
            f"The state that `init` of {type(environment).__name__} draws is none of {space.signature}, which has "
            f"{space.num_features} numbers ({wrong}). nbf.testing.check_environment tells more."
        )


def _beliefs(
    family: Family, environment: Environment, horizon: int, particles: int, teacher: Filter | None, spread: float
) -> tuple[ExactPosteriors | FilterPosteriors, str]:
    """Exact posteriors where states can be listed, else those of a filter; and what they are called."""
    if horizon < 0 or particles < 2 or not spread >= 0:
        raise InputError(
            "fit needs a horizon of at least 0, at least 2 particles and a spread of at least 0; "
            f"got {horizon}, {particles} and {spread}."
        )
    if spread > 0 and not (isinstance(environment.space, Box) and environment.space.bounded):
        raise InputError(f"Only a bounded Box has walls to spread from; {environment.space.signature} has none.")
    if teacher is None and isinstance(environment, Enumerable):
        return ExactPosteriors(family, horizon), "the exact filter"
    teacher = ParticleFilter(particles) if teacher is None else teacher
    name = type(teacher).__name__
    if isinstance(teacher, ParticleFilter):
        name = f"a particle filter of {teacher.num_particles}"
    return FilterPosteriors(teacher, family, horizon, spread), name


def _calibrate(key: Key[Array, ""], model: BeliefModel, source: BeliefSource, progress: bool) -> Calibration:
    with Progress("calibration", BELIEFS, 0, enabled=progress, unit="belief") as bar:
        return calibrate(key, model, source, beliefs=BELIEFS, advance=bar.advance)


def _quality(key: Key[Array, ""], source: ExactPosteriors | FilterPosteriors) -> tuple[float | None, float]:
    """Of the teacher: the mean ESS if it is a particle filter, and the share of samples on a wall of the box."""
    if isinstance(source, ExactPosteriors):
        return None, 0.0
    ess, walls = _measured(jax.random.split(key, TAUGHT), replace(source, spread=0.0))
    return (float(ess) if isinstance(source.filter, ParticleFilter) else None), float(walls)


@eqx.filter_jit
def _measured(keys: Key[Array, " b"], source: FilterPosteriors) -> tuple[Array, Array]:
    def one(key: Key[Array, ""]) -> tuple[Array, Array]:
        belief_key, sample_key = jax.random.split(key)
        state, environment = source.posterior(belief_key)
        ess = effective_sample_size(state.log_weights) if isinstance(source.filter, ParticleFilter) else jnp.zeros(())
        space = environment.space
        if not isinstance(space, Box) or not space.bounded:
            return ess, jnp.zeros(())
        states = source.filter.belief(state, environment).sample(sample_key, TAUGHT)
        on_wall = (states <= jnp.asarray(space.low)) | (states >= jnp.asarray(space.high))
        return ess, jnp.mean(jnp.any(on_wall, axis=1))

    ess, walls = jax.vmap(one)(keys)
    return jnp.mean(ess), jnp.mean(walls)


# What is known of a model, as a note in its file


def _plain(value: Any) -> Any:
    """What JSON does not know by itself."""
    return asdict(value) if isinstance(value, Calibration) else np.asarray(value).tolist()


def _typed(kind: type, values: dict[str, Any]) -> dict[str, Any]:
    """The fields of a dataclass from plain values: text, numbers, and lists of numbers as arrays."""
    wanted = {each.name: str(each.type) for each in fields(kind) if each.name not in ("model", "config", "calibration")}
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
