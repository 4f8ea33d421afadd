"""One episode of the demo: every filter runs on it, and its beliefs are compared with the exact posterior.

Pure functions of a key or of one episode, to be compiled over many of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from nbf.contracts import BeliefModel, Filter, FilterState, Policy
from nbf.environments.gridworld import Gridworld, gridworld_family
from nbf.environments.rollout import rollout
from nbf.evaluation.divergence import jensen_shannon, state_probabilities
from nbf.filters.approximate import ApproxBeliefs
from nbf.filters.exact import ExactFilter
from nbf.filters.neural import NeuralBayesianFilter
from nbf.filters.particle import ParticleFilter
from nbf.filters.prediction import PredictionFilter
from nbf.filters.run import run

SHAPE = (8, 8)
"""Of the grids."""
FAMILY = gridworld_family(size=8, dimension=2)
"""The grids that the shipped model was trained for."""


@dataclass(frozen=True)
class DemoFilter:
    """A filter of the demo."""

    kind: str
    """exact, prior, approx, pf or nbf."""
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
        The exact filter, the prior, the particle filters, the neural filters, and the model's ceiling.
    """
    branches = 2 * len(SHAPE) * math.prod(SHAPE)
    rows = [DemoFilter("exact", "Exact", ExactFilter(), branches)]
    rows += [DemoFilter("prior", "Prior", PredictionFilter(ExactFilter()), branches)]
    rows += [DemoFilter("pf", f"PF ({n})", ParticleFilter(n), n) for n in particle]
    rows += [DemoFilter("nbf", f"NBF ({n})", NeuralBayesianFilter(model, n), n) for n in neural]
    return [*rows, DemoFilter("approx", "Approx Beliefs", ApproxBeliefs(model), branches)]


class Tracks(eqx.Module):
    """One episode and what every filter believed in it. Step 0 is before any observation."""

    environment: Gridworld
    policy: Policy
    path: Int[Array, "steps d"]
    """True positions of the agent."""
    observations: Int[Array, " moves"]
    starts: list[FilterState]
    """The initial state of each filter."""
    probs: Float[Array, "filters steps cells"]
    """The probabilities of the cells."""
    js: Float[Array, "filters steps"]
    """Their divergence from the exact posterior, that of the first filter."""
    ess: list[Float[Array, " moves"]]
    """The effective sample size of each filter."""


def track_episode(rows: Sequence[DemoFilter], steps: int, key: Key[Array, ""]) -> Tracks:
    """Draw a grid, a goal and an episode, and run every filter on its observations.

    Args:
        rows: The filters; the first is the exact one.
        steps: Steps of the episode.
        key: The randomness of the episode.

    Returns:
        The episode and what every filter believed in it.
    """
    instance_key, episode_key, filter_key = jax.random.split(key, 3)
    environment, policy = FAMILY.sample(instance_key)
    assert isinstance(environment, Gridworld)
    path, observations = rollout(episode_key, environment, policy, steps)
    starts, beliefs, ess = [], [], []
    for row in rows:

        def look(state: FilterState, filter: Filter = row.filter) -> Float[Array, " cells"]:
            return state_probabilities(filter.belief(state, environment), environment)

        start = row.filter.init(jax.random.split(filter_key)[0], environment)  # as `run` itself starts
        rest, info = run(row.filter, filter_key, observations, environment, policy, look=look)
        starts.append(start)
        beliefs.append(jnp.concatenate([look(start)[None], rest]))
        ess.append(info.ess)
    probs = jnp.stack(beliefs)
    js = jax.vmap(jax.vmap(jensen_shannon), (None, 0))(probs[0], probs)
    return Tracks(environment, policy, path, observations, starts, probs, js, ess)
