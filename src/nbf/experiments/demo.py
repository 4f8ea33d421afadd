"""The demo, and the paper's Figure "gridworld-example": what each filter believes in one 8 x 8 grid.

All filters run on a few dozen episodes, so that the table is not one episode's luck. The one of them
that is shown is the one in which the agent goes furthest: there is most to see, and how well any
filter does has no part in the choice.

Most of the demo's minute is compilation, so all filters and episodes are tracked by one compiled
function, and all beliefs of the neural filters are decoded by another.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from nbf import prng
from nbf.beliefs.modelled import ModelBelief
from nbf.beliefs.sources import rollout
from nbf.config import GridworldConfig
from nbf.contracts import BeliefModel, Filter, FilterState, InputError, Policy
from nbf.environments.gridworld import Gridworld
from nbf.evaluation.divergence import jensen_shannon, state_probabilities
from nbf.evaluation.evaluate import mean_and_error, update_microseconds
from nbf.experiments.contenders import Contender
from nbf.experiments.gridworld import Counter, EvaluationConfig, contenders, family_of
from nbf.filters.neural import NeuralBayesianFilter, NeuralState
from nbf.filters.run import run
from nbf.report.plots import Episode
from nbf.report.tables import label
from nbf.shipped import shipped_model

GRID = GridworldConfig.parse("8-2D-random")
"""What the shipped model was trained for."""
PARTICLE_FILTERS = (32, 128, 512)
BATCH = 16
"""Episodes whose beliefs are decoded at once: few enough for the flow's quadrature to stay in the cache."""
RUNS_ONCE = {"xla_backend_optimization_level": 0}
"""For a function that runs once: 10 seconds to compile instead of 25, and still one to run."""
MOST_STEPS, MOST_PARTICLES = 200, 4096
TIMED_UPDATES = 300


@dataclass(frozen=True)
class DemoConfig:
    """What the demo shows."""

    seed: int = 0
    steps: int = 20
    """Length of every episode."""
    particles: tuple[int, ...] = (16, 32)
    """Particle counts of the neural filters."""
    episodes: int = 64
    """Episodes behind the means, the one that is shown among them."""

    def __post_init__(self) -> None:
        if not 1 <= self.steps <= MOST_STEPS:
            raise InputError(f"The demo draws every step: an episode has 1 to {MOST_STEPS} of them; got {self.steps}.")
        if not self.particles or not all(1 <= n <= MOST_PARTICLES for n in self.particles):
            raise InputError(
                f"The demo needs at least one neural filter, each of 1 to {MOST_PARTICLES} particles; "
                f"got {list(self.particles) or 'none'}."
            )
        if self.episodes < 2:
            raise InputError(f"A mean with a standard error needs at least 2 episodes; got {self.episodes}.")


@dataclass(frozen=True)
class Row:
    """One filter in the demo's table."""

    filter: str
    js_episode: float
    """Mean over the steps of the episode that is shown."""
    js: float
    """Mean over the steps of all episodes."""
    js_se: float
    """Its standard error over episodes."""
    ess: float | None
    """Mean over steps and episodes; None for the exact filter, which has no particles."""
    calls: int
    """Simulator calls per update."""
    microseconds: float
    """Median time of one `step` in this process, the call from Python included."""


@dataclass(frozen=True)
class Demo:
    """What the demo found."""

    config: DemoConfig
    rows: tuple[Row, ...]
    episode: Episode
    """The shown episode as seen by the exact, the smallest particle and the first neural filter."""


class Tracks(eqx.Module):
    """One episode and what every filter carried through it. Steps run from 0, before any observation."""

    environment: Gridworld
    policy: Policy
    path: Int[Array, "steps d"]
    observations: Int[Array, " moves"]
    starts: list[FilterState]
    """For each filter."""
    looks: list[Float[Array, "steps _"]]
    """For each filter: the probabilities of the cells or, for a neural filter, the embedding."""
    ess: list[Float[Array, " moves"]]
    """For each filter."""


class Scores(eqx.Module):
    """The beliefs of every filter in one episode, and their divergence from those of the first."""

    probs: Float[Array, "filters steps cells"]
    js: Float[Array, "filters steps"]


def competitors(model: BeliefModel, particle: Sequence[int], neural: Sequence[int]) -> list[Contender]:
    """Exact, particle filters and neural filters of these sizes, in the order of the table."""
    settings = EvaluationConfig(particle_filters=tuple(particle), neural_filters=tuple(neural))
    rows = contenders(GRID, "faithful", model, settings)
    return [row for name in ("exact", "pf", "nbf") for row in rows if row.name == name]


def demonstrate(config: DemoConfig, bar: Counter) -> Demo:
    """Run the filters on the demo's episodes, score them and time their updates."""
    rows = competitors(shipped_model(GRID.name), PARTICLE_FILTERS, config.particles)
    tracks = tracked(rows, config, bar)
    scores = scored(rows, tracks, bar)
    shown = furthest(np.asarray(tracks.path))
    track, key = _pick(tracks, shown), prng.stream(config.seed, "demo", "timing")
    told = jax.device_put((track.environment, track.policy))
    symbols = np.resize(track.observations, TIMED_UPDATES + 1).tolist()
    inputs = [(key, symbol, *told) for key, symbol in zip(jax.random.split(key, len(symbols)), symbols, strict=True)]
    speeds = []
    for row, start in zip(rows, track.starts, strict=True):
        bar.describe(f"timing one update: {label(row.name, row.arm, row.particles)}")
        speeds.append(update_microseconds(row.filter.step, jax.device_put(start), inputs))
    table = tuple(_row(row, tracks, scores, (shown, place), speeds[place]) for place, row in enumerate(rows))
    return Demo(config, table, _episode(rows, track, _pick(scores, shown)))


