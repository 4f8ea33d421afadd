"""A belief model that learns from what its filter meets: no exact posteriors, and no large teacher beforehand.

    learned = nbf.learn(family, horizon=20, rounds=20, resume="run.safetensors")
    print(learned)
    tracker = learned.filter(num_particles=32)

`nbf.fitting.learning` says what a round is.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from nbf import prng
from nbf.capabilities import ContinuousSpace
from nbf.capability import capability
from nbf.compiling import without_alarms
from nbf.contracts import Environment, Family, Observation, Policy
from nbf.environments.functional import as_family
from nbf.errors import InputError, host_errors
from nbf.files.atomic import remove_abandoned
from nbf.filters.checks import check_counts, check_space
from nbf.fitting import learning_file
from nbf.fitting.episodes import draw_episodes, instance
from nbf.fitting.filtering import Episodes
from nbf.fitting.fit import check_drawn, model_config
from nbf.fitting.fitted import FittedModel
from nbf.fitting.learning import Learning, LearningConfig, LearningState
from nbf.fitting.rungs import no_measurement
from nbf.fitting.teacher import LARGEST_POOL, horizon_of
from nbf.models.belief_model import AnyDecoder, AnyEncoder
from nbf.sources.met import MetBeliefs
from nbf.training import intervals
from nbf.training.config import FitConfig, described, last_step
from nbf.training.progress import Progress

ROUND = FitConfig(
    steps=500, batch=32, samples=64, optimizer="adam", learning_rate=3e-3, schedule="cosine", random_sets=True
)
"""Training of one round."""
PLACES = 20_000
"""Beliefs that are kept, at most."""


@dataclass(frozen=True)
class Recorded:
    """One recorded episode, of which the hidden states are not known. Episodes of a run have one length and one shape
    of environment and policy."""

    environment: Environment
    """Of the whole episode."""
    policy: Policy
    """Of the whole episode."""
    observations: Observation
    """y_1..y_T, with a leading axis."""


class LearningStopped(KeyboardInterrupt):
    """`nbf.learn` was interrupted. `learning` has what the last finished round left, and its `result()` is the learned
    model so far; with a `resume` file the same call goes on from there."""

    def __init__(self, learning: Learning):
        rounds = learning.done
        super().__init__(f"stopped after {rounds} rounds; `learning.result()` of this error is the model so far")
        self.learning = learning


@host_errors()
def learn(
    met: Family | Environment | tuple[Environment, Policy] | Sequence[Recorded],
    *,
    horizon: int | None = None,
    rounds: int = 20,
    episodes: int = 16,
    particles: Sequence[int] = (512, 128, 32),
    tolerance: float = 0.05,
    start: FittedModel | None = None,
    seed: int = 0,
    decoder: AnyDecoder | None = None,
    encoder: AnyEncoder | None = None,
    embedding: int = 32,
    wall_band: float = 0.0,
    truth_share: float = 0.0,
    training: FitConfig = ROUND,
    resume: str | Path | None = None,
    progress: bool = True,
) -> FittedModel:
    """Train a belief model on the beliefs that a filter with it meets.

    Args:
        met: What the episodes are met in: a family (or one environment, as for `nbf.fit`), which simulates them, or
            recorded episodes, of which each round takes the next ones, and of whose states nothing is known.
        horizon: Length of simulated episodes; None is 20, or that of an `Episodic` family's own.
        rounds: How many, those of the `resume` file included.
        episodes: Met in each round, at least 2.
        particles: Calls of the simulator at each step, from many to few: first those of a filter without a model, then
            those that the neural filter is tried with, one after another.
        tolerance: Nats a step of log score (of log evidence, with recorded episodes) that fewer particles may lose.
        start: A model to begin with, with its trust; None begins with an untrained one.
        seed: Root seed of all randomness.
        decoder: Config of the decoder; None chooses by the state space, or is that of `start`.
        encoder: Config of the encoder; None chooses by the state space, or is that of `start`.
        embedding: Embedding size m, without `start`.
        wall_band: Width of the band beyond the walls of a box over which samples on them are widened in training.
        truth_share: Of the samples that training scores, how many are the true state of a simulated episode instead of
            a sample of the filter's own belief.
        training: Settings of the training of each round.
        resume: File of the run, written after each round. If it exists the run goes on from it, bit for bit as if it
            had not been stopped; with another family of the same kind, as if the world had changed.
        progress: Whether to show a progress bar.

    Returns:
        The model with its calibration on new beliefs, and its history. Ctrl-C raises `LearningStopped`.
    """
    check_counts("nbf.learn", rounds=rounds)
    settings = _settings(seed, particles, tolerance, wall_band, truth_share, training, episodes)
    if isinstance(met, Sequence) and not isinstance(met, tuple):
        source = RecordedEpisodes(met, episodes, rounds)
        horizon = source.horizon
    else:
        family = as_family(met)
        horizon = horizon_of(family, horizon)
        check_counts("nbf.learn", horizon=horizon)
        source = SimulatedEpisodes(family, seed, episodes, horizon)
    with without_alarms():
        learning = _begun(source, settings, start, (decoder, encoder, embedding))
        path = None if resume is None else Path(resume)
        identity = _identity(learning, horizon, episodes)
        if path is not None:
            _resumed(learning, path, identity)
        if learning.done > rounds:
            raise InputError(
                f"{path} has {learning.done} rounds already; got rounds={rounds}. Ask for as many or more."
            )
        return _learned(learning, rounds, path, identity, progress)


@dataclass(frozen=True)
class SimulatedEpisodes:
    """Episodes of a family, new ones in every round."""

    family: Family
    seed: int
    count: int
    horizon: int

    def __call__(self, number: int) -> Episodes:
        """Draw the episodes of a round."""
        return draw_episodes(self.family, prng.stream(self.seed, "learn", number, "episodes"), self.count, self.horizon)


class RecordedEpisodes:
    """Recorded episodes, of which each round takes the next ones."""

    def __init__(self, recorded: Sequence[Recorded], count: int, rounds: int):
        """Check them.

        Args:
            recorded: The episodes.
            count: Of each round.
            rounds: How many will be asked for; one more is for the judgement at the end.
        """
        for place, each in enumerate(recorded):
            if not isinstance(each, Recorded):
                raise InputError(
                    f"nbf.learn takes a family, or a list of nbf.Recorded episodes; entry {place} is {each!r:.60}."
                )
        if len(recorded) < count * (rounds + 1):
            raise InputError(
                f"{rounds} rounds of {count} episodes, and one to judge by, need {count * (rounds + 1)} recorded "
                f"episodes; got {len(recorded)}. Ask for fewer rounds, or fewer episodes in each."
            )
        shapes = {str(jax.tree.map(jnp.shape, (each.environment, each.policy, each.observations))) for each in recorded}
        if len(shapes) > 1:
            raise InputError(
                f"Recorded episodes must have one length and one shape of environment and policy; got {len(shapes)} "
                f"kinds: {'; '.join(sorted(shapes))[:300]}. Cut them to one length."
            )
        self.recorded, self.count = recorded, count
        self.horizon = int(jnp.shape(jax.tree.leaves(recorded[0].observations)[0])[0])

    def __call__(self, number: int) -> Episodes:
        """Take the episodes of a round."""
        chosen = self.recorded[number * self.count : (number + 1) * self.count]
        parts = [eqx.partition((e.environment, e.policy, e.observations), eqx.is_array_like) for e in chosen]
        arrays = jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *(p[0] for p in parts))
        return Episodes(*eqx.combine(arrays, parts[0][1]), states=None, changing=False)


def _settings(
    seed: int, particles: Sequence[int], tolerance: float, wall_band: float, truth_share: float, training: FitConfig,
    episodes: int,
) -> LearningConfig:  # fmt: skip
    """The settings, checked."""
    check_counts("nbf.learn", least=2, episodes=episodes)
    ladder = tuple(particles)
    for calls in ladder:
        check_counts("nbf.learn", particles=calls)
    if len(ladder) < 2 or any(a <= b for a, b in itertools.pairwise(ladder)):
        raise InputError(
            f"particles are the calls of a filter without a model, and then fewer and fewer with one, such as "
            f"(512, 128, 32); got {ladder}."
        )
    for name, number in (("tolerance", tolerance), ("wall_band", wall_band)):
        if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number < math.inf:
            raise InputError(f"nbf.learn needs a number of 0 or more as {name}; got {name}={number!r}.")
    return LearningConfig(prng.seed(seed), ladder, float(tolerance), float(wall_band), truth_share, training)


def _begun(
    source: SimulatedEpisodes | RecordedEpisodes,
    settings: LearningConfig,
    start: FittedModel | None,
    network: tuple[AnyDecoder | None, AnyEncoder | None, int],
) -> Learning:
    """A run before its first round."""
    first = source(0)
    environment, policy = instance(first, 0)
    check_drawn(environment, policy)
    if start is None:
        config = model_config(environment.space, *network)
        model = config.build(prng.stream(settings.seed, "learn", "parameters"))
    else:
        if network[0] is not None or network[1] is not None:
            raise InputError("`start` has a decoder and an encoder already; leave these out, or leave out `start`.")
        check_space(start.model, environment)
        config, model = start.config, start.model
    if settings.wall_band > 0:
        space = capability(environment.space, ContinuousSpace)
        if space is None or not space.walled.any():
            raise InputError(f"Only a bounded Box has walls; wall_band was given for {environment.space.signature}.")
    if settings.truth_share > 0 and first.states is None:
        raise InputError("The true states of recorded episodes are not known; leave truth_share at 0.")
    ladder, samples = settings.ladder, 2 * settings.training.samples
    places = min(PLACES, LARGEST_POOL // (samples * environment.space.num_features))
    one = jax.eval_shape(environment.init, jax.random.key(0))
    beliefs = MetBeliefs.empty(one, environment.space, places, samples, settings.truth_share)
    trust = no_measurement(ladder, None if start is None else start.trust)
    state = LearningState(model, beliefs, trust, [False] * len(ladder), 0, [], [], 0.0)
    return Learning(source, state, settings, config, began_trained=start is not None)


def _identity(learning: Learning, horizon: int, episodes: int) -> str:
    """What a file must agree with. Compared with run files: these words stay."""
    settings = learning.settings
    known = {
        "seed": settings.seed, "particles": settings.ladder, "tolerance": settings.tolerance,
        "wall_band": settings.wall_band, "truth_share": settings.truth_share, "training": described(settings.training),
        "horizon": horizon, "episodes": episodes, "model": str(learning.model_config),
        "began_trained": learning.began_trained,
    }  # fmt: skip
    return json.dumps(known, default=np.ndarray.tolist)


def _resumed(learning: Learning, path: Path, identity: str) -> None:
    """Go on from the file if there is one; else begin it, since an unwritable folder is an error now."""
    remove_abandoned(path.parent, path.name, seconds=0.0)
    if path.exists():
        chunks = last_step(learning.settings.training) // intervals.CHUNK
        learning.state = learning_file.load(path, learning.state, identity, chunks)
    else:
        learning_file.save(path, learning.state, identity)


def _learned(learning: Learning, rounds: int, path: Path | None, identity: str, progress: bool) -> FittedModel:
    """Make the rounds that are left."""
    try:
        with Progress("learning", rounds, learning.done, enabled=progress, unit="round") as bar:
            while learning.done < rounds:
                training = None if path is None else path.with_name(f"{path.name}.round-{learning.done}")
                learning.advance(training)
                if path is not None:
                    learning_file.save(path, learning.state, identity)
                if training is not None:
                    training.unlink(missing_ok=True)
                bar.update(learning.done, learning.state.rounds[-1].loss)
        return learning.result()
    except KeyboardInterrupt:
        raise LearningStopped(learning) from None
