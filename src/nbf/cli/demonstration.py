"""The demo, and the paper's Figure "gridworld-example": what each filter believes in one 8 x 8 grid.

All filters run on a few dozen episodes, so that the table is not one episode's luck. The one of them
that is shown is the one in which the agent goes furthest: there is most to see, and how well any
filter does has no part in the choice.

Most of the demo's minute is compilation, so all filters and episodes are tracked by one compiled
function, and all beliefs of the neural filters are decoded by another.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from nbf import prng
from nbf.beliefs.model import ModelBelief
from nbf.contracts import BeliefModel, Filter, FilterState, Policy
from nbf.environments.gridworld import Gridworld, gridworld_family
from nbf.environments.rollout import rollout
from nbf.errors import InputError
from nbf.evaluation.batches import mean_and_error, update_microseconds
from nbf.evaluation.divergence import jensen_shannon, state_probabilities
from nbf.files.shipped import shipped_model
from nbf.filters.exact import ExactFilter
from nbf.filters.neural.filter import NeuralBayesianFilter, NeuralState
from nbf.filters.particle import ParticleFilter
from nbf.filters.run import run
from nbf.plot.episode import Episode

MODEL, SHAPE = "8-2D-random", (8, 8)
"""The shipped model, and the grids that it was trained for."""
FAMILY = gridworld_family(size=8, dimension=2)
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


class Counter(Protocol):
    """Where work reports how far it is."""

    def describe(self, text: str) -> None:
        """Another part of the work begins."""
        ...


@dataclass(frozen=True)
class Competitor:
    """A filter of the demo."""

    kind: str
    """exact, pf or nbf."""
    label: str
    filter: Filter
    calls: int
    """Simulator calls per update."""


def competitors(model: BeliefModel, particle: Sequence[int], neural: Sequence[int]) -> list[Competitor]:
    """Exact, particle filters and neural filters of these sizes, in the order of the table."""
    branches = 2 * len(SHAPE) * math.prod(SHAPE)
    rows = [Competitor("exact", "Exact", ExactFilter(), branches)]
    rows += [Competitor("pf", f"PF ({n})", ParticleFilter(n), n) for n in particle]
    return rows + [Competitor("nbf", f"NBF ({n})", NeuralBayesianFilter.faithful(model, n), n) for n in neural]


def demonstrate(config: DemoConfig, bar: Counter) -> Demo:
    """Run the filters on the demo's episodes, score them and time their updates."""
    rows = competitors(shipped_model(MODEL), PARTICLE_FILTERS, config.particles)
    tracks = tracked(rows, config, bar)
    scores = scored(rows, tracks, bar)
    shown = furthest(np.asarray(tracks.path))
    track, key = _pick(tracks, shown), prng.stream(config.seed, "demo", "timing")
    told = jax.device_put((track.environment, track.policy))
    symbols = np.resize(track.observations, TIMED_UPDATES + 1).tolist()
    inputs = [(key, symbol, *told) for key, symbol in zip(jax.random.split(key, len(symbols)), symbols, strict=True)]
    speeds = []
    for row, start in zip(rows, track.starts, strict=True):
        bar.describe(f"timing one update: {row.label}")
        speeds.append(update_microseconds(row.filter.step, jax.device_put(start), inputs))
    table = tuple(_row(row, tracks, scores, (shown, place), speeds[place]) for place, row in enumerate(rows))
    return Demo(config, table, _episode(rows, track, _pick(scores, shown)))


def example_episode(config: DemoConfig, bar: Counter) -> Episode:
    """The episode that the demo shows, without its table: the figure of the documentation."""
    rows = competitors(shipped_model(MODEL), PARTICLE_FILTERS[:1], config.particles[:1])
    tracks = tracked(rows, config, bar)
    shown = furthest(np.asarray(tracks.path))
    alone = jax.tree.map(lambda leaf: leaf[shown : shown + 1], tracks)
    return _episode(rows, _pick(alone, 0), _pick(scored(rows, alone, bar), 0))


def furthest(paths: Int[np.ndarray, "episodes steps d"]) -> int:
    """The episode with most moves, the first of several."""
    return int(np.argmax(np.abs(np.diff(paths, axis=1)).sum(axis=(1, 2))))


def tracked(rows: Sequence[Competitor], config: DemoConfig, bar: Counter) -> Tracks:
    """Every filter on every episode; here and in `scored` the first axis of every array is the episodes."""
    bar.describe(f"compiling and running {len(rows)} filters on {config.episodes} episodes")
    keys = jax.random.split(prng.stream(config.seed, "demo", "episodes"), config.episodes)
    one = functools.partial(track_episode, rows, config.steps)
    return jax.tree.map(np.asarray, jax.jit(jax.vmap(one), compiler_options=RUNS_ONCE)(keys))


def scored(rows: Sequence[Competitor], tracks: Tracks, bar: Counter) -> Scores:
    """The beliefs of every filter, compared with the exact ones."""
    bar.describe("comparing their beliefs with the exact ones")
    one = functools.partial(score_episode, rows)
    batch = min(BATCH, len(tracks.path))
    return jax.tree.map(np.asarray, jax.jit(functools.partial(jax.lax.map, one, batch_size=batch))(tracks))


def track_episode(rows: Sequence[Competitor], steps: int, key: Key[Array, ""]) -> Tracks:
    """A random grid and goal, an episode in it, and every filter on what was observed."""
    instance_key, episode_key, filter_key = jax.random.split(key, 3)
    environment, policy = FAMILY.sample(instance_key)
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


def score_episode(rows: Sequence[Competitor], tracks: Tracks) -> Scores:
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


def _row(row: Competitor, tracks: Tracks, scores: Scores, at: tuple[int, int], microseconds: float) -> Row:
    shown, place = at
    js = scores.js[:, place, 1:].mean(axis=-1)  # before the first observation there is nothing to filter
    mean, error = mean_and_error(np.asarray(js))
    ess = None if row.kind == "exact" else float(tracks.ess[place].mean())
    return Row(row.label, float(js[shown]), float(mean), float(error), ess, row.calls, microseconds)


def _episode(rows: Sequence[Competitor], tracks: Tracks, scores: Scores) -> Episode:
    """The three filters that fit side by side."""
    shown = [next(place for place, row in enumerate(rows) if row.kind == name) for name in ("exact", "pf", "nbf")]
    names = {place: rows[place].label for place in shown}
    legal = tracks.environment.space.legal
    assert legal is not None
    return Episode(
        walls=~np.asarray(legal).reshape(SHAPE),
        goal=np.asarray(tracks.policy.goal),
        path=np.asarray(tracks.path),
        symbols=np.asarray(tracks.observations),
        beliefs={name: np.asarray(scores.probs[place]).reshape(-1, *SHAPE) for place, name in names.items()},
        js={name: np.asarray(scores.js[place]) for place, name in names.items() if place != shown[0]},
    )