def example_episode(config: DemoConfig, bar: Counter) -> Episode:
    """The episode that the demo shows, without its table: the figure of the documentation."""
    rows = competitors(shipped_model(GRID.name), PARTICLE_FILTERS[:1], config.particles[:1])
    tracks = tracked(rows, config, bar)
    shown = furthest(np.asarray(tracks.path))
    alone = jax.tree.map(lambda leaf: leaf[shown : shown + 1], tracks)
    return _episode(rows, _pick(alone, 0), _pick(scored(rows, alone, bar), 0))


def furthest(paths: Int[np.ndarray, "episodes steps d"]) -> int:
    """The episode with most moves, the first of several."""
    return int(np.argmax(np.abs(np.diff(paths, axis=1)).sum(axis=(1, 2))))


def tracked(rows: Sequence[Contender], config: DemoConfig, bar: Counter) -> Tracks:
    """Every filter on every episode; here and in `scored` the first axis of every array is the episodes."""
    bar.describe(f"compiling and running {len(rows)} filters on {config.episodes} episodes")
    keys = jax.random.split(prng.stream(config.seed, "demo", "episodes"), config.episodes)
    one = functools.partial(track_episode, rows, config.steps)
    return jax.tree.map(np.asarray, jax.jit(jax.vmap(one), compiler_options=RUNS_ONCE)(keys))


def scored(rows: Sequence[Contender], tracks: Tracks, bar: Counter) -> Scores:
    """The beliefs of every filter, compared with the exact ones."""
    bar.describe("comparing their beliefs with the exact ones")
    one = functools.partial(score_episode, rows)
    batch = min(BATCH, len(tracks.path))
    return jax.tree.map(np.asarray, jax.jit(functools.partial(jax.lax.map, one, batch_size=batch))(tracks))


def track_episode(rows: Sequence[Contender], steps: int, key: Key[Array, ""]) -> Tracks:
    """A random grid and goal, an episode in it, and every filter on what was observed."""
    instance_key, episode_key, filter_key = jax.random.split(key, 3)
    environment, policy = family_of(GRID, 0).sample(instance_key)
    assert isinstance(environment, Gridworld)
    path, observations = rollout(episode_key, environment, policy, steps)
    starts, looks, ess = [], [], []
    for row in rows:
        look = functools.partial(_look, row.filter, environment)
        start = row.filter.init(jax.random.split(filter_key)[0], environment)  # as `run` itself starts
        rest, info = run(row.filter, filter_key, observations, environment, policy, look=look)
        starts.append(start)
        looks.append(jnp.concatenate([look(start)[None], rest]))
        ess.append(info.ess)
    return Tracks(environment, policy, path, observations, starts, looks, ess)


def _look(filter: Filter, environment: Gridworld, state: FilterState) -> Float[Array, " k"]:
    if isinstance(state, NeuralState):
        return state.embedding
    return state_probabilities(filter.belief(state, environment), environment)


def score_episode(rows: Sequence[Contender], tracks: Tracks) -> Scores:
    """Decode the neural filters' embeddings, all at once so that the flow is compiled once, and one
    step after the other so that its quadrature stays in the cache; then compare."""
    environment = tracks.environment
    neural = [place for place, row in enumerate(rows) if isinstance(row.filter, NeuralBayesianFilter)]
    model = rows[neural[0]].filter.model  # pyright: ignore[reportAttributeAccessIssue]

    def decode(embedding: Float[Array, " m"]) -> Float[Array, " cells"]:
        probs = state_probabilities(ModelBelief(model, embedding, environment.space), environment)
        return probs / jnp.sum(probs)

    embeddings = jnp.stack([tracks.looks[place] for place in neural], axis=1)
    decoded = jnp.moveaxis(jax.lax.map(jax.vmap(decode), embeddings), 1, 0)
    probs = jnp.stack([decoded[neural.index(i)] if i in neural else look for i, look in enumerate(tracks.looks)])
    return Scores(probs, jax.vmap(jax.vmap(jensen_shannon), (None, 0))(probs[0], probs))


def _pick(batch: Any, episode: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[episode], batch)


def _row(row: Contender, tracks: Tracks, scores: Scores, at: tuple[int, int], microseconds: float) -> Row:
    shown, place = at
    js = scores.js[:, place, 1:].mean(axis=-1)  # before the first observation there is nothing to filter
    mean, error = mean_and_error(np.asarray(js))
    ess = None if row.name == "exact" else float(tracks.ess[place].mean())
    name = label(row.name, row.arm, row.particles)
    return Row(name, float(js[shown]), float(mean), float(error), ess, row.calls, microseconds)


def _episode(rows: Sequence[Contender], tracks: Tracks, scores: Scores) -> Episode:
    """The three filters that fit side by side."""
    shown = [next(place for place, row in enumerate(rows) if row.name == name) for name in ("exact", "pf", "nbf")]
    names = {place: label(rows[place].name, rows[place].arm, rows[place].particles) for place in shown}
    legal = tracks.environment.space.legal
    assert legal is not None
    return Episode(
        walls=~np.asarray(legal).reshape(GRID.shape),
        goal=np.asarray(tracks.policy.goal),
        path=np.asarray(tracks.path),
        symbols=np.asarray(tracks.observations),
        beliefs={name: np.asarray(scores.probs[place]).reshape(-1, *GRID.shape) for place, name in names.items()},
        js={name: np.asarray(scores.js[place]) for place, name in names.items() if place != shown[0]},
    )
