"""The demo, and the paper's Figure "gridworld-example": what each filter believes in one 8 x 8 grid.

One episode is looked at step by step; the same filters also run on a few dozen other episodes, so
that the table is not one episode's luck. Everything is one compiled function of a key, called on a
batch of episodes: the episode that is shown is the first of them.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from nbf import prng
from nbf.beliefs.sources import rollout
from nbf.config import GridworldConfig
from nbf.contracts import BeliefModel, Filter, FilterState, InputError, Policy
from nbf.environments.gridworld import Gridworld
from nbf.evaluation.divergence import jensen_shannon, state_probabilities
from nbf.evaluation.evaluate import episodes, mean_and_error
from nbf.experiments.gridworld import Contender, Counter, EvaluationConfig, contenders, family_of
from nbf.filters.neural import ModelBelief, NeuralState
from nbf.filters.run import run
from nbf.report.plots import Episode
from nbf.report.tables import label
from nbf.shipped import shipped_model

GRID = GridworldConfig.parse("8-2D-random")
"""What the shipped model was trained for."""
PARTICLE_FILTERS = (32, 128, 512)
BATCH = 16
"""Episodes in one compiled call: their model beliefs fit in the cache while they are scored."""
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
    """Episodes behind the means; the first one is the one that is shown."""

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
    """Median time of one compiled update in this process, the call itself included."""


@dataclass(frozen=True)
class Demo:
    """What the demo found."""

    config: DemoConfig
    rows: tuple[Row, ...]
    episode: Episode
    """The shown episode as seen by the exact, the smallest particle and the first neural filter."""


class Scores(eqx.Module):
    """One episode and what every filter made of it; the axes are filters, then steps 0..T."""

    environment: Gridworld
    policy: Policy
    path: Array
    observations: Array
    probs: Float[Array, "filters steps cells"]
    js: Float[Array, "filters steps"]
    ess: Float[Array, "filters moves"]


def competitors(model: BeliefModel, particles: Sequence[int]) -> list[Contender]:
    """Exact, the particle filters, the neural filters, in the order of the table."""
    settings = EvaluationConfig(particle_filters=PARTICLE_FILTERS, neural_filters=tuple(particles))
    rows = contenders(GRID, "faithful", model, settings)
    return [row for name in ("exact", "pf", "nbf") for row in rows if row.name == name]


def demonstrate(config: DemoConfig, bar: Counter) -> Demo:
    """Run the filters on the demo's episodes, score them and time their updates."""
    model = shipped_model(GRID.name)
    rows = competitors(model, config.particles)
    scores = _score(rows, config, bar)
    first = jax.tree.map(lambda leaf: leaf[0], scores)
    speeds = []
    for row in rows:
        bar.describe(f"timing {row.label}")
        key = prng.stream(config.seed, "demo", "timing", row.label)
        speeds.append(update_microseconds(row.filter, key, first.observations, first.environment, first.policy))
    table = tuple(_row(row, scores, place, speed) for place, (row, speed) in enumerate(zip(rows, speeds, strict=True)))
    return Demo(config, table, _episode(rows, first))


def example_episode(config: DemoConfig, bar: Counter) -> Episode:
    """The demo's episode without its table, for the documentation."""
    rows = competitors(shipped_model(GRID.name), config.particles)
    scores = _score(rows, config, bar)
    return _episode(rows, jax.tree.map(lambda leaf: leaf[0], scores))


def _score(rows: Sequence[Contender], config: DemoConfig, bar: Counter) -> Scores:
    bar.describe(f"{len(rows)} filters on {config.episodes} episodes")
    one = functools.partial(episode_scores, rows, config.steps)
    key = prng.stream(config.seed, "demo", "episodes")
    return episodes(one, key, config.episodes, batch=min(BATCH, config.episodes), advance=bar.advance)


