"""One episode of the demo: every filter runs on it, and its beliefs are compared with the exact posterior.

Pure functions of a key or of one episode, to be compiled over many of them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from nbf.beliefs.model import ModelBelief
from nbf.contracts import BeliefModel, Filter, FilterState, Policy
from nbf.environments.gridworld import Gridworld, gridworld_family
from nbf.environments.rollout import rollout
from nbf.evaluation.divergence import jensen_shannon, state_probabilities
from nbf.filters.exact import ExactFilter
from nbf.filters.neural import NeuralBayesianFilter, NeuralState
from nbf.filters.particle import ParticleFilter
from nbf.filters.run import run

SHAPE = (8, 8)
"""Of the grids."""
FAMILY = gridworld_family(size=8, dimension=2)
"""The grids that the shipped model was trained for."""


@dataclass(frozen=True)
class DemoFilter:
    """A filter of the demo."""

    kind: str
    """exact, pf or nbf."""
    label: str
    """Its name in the table and in the pictures."""
    filter: Filter
    calls: int
    """Simulator calls per update."""


def demo_filters(model: BeliefModel, particle: Sequence[int], neural: Sequence[int]) -> list[DemoFilter]:
    """List the filters of the demo, in the order of the table.

    Args:
        model: The model of the neural filters.
        particle: Particle counts of the particle filters.
        neural: Particle counts of the neural filters.

    Returns:
        The exact filter, the particle filters, and the neural filters as in the paper.
    """
    branches = 2 * len(SHAPE) * math.prod(SHAPE)
    rows = [DemoFilter("exact", "Exact", ExactFilter(), branches)]
    rows += [DemoFilter("pf", f"PF ({n})", ParticleFilter(n), n) for n in particle]
    return rows + [DemoFilter("nbf", f"NBF ({n})", NeuralBayesianFilter.faithful(model, n), n) for n in neural]


class Tracks(eqx.Module):
    """One episode and what every filter carried through it. Step 0 is before any observation."""

    environment: Gridworld
    policy: Policy
    path: Int[Array, "steps d"]
    """True positions of the agent."""
    observations: Int[Array, " moves"]
    starts: list[FilterState]
    """The initial state of each filter."""
    summaries: list[Float[Array, "steps _"]]
    """For each filter the probabilities of the cells or, for a neural filter, the embedding."""
    ess: list[Float[Array, " moves"]]
    """The effective sample size of each filter."""


class Scores(eqx.Module):
    """The beliefs of every filter in one episode, and their divergence from the exact posterior."""

    probs: Float[Array, "filters steps cells"]
    js: Float[Array, "filters steps"]


def track_episode(rows: Sequence[DemoFilter], steps: int, key: Key[Array, ""]) -> Tracks:
    """Draw a grid, a goal and an episode, and run every filter on its observations.

    Args:
        rows: The filters.
        steps: Steps of the episode.
        key: The randomness of the episode.

    Returns:
        The episode and what every filter carried through it.
    """
    instance_key, episode_key, filter_key = jax.random.split(key, 3)
    environment, policy = FAMILY.sample(instance_key)
    assert isinstance(environment, Gridworld)
    path, observations = rollout(episode_key, environment, policy, steps)
    starts, summaries, ess = [], [], []
    for row in rows:
        look = functools.partial(_summary, row.filter, environment)
        start = row.filter.init(jax.random.split(filter_key)[0], environment)  # as `run` itself starts
        rest, info = run(row.filter, filter_key, observations, environment, policy, look=look)
        starts.append(start)
        summaries.append(jnp.concatenate([look(start)[None], rest]))
        ess.append(info.ess)
    return Tracks(environment, policy, path, observations, starts, summaries, ess)


def _summary(filter: Filter, environment: Gridworld, state: FilterState) -> Float[Array, " k"]:
    if isinstance(state, NeuralState):
        return state.embedding
    return state_probabilities(filter.belief(state, environment), environment)


def score_episode(rows: Sequence[DemoFilter], tracks: Tracks) -> Scores:
    """Decode the embeddings of the neural filters, and compare all beliefs with the exact posterior.

    All filters are decoded together, so that the flow is compiled once, but step by step, so that its quadrature
    stays in the cache.

    Args:
        rows: The filters; the first is the exact one.
        tracks: One episode.

    Returns:
        Its scores.
    """
    environment = tracks.environment
    neural = [place for place, row in enumerate(rows) if isinstance(row.filter, NeuralBayesianFilter)]
    model = rows[neural[0]].filter.model  # pyright: ignore[reportAttributeAccessIssue]

    def decode(embedding: Float[Array, " m"]) -> Float[Array, " cells"]:
        probs = state_probabilities(ModelBelief(model, embedding, environment.space), environment)
        return probs / jnp.sum(probs)

    embeddings = jnp.stack([tracks.summaries[place] for place in neural], axis=1)
    decoded = jnp.moveaxis(jax.lax.map(jax.vmap(decode), embeddings), 1, 0)
    probs = jnp.stack(
        [decoded[neural.index(i)] if i in neural else summary for i, summary in enumerate(tracks.summaries)]
    )
    return Scores(probs, jax.vmap(jax.vmap(jensen_shannon), (None, 0))(probs[0], probs))
