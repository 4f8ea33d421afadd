"""A belief model that learns from what its filter meets: no exact posteriors, and no large teacher beforehand.

    learned = nbf.learn(family, horizon=20, rounds=20, resume="run.safetensors")
    print(learned)
    tracker = learned.filter(num_particles=32)

`nbf.fitting.learning` says what a round is.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp

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
from nbf.fitting.learning import LearnConfig, Learning, LearningState
from nbf.fitting.rungs import no_measurement
from nbf.fitting.teacher import LARGEST_POOL, horizon_of
from nbf.models.belief_model import AnyDecoder, AnyEncoder
from nbf.sources.met import MetBeliefs
from nbf.training import intervals
from nbf.training.config import described, last_step
from nbf.training.progress import Progress


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


MetIn = Family | Environment | tuple[Environment, Policy] | list[Recorded]
"""In what episodes are met."""


class LearningStopped(KeyboardInterrupt):
    """`nbf.learn` was interrupted. `learning` has what the last finished round left, and its `result()` is the learned
    model so far; with a `resume` file the same call goes on from there."""

    def __init__(self, learning: Learning):
        rounds = learning.done
        super().__init__(f"stopped after {rounds} rounds; `learning.result()` of this error is the model so far")
        self.learning = learning


@host_errors()
def learn(
    met: MetIn,
    config: LearnConfig = LearnConfig(),  # noqa: B008
    *,
    horizon: int | None = None,
    rounds: int = 20,
    start: FittedModel | None = None,
    seed: int = 0,
    decoder: AnyDecoder | None = None,
    encoder: AnyEncoder | None = None,
    embedding: int = 32,
    resume: str | Path | None = None,
    progress: bool = True,
) -> FittedModel:
    """Train a belief model on the beliefs that a filter with it meets.

    Args:
        met: What the episodes are met in: a family (or one environment, as for `nbf.fit`), which simulates them, or
            a list of recorded episodes, of which each round takes the next ones, and whose states are not known.
        config: How it learns.
        horizon: Length of simulated episodes; None is 20, or that of an `Episodic` family's own.
        rounds: How many, those of the `resume` file included.
        start: A model to begin with, with its trust; None begins with an untrained one.
        seed: Root seed of all randomness.
        decoder: Config of the decoder; None chooses by the state space, or is that of `start`.
        encoder: Config of the encoder; None chooses by the state space, or is that of `start`.
        embedding: Embedding size m, without `start`.
        resume: File of the run, written after each round. If it exists the run goes on from it, bit for bit as if it
            had not been stopped; with another family of the same kind, as if the world had changed.
        progress: Whether to show a progress bar.

    Returns:
        The model with its calibration on new beliefs, and its history. Ctrl-C raises `LearningStopped`.
    """
    check_counts("nbf.learn", rounds=rounds)
    if not isinstance(config, LearnConfig):
        raise InputError(f"config is an nbf.LearnConfig, such as LearnConfig(episodes=16); got {config!r}.")
    made = {"decoder": decoder, "encoder": encoder, "embedding": embedding}
    with without_alarms():
        learning = begin(met, config, horizon=horizon, rounds=rounds, start=start, seed=seed, **made)
        path, identity = None if resume is None else Path(resume), _identity(learning)
        if path is not None:
            _resumed(learning, path, identity)
        if learning.done > rounds:
            raise InputError(f"{path} has {learning.done} rounds; got rounds={rounds}. Ask for that many, or more.")
        return _learned(learning, rounds, path, identity, progress)


def begin(
    met: MetIn,
    config: LearnConfig = LearnConfig(),  # noqa: B008
    *,
    horizon: int | None = None,
    rounds: int = 1,
    start: FittedModel | None = None,
    seed: int = 0,
    decoder: AnyDecoder | None = None,
    encoder: AnyEncoder | None = None,
    embedding: int = 32,
) -> Learning:
    """Prepare a run of `learn`, whose rounds are made one by one with its `advance`.

    Args:
        met: What the episodes are met in.
        config: How it learns.
        horizon: Length of simulated episodes.
        rounds: For how many recorded episodes must do.
        start: A model to begin with.
        seed: Root seed of all randomness.
        decoder: Config of the decoder.
        encoder: Config of the encoder.
        embedding: Embedding size m.

    Returns:
        The run before its first round.
    """
    source = _source(met, horizon, prng.seed(seed), config.episodes, rounds)
    first = source(0)
    environment, policy = instance(first, 0)
    check_drawn(environment, policy)
    _check_fits(config, environment, states_known=first.states is not None)
    if start is None:
        built = model_config(environment.space, decoder, encoder, embedding)
        model, trust = built.build(prng.stream(seed, "learn", "parameters")), None
    else:
        if decoder is not None or encoder is not None:
            raise InputError("`start` has a decoder and an encoder already; leave these out, or leave out `start`.")
        check_space(start.model, environment)
        built, model, trust = start.config, start.model, start.trust
    samples, calls = 2 * config.training.samples, config.particles
    places = max(1, min(config.beliefs, LARGEST_POOL // (samples * environment.space.num_features)))
    one = jax.eval_shape(environment.init, jax.random.key(0))
    beliefs = MetBeliefs.empty(one, environment.space, places, samples, float(config.truth_share))
    state = LearningState(model, beliefs, no_measurement(calls, trust), [False] * len(calls), 0, 0, [], [], 0.0)
    return Learning(source, state, config, built, seed=seed, began_trained=start is not None)


def _source(
    met: MetIn, horizon: int | None, seed: int, episodes: int, rounds: int
) -> SimulatedEpisodes | RecordedEpisodes:
    """The episodes of each round."""
    if isinstance(met, list):
        if horizon is not None:
            raise InputError(f"Recorded episodes have a length of their own; leave out horizon={horizon}.")
        return RecordedEpisodes(met, episodes, rounds)
    family = as_family(met)
    horizon = horizon_of(family, horizon)
    check_counts("nbf.learn", horizon=horizon)
    return SimulatedEpisodes(family, seed, episodes, horizon)


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

    def __init__(self, recorded: list[Recorded], count: int, rounds: int):
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
        parts = [(each.environment, each.policy, each.observations) for each in recorded]
        shapes = {str([jnp.shape(leaf) for leaf in jax.tree.leaves(part)]) for part in parts}
        if len(shapes) > 1:
            raise InputError(
                "Recorded episodes must have one length and one shape of environment and policy; got arrays of shapes "
                f"{'; '.join(sorted(shapes))[:300]}. Cut them to one length."
            )
        if any(jax.tree.structure(part) != jax.tree.structure(parts[0]) for part in parts):
            raise InputError(
                "Recorded episodes must be of one kind of environment, with the same functions and constants; these "
                "differ in more than their arrays. Build the environment once, and exchange its `parameters`."
            )
        self.recorded, self.count = recorded, count
        self.horizon = int(jnp.shape(jax.tree.leaves(recorded[0].observations)[0])[0])

    def __call__(self, number: int) -> Episodes:
        """Take the episodes of a round."""
        chosen = self.recorded[number * self.count : (number + 1) * self.count]
        parts = [eqx.partition((e.environment, e.policy, e.observations), eqx.is_array_like) for e in chosen]
        arrays = jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *(p[0] for p in parts))
        return Episodes(*eqx.combine(arrays, parts[0][1]), states=None, changing=False)


def _check_fits(config: LearnConfig, environment: Environment, *, states_known: bool) -> None:
    """Raise if an option makes no sense for these episodes."""
    space = capability(environment.space, ContinuousSpace)
    if config.wall_band > 0 and (space is None or not space.walled.any()):
        raise InputError(f"Only a bounded Box has walls; wall_band was given for {environment.space.signature}.")
    if config.truth_share > 0 and not states_known:
        raise InputError("The true states of recorded episodes are not known; leave truth_share at 0.")


def _identity(learning: Learning) -> str:
    """What a file must agree with. Compared with run files: these words stay."""
    config = learning.config
    known = {
        "seed": learning.seed, "particles": config.particles, "tolerance": config.tolerance, "beliefs": config.beliefs,
        "wall_band": config.wall_band, "truth_share": config.truth_share, "training": described(config.training),
        "horizon": learning.episodes.horizon, "episodes": config.episodes, "model": str(learning.model_config),
        "began_trained": learning.began_trained,
    }  # fmt: skip
    return json.dumps(known)


def _resumed(learning: Learning, path: Path, identity: str) -> None:
    """Go on from the file if there is one; else begin it, since an unwritable folder is an error now."""
    remove_abandoned(path.parent, path.name, seconds=0.0)
    if path.exists():
        chunks = last_step(learning.config.training) // intervals.CHUNK
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