def episode_scores(rows: Sequence[Contender], steps: int, key: Key[Array, ""]) -> Scores:
    """One random grid, goal and episode, with every filter's beliefs scored against the first row's."""
    instance_key, episode_key, filter_key = jax.random.split(key, 3)
    environment, policy = family_of(GRID, 0).sample(instance_key)
    assert isinstance(environment, Gridworld)
    path, observations = rollout(episode_key, environment, policy, steps)
    looks, ess = [], []
    for row in rows:
        look = functools.partial(_look, row.filter, environment)
        start = look(row.filter.init(jax.random.split(filter_key)[0], environment))  # as `run` itself starts
        rest, info = run(row.filter, filter_key, observations, environment, policy, look=look)
        looks.append(jnp.concatenate([start[None], rest]))
        ess.append(info.ess)
    neural = [place for place, row in enumerate(rows) if row.name == "nbf"]
    decoded = _decode(rows[neural[0]].filter, jnp.stack([looks[place] for place in neural], axis=1), environment)
    for place, probs in zip(neural, jnp.moveaxis(decoded, 1, 0), strict=True):
        looks[place] = probs / jnp.sum(probs, axis=-1, keepdims=True)
    probs = jnp.stack(looks)
    js = jax.vmap(jax.vmap(jensen_shannon), (None, 0))(probs[0], probs)
    return Scores(environment, policy, path, observations, probs, js, jnp.stack(ess))


def _look(filter: Filter, environment: Gridworld, state: FilterState) -> Array:
    """Probabilities of the cells, except for a neural filter, whose embeddings are decoded later."""
    if isinstance(state, NeuralState):
        return state.embedding
    return state_probabilities(filter.belief(state, environment), environment)


def _decode(
    filter: Any, embeddings: Float[Array, "steps filters m"], environment: Gridworld
) -> Float[Array, "steps filters cells"]:
    """All neural filters at once and one step after the other: the flow is compiled once, and its
    quadrature, the costly part of the demo, stays in the cache."""

    def decode(embedding: Float[Array, " m"]) -> Float[Array, " cells"]:
        return state_probabilities(ModelBelief(filter.model, embedding, environment.space), environment)

    return jax.lax.map(jax.vmap(decode), embeddings)


def update_microseconds(
    filter: Filter, key: Key[Array, ""], observations: Any, environment: Gridworld, policy: Policy
) -> float:
    """The median time of one update, by the clock on the wall, after one that compiles.

    Environment and policy are arguments of the compiled function, as they may change at every step;
    so is each leaf of the state. The model is not: it stays the same for the life of a filter.
    """
    start_key, step_key = jax.random.split(key)
    state = jax.jit(filter.init)(start_key, environment)
    keys = list(jax.random.split(step_key, TIMED_UPDATES + 1))
    symbols = [jnp.asarray(symbol) for symbol in np.resize(observations, len(keys))]
    update = _flat(filter.update, (state, environment, policy))
    leaves, *surroundings = (jax.tree.leaves(jax.device_put(tree)) for tree in (state, environment, policy))
    times = []
    for key, symbol in zip(keys, symbols, strict=True):
        begin = time.perf_counter()
        leaves = jax.block_until_ready(update(key, symbol, leaves, *surroundings))
        times.append(time.perf_counter() - begin)
    return 1e6 * float(np.median(times[1:]))


def _flat(update: Callable[..., Any], trees: tuple[Any, Any, Any]) -> Callable[..., list[Array]]:
    """An update as a compiled function of lists of leaves: a nested state would cost more than the update."""
    structures = [jax.tree.structure(tree) for tree in trees]

    def flat(key: Key[Array, ""], observation: Array, *leaves: list[Array]) -> list[Array]:
        state, environment, policy = (jax.tree.unflatten(*pair) for pair in zip(structures, leaves, strict=True))
        return jax.tree.leaves(update(key, state, observation, environment, policy)[0])

    return jax.jit(flat)


def _row(row: Contender, scores: Scores, place: int, microseconds: float) -> Row:
    js = scores.js[:, place, 1:].mean(axis=-1)  # before the first observation there is nothing to filter
    mean, error = mean_and_error(np.asarray(js))
    ess = None if row.name == "exact" else float(scores.ess[:, place].mean())
    return Row(
        label(row.name, row.arm, row.particles), float(js[0]), float(mean), float(error), ess, row.calls, microseconds
    )


def _episode(rows: Sequence[Contender], scores: Scores) -> Episode:
    """The three filters that fit side by side."""
    shown = [next(place for place, row in enumerate(rows) if row.name == name) for name in ("exact", "pf", "nbf")]
    names = {place: label(rows[place].name, rows[place].arm, rows[place].particles) for place in shown}
    legal = scores.environment.space.legal
    assert legal is not None
    return Episode(
        walls=~np.asarray(legal).reshape(GRID.shape),
        goal=np.asarray(scores.policy.goal),
        path=np.asarray(scores.path),
        symbols=np.asarray(scores.observations),
        beliefs={name: np.asarray(scores.probs[place]).reshape(-1, *GRID.shape) for place, name in names.items()},
        js={name: np.asarray(scores.js[place]) for place, name in names.items() if place != shown[0]},
    )
