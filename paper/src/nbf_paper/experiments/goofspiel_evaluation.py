"""How the filters of Goofspiel are scored, and which filters there are.

Beside the paper's filters stands the histogram of exact samples, which no set of as many particles beats.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from nbf.contracts import BeliefModel, Environment, Filter, FilterState, Policy
from nbf.environments.rollout import at_step
from nbf.errors import InputError
from nbf.evaluation.batches import mean_and_error, update_microseconds
from nbf.filters.approximate import ApproxBeliefs
from nbf.filters.neural import NeuralBayesianFilter
from nbf.filters.particle import ParticleFilter
from nbf.filters.prefixes import PrefixFilter
from nbf.filters.recurrent import RecurrentFilter
from nbf_paper.experiments.rows import FilterRow

TIMED_UPDATES = 300
TOLD = {"nbf": ("legality", "zero_weight", "ess"), "pf": ("zero_weight", "ess"), "approx": ("legality",),
        "recurrent": ("legality",)}  # fmt: skip
"""What is recorded of a filter besides JS: the share of a model's draws that are legal (in length, cards and outcomes
of that round), the share of rounds in which every weight was zero at first, and the effective sample size."""

Extra = dict[str, tuple[float, float | None]]
"""By metric, a mean over all rounds and its standard error."""


@dataclass(frozen=True)
class GoofspielEvaluation:
    """How the filters are scored."""

    episodes: int = 500
    """Games per training seed; every filter sees the same ones."""
    particle_filters: tuple[int, ...] = (64, 128, 256, 512)
    neural_filters: tuple[int, ...] = (64,)
    approx_samples: int = 64
    exact_samples: int = 64
    """Of the histogram of exact samples."""
    importance_samples: int = 64
    """Draws by which the probability of a state under a flow is estimated."""

    def __post_init__(self) -> None:
        for name, least in (("episodes", 2), ("exact_samples", 1), ("importance_samples", 1)):
            if getattr(self, name) < least:
                raise InputError(f"{name} must be at least {least}; got {getattr(self, name)}.")

    @property
    def settings(self) -> dict[str, Any]:
        """The settings under their stable names in run keys."""
        return {
            "episodes": self.episodes,
            "particle_filters": self.particle_filters,
            "neural_filters": self.neural_filters,
            "approx_samples": self.approx_samples,
            "exact_samples": self.exact_samples,
            "importance_samples": self.importance_samples,
        }


def filter_rows(arm: str, model: BeliefModel, cards: int, settings: GoofspielEvaluation) -> list[FilterRow]:
    """Every filter of the figure: those without a model belong to the faithful arm's run."""
    if arm == "recurrent":
        return [FilterRow(RecurrentFilter(model), "recurrent", "", 0, 0)]
    exact, hands = PrefixFilter(), math.comb(cards, cards // 2)
    rows = [FilterRow(ApproxBeliefs(model, settings.approx_samples, truth=exact), "approx", arm, 0, hands)]
    rows += [FilterRow(NeuralBayesianFilter.faithful(model, n), "nbf", arm, n, n) for n in settings.neural_filters]
    if arm == "paper":
        rows += [
            FilterRow(NeuralBayesianFilter(model, n), "nbf", "paper-default", n, n) for n in settings.neural_filters
        ]
    if arm == "faithful":
        rows += [FilterRow(ParticleFilter(n), "pf", "", n, n) for n in settings.particle_filters]
        rows += [FilterRow(exact, "exact", "", 0, hands)]
    return rows


def microseconds(
    filter: Filter, key: Key[Array, ""], environments: Environment, policies: Policy,
    observations: Int[np.ndarray, "episodes rounds"],
) -> float:  # fmt: skip
    """The time of one update, measured over and over in the first of some games, which starts anew after its end."""
    told = jax.device_put(jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), (environments, policies)))
    rounds = [at_step(told, time, changing=True) for time in range(observations.shape[1])]
    times = np.arange(TIMED_UPDATES + 1) % len(rounds)
    keys = jax.random.split(key, len(times))
    start, step = filter.init(key, rounds[0][0]), filter.step

    def restarted(key: Key[Array, ""], state: FilterState, first: bool, *inputs: Any) -> tuple[FilterState, Any]:
        return step(key, start if first else state, *inputs)

    seen = [int(outcome) for outcome in observations[0]]
    inputs = [(key, bool(time == 0), seen[time], *rounds[time]) for key, time in zip(keys, times, strict=True)]
    return update_microseconds(restarted, start, inputs)


def by_entropy(
    metric: str, values: Float[np.ndarray, "episodes rounds"], entropy: Float[np.ndarray, " episodes"]
) -> Extra:
    """The mean and its standard error in the half of the games in which the opponent's bids have the least entropy, and
    in the other half."""
    order = np.argsort(entropy)
    halves = {"sharp": order[: len(order) // 2], "diffuse": order[len(order) // 2 :]}
    found = {name: mean_and_error(values[half].mean(axis=1)) for name, half in halves.items()}
    return {f"{metric}_{name}": (float(mean), float(error)) for name, (mean, error) in found.items()}
