"""One call from a family of environments to a trained filter with a known calibration.

    fitted = nbf.fit(family, horizon=20)
    print(fitted)
    tracker = fitted.filter(num_particles=32)

By default the state space chooses the decoder, and the training beliefs come from the exact filter where states can be
enumerated, else from a large particle filter.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nbf import prng
from nbf.calls import check_policy, check_state_fits, why_not_without_policy
from nbf.capabilities import ContinuousSpace, FiniteSpace, SequenceSpace
from nbf.capability import capability
from nbf.compiling import without_alarms
from nbf.contracts import Environment, Family, Filter, Policy, StateSpace
from nbf.devices import Devices, check_divisible
from nbf.environments.functional import as_family
from nbf.errors import InputError, host_errors
from nbf.evaluation.calibration import calibrate
from nbf.executors import Executor
from nbf.fitting.budget import Budget
from nbf.fitting.episodes import warn_of_illegal_states
from nbf.fitting.fitted import FittedModel
from nbf.fitting.teacher import (
    Posteriors,
    TeacherQuality,
    belief_source,
    checked,
    horizon_of,
    pooled,
    reference_of,
)
from nbf.fitting.trial import TrialStopped, check_trial, with_trial
from nbf.fitting.trust import MeasuredTrust, earned_trust, settings_to_try
from nbf.models.autoregressive import AutoregressiveConfig
from nbf.models.belief_model import AnyDecoder, AnyEncoder, ModelConfig, space_config
from nbf.models.dequantization import DequantizedFlowConfig
from nbf.models.enumerated import EnumeratedDecoderConfig
from nbf.models.mixture import MixtureConfig
from nbf.models.set_encoder import MeanConfig, OneHotConfig
from nbf.training import intervals
from nbf.training.config import FitConfig
from nbf.training.fit import Fitted, train
from nbf.training.log import TrainingLog
from nbf.training.progress import Progress

__all__ = ["decoder_for", "encoder_for", "fit", "train"]

LARGEST_SOFTMAX = 4096
"""Cells of the largest lattice whose decoder is a softmax over all of them."""
DEFAULT_TRAINING = FitConfig(
    steps=20_000, batch=32, samples=64, optimizer="adam", learning_rate=3e-3, schedule="cosine", random_sets=True,
    patience=5,
)  # fmt: skip
"""At most; it stops early where fewer steps do."""
CALIBRATION_BELIEFS = 200
"""New beliefs on which a fitted model is calibrated."""


def decoder_for(space: StateSpace) -> AnyDecoder:
    """Choose a decoder for a state space, without any knowledge of the beliefs over it.

    Args:
        space: Space of the states.

    Returns:
        The decoder's config.
    """
    finite = capability(space, FiniteSpace)
    if finite is not None:
        listed = finite.size <= LARGEST_SOFTMAX or finite.dimension == 1
        return EnumeratedDecoderConfig() if listed else DequantizedFlowConfig()
    if capability(space, SequenceSpace) is not None:
        return AutoregressiveConfig()
    if capability(space, ContinuousSpace) is not None:
        return MixtureConfig()
    raise InputError(f"No decoder is known for {space.signature}; give one, or use a Box, a Lattice or Tokens.")


def encoder_for(space: StateSpace) -> AnyEncoder:
    """Choose an encoder for a state space.

    Args:
        space: Space of the states.

    Returns:
        The encoder's config: one-hot for up to `LARGEST_SOFTMAX` states without an order, else the paper's.
    """
    finite = capability(space, FiniteSpace)
    if finite is not None and not finite.ordered and finite.size <= LARGEST_SOFTMAX:
        return OneHotConfig(finite.shape)
    return MeanConfig()


@host_errors()
def fit(
    family: Family | Environment | tuple[Environment, Policy], *, horizon: int | None = None, seed: int = 0,
    decoder: AnyDecoder | None = None, encoder: AnyEncoder | None = None, embedding: int = 32,
    particles: int = 1024, teacher: Filter | None = None, wall_band: float = 0.0,
    training: FitConfig = DEFAULT_TRAINING, minutes: float | None = None, steps: int | None = None,
    resume: str | Path | None = None, trial: int = 16, progress: bool = True,
    executor: Executor | None = None, devices: Devices | None = None, log: TrainingLog | None = None,
) -> FittedModel:  # fmt: skip
    """Train a belief model for the environments and policies of a family.

    Args:
        family: A family, one environment with its policy, or one environment whose policy is None.
        horizon: Length of the episodes whose beliefs are learned; None is 20, or that of an `Episodic` family's own.
        seed: Root seed of all randomness.
        decoder: Config of the decoder; None chooses by the state space.
        encoder: Config of the encoder; None chooses by the state space.
        embedding: Embedding size m.
        particles: Size of the particle filter that makes the training beliefs where states cannot be enumerated.
        teacher: Another filter to take the training beliefs from.
        wall_band: Width of the band beyond the walls of a box over which samples on them are widened in training.
        training: Settings of training.
        minutes: Time to plan with, compilation included: a quarter of it for beliefs, half for training, and a quarter
            for what is measured afterwards. That is not cut short, so it may take longer; `trial=0` leaves a part of it
            out, and Ctrl-C keeps the model. None is 5, unless `steps` is named.
        steps: Number of training steps, at most, however long they take; they are done 20 at a time.
        resume: File of the run in progress, from which a stopped run continues.
        trial: Episodes on which the filter is tried at the end, beside others and its ceiling; 0 for none.
        progress: Whether to show progress bars.
        executor: Who makes the training beliefs, if they are a filter's (`nbf.executors`); None: this process.
        devices: Devices that share the beliefs of each training step, as in `nbf.train`; None: the default device.
        log: Told the losses of training as they are measured, such as `nbf.TensorBoard(folder)`; None: nobody.

    Returns:
        The trained model with its calibration and its trial. Ctrl-C while trust or trial are measured raises
        `TrialStopped`, with the model.
    """
    check_trial(trial)
    budget, family, network = Budget.of(minutes, steps), as_family(family), (decoder, encoder, embedding)
    made = {"horizon": horizon_of(family, horizon), "particles": particles, "teacher": teacher, "wall_band": wall_band}
    settings = training if steps is None else replace(training, steps=steps)
    how = _How(settings, budget, resume, progress, executor, devices, log)
    return with_trial(family, _fitted(seed, family, made, network, how), trial, made["horizon"], seed, progress)


@dataclass(frozen=True)
class _How:
    """How `fit` trains."""

    settings: FitConfig
    budget: Budget
    resume: str | Path | None
    progress: bool
    executor: Executor | None
    devices: Devices | None
    log: TrainingLog | None


def _fitted(
    seed: int,
    family: Family,
    taught: dict[str, Any],
    network: tuple[AnyDecoder | None, AnyEncoder | None, int],
    how: _How,
) -> FittedModel:
    """The trained model with what is measured of it."""
    if how.devices is not None:  # before beliefs are made, which takes long
        check_divisible(how.settings.batch, how.devices, "The batch of training")
    environment = _drawn(family, seed)
    warn_of_illegal_states(family, prng.stream(seed, "fit", "states"), taught["horizon"])
    config = model_config(environment.space, *network)
    source, name, quality = _taught(seed, family, environment, taught)
    purpose = _purpose(config, taught["horizon"], name, taught["wall_band"], environment)
    with without_alarms():
        trained, before = _train(seed, config, source, environment.space, purpose, how)
        fitted = _measured(seed, trained, config, source, name, quality, how.progress)
        try:
            trust = _trust(seed, trained, family, environment, taught["horizon"], how.progress)
        except KeyboardInterrupt:
            raise TrialStopped(replace(fitted, seconds=before + how.budget.spent)) from None
    return replace(fitted, trust=trust, seconds=before + how.budget.spent)


def _purpose(config: ModelConfig, horizon: int, name: str, wall_band: float, environment: Environment) -> str:
    """What is trained on what. Hashed and compared with run files: these words stay."""
    return f"{config} on {horizon} steps of {name}, spread by {wall_band:g}, in {type(environment).__name__}"


def _taught(
    seed: int, family: Family, environment: Environment, options: dict[str, Any]
) -> tuple[Posteriors, str, TeacherQuality]:
    """Beliefs to train on, a name for them, and what is known of their teacher."""
    source, name = belief_source(family, environment, **options)
    key, replaceable = prng.stream(seed, "fit", "teacher"), options["teacher"] is None
    with without_alarms():
        return checked(key, source, name, environment, replaceable=replaceable)


def _train(
    seed: int, config: ModelConfig, source: Posteriors, space: StateSpace, purpose: str, how: _How
) -> tuple[Fitted, float]:
    """Train a new model; also the seconds of training in sessions before this one, if the run was resumed."""
    model = config.build(prng.stream(seed, "fit", "parameters"))
    key, seconds = prng.stream(seed, "fit", "pool"), how.budget.for_beliefs()
    pool = pooled(key, source, how.settings, space, seconds=seconds, progress=how.progress, executor=how.executor)
    begin = time.monotonic()
    trained = train(
        model, pool, how.settings, key=prng.stream(seed, "fit", "training"), resume=how.resume, progress=how.progress,
        title=f"{type(config.decoder).__name__} for {space.signature}", purpose=purpose, held_out=source,
        seconds=how.budget.for_training(), devices=how.devices, log=how.log,
    )  # fmt: skip
    return trained, max(0.0, trained.seconds - (time.monotonic() - begin))


def model_config(
    space: StateSpace, decoder: AnyDecoder | None, encoder: AnyEncoder | None, embedding: int
) -> ModelConfig:
    """Choose the config of a model.

    Args:
        space: Of the states.
        decoder: Config of the decoder; None chooses one.
        encoder: Config of the encoder; None chooses one.
        embedding: Embedding size m.

    Returns:
        The config.
    """
    context = 0 if space.context is None else space.context.shape[-1]
    return ModelConfig(
        space_config(space),
        decoder or decoder_for(space),
        encoder or encoder_for(space),
        embedding=embedding,
        context=context,
    )


def _drawn(family: Family, seed: int) -> Environment:
    """An environment of the family, checked with its policy."""
    environment, policy = family.sample(prng.stream(seed, "fit"))
    check_drawn(environment, policy)
    return environment


def check_drawn(environment: Environment, policy: Policy) -> None:
    """Raise unless the initial state of an environment fits its space, and it takes the policy, as far as shapes tell.

    Args:
        environment: One of a family.
        policy: Drawn with it.
    """
    check_policy(environment, policy)
    check_state_fits(environment)
    reason = why_not_without_policy(environment) if policy is None else None
    if reason is not None:
        raise InputError(
            f"There is no policy, and `transition` of {type(environment).__name__} fails without one ({reason}). Give "
            "(environment, policy), or a family that draws both."
        )


def _measured(
    seed: int,
    trained: Fitted,
    config: ModelConfig,
    source: Posteriors,
    name: str,
    quality: TeacherQuality,
    progress: bool,
) -> FittedModel:
    """The trained model with its calibration on new beliefs, and its teacher's quality."""
    with Progress("calibration", CALIBRATION_BELIEFS, 0, enabled=progress, unit="belief") as bar:
        calibration = calibrate(
            prng.stream(seed, "fit", "calibration"), trained.model, source, beliefs=CALIBRATION_BELIEFS,
            advance=bar.advance,
        )  # fmt: skip
    return FittedModel(
        trained.model, config, calibration, name, quality.ess, quality.on_walls,
        len(trained.losses) * intervals.CHUNK, trained.seconds, trained.losses, trained.held_out, reference_of(source),
    )  # fmt: skip


def _trust(
    seed: int, trained: Fitted, family: Family, environment: Environment, horizon: int, progress: bool
) -> MeasuredTrust | None:
    """How far the model is trusted beside particles. A model that is trained is not lost for it: what goes wrong is a
    warning, and the default stays."""
    runs = settings_to_try(environment)
    if not runs:
        return None
    try:
        with Progress("trust in the model", runs, 0, enabled=progress, unit="run") as bar:
            key = prng.stream(seed, "fit", "trust")
            return earned_trust(key, trained.model, family, environment, horizon=horizon, advance=bar.advance)
    except Exception as error:
        warnings.warn(
            f"The model is trained, but how far to trust it beside particles could not be measured: {error}",
            stacklevel=4,
        )
        return None
