"""How far a model is trusted beside what particles say themselves, measured when it is fitted.

A filter lives on its own beliefs, not on samples of true ones. So the filter itself is run on episodes of the family,
with several settings and the same random numbers, and the setting is kept that gives the true states the largest mean
log score.

Where particles are carried and drawn anew, that is the width h of the kernel, and the share s of the model beside it:
from one run with each width, in which both have half,

    h, s = argmax  Σ_t log(s · p_model(x_t) + (1 - s) · p_kernel(x_t)),

which is concave in s. But with another share particles are drawn anew from another density, so that is a guess. The
filter is run once more with it, and with the best width for each of several shares: the best of these runs, and of
those with half, is kept. Where branches are followed, it is how much of a belief the carried ones stand for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from nbf import prng
from nbf.capabilities import ContinuousSpace, FiniteSpace
from nbf.capability import capability
from nbf.contracts import BeliefModel, Environment, Family, StateSpace
from nbf.errors import InputError
from nbf.filters.neural import (
    BranchProposal,
    CarryRule,
    NeuralBayesianFilter,
    RegeneratingProposal,
    Trust,
    default_proposal,
)
from nbf.filters.regeneration import KernelSmoother
from nbf.fitting.episodes import draw_episodes, log_scores, log_scores_in_turn

SIZES = (32, 256)
"""Calls of the simulator at which model and kernel are weighed against each other."""
SCALES = (1.0, 0.7, 0.5, 0.35, 0.25, 0.18)
"""Widths of the kernel to choose from, as factors of Silverman's."""
FEWEST_CARRIED = 64
"""Particles at which it is measured how much carried branches are trusted: fewer cannot do without the model."""
RULES = (CarryRule(), CarryRule(0.9, 2.0), CarryRule(0.99, 2.0), CarryRule(0.99, 0.5))
"""From the most trust in the model to the least. The first is that of a filter whose model was not measured."""
EPISODES, LONGEST = 24, 32
"""On which settings are tried, and how many steps of each."""
LEAST = 0.02
"""Neither model nor kernel has a smaller share: where the better one fails, the other must be there."""
SHARES = (LEAST, 0.25, 0.75, 1.0 - LEAST)
"""Of the model, each of which is run with the width that suits it best."""
UNIFORM = 1e-3
"""The share of a uniform distribution with which states are scored: one that is lost must not decide."""


@dataclass(frozen=True)
class MeasuredTrust:
    """Trust in a model, by the number of calls of the simulator at each step of a filter."""

    sizes: tuple[int, ...]
    """Numbers of calls, rising."""
    found: tuple[Trust, ...]
    """At each."""

    def __post_init__(self) -> None:
        rising = all(a < b for a, b in zip(self.sizes, self.sizes[1:], strict=False))
        if not (len(self.sizes) == len(self.found) > 0 and rising and self.sizes[0] > 0):
            raise InputError(f"Trust is measured at rising numbers of calls above 0; got {self.sizes}.")
        for trust in self.found:
            share, scale, carry = trust.model_share, trust.kernel_scale, trust.carry
            if not (0 <= share <= 1 and 0 < scale < np.inf and 0 <= carry.share <= 1 and 0 <= carry.fading <= 1000):
                raise InputError(f"Trust needs shares between 0 and 1 and a scale above 0; got {trust}.")

    def at(self, num_particles: int) -> Trust:
        """Find the trust of a filter.

        Args:
            num_particles: Its calls of the simulator at each step.

        Returns:
            Share and width, linear and geometric in the logarithm of the calls between the measured ones; the carry
            rule of the largest measured number that is not above it, below all of them the default one.
        """
        place, places = np.log(num_particles), np.log(self.sizes)
        share = np.interp(place, places, [float(trust.model_share) for trust in self.found])
        scale = np.exp(np.interp(place, places, np.log([float(trust.kernel_scale) for trust in self.found])))
        below = [trust.carry for size, trust in zip(self.sizes, self.found, strict=True) if size <= num_particles]
        return Trust(float(share), float(scale), below[-1] if below else CarryRule())


def settings_to_try(environment: Environment) -> int:
    """Count the runs that a measurement of trust makes.

    Args:
        environment: One of the family.

    Returns:
        Their number; 0 where the default filter trusts the model alone.
    """
    if "carry" in _trusted(environment, FEWEST_CARRIED):
        return len(RULES)
    if "model_share" not in _trusted(environment, SIZES[0]):
        return 0
    return len(SIZES) * (len(widths(environment.space)) + 1 + len(SHARES))


def earned_trust(
    key: Key[Array, ""],
    model: BeliefModel,
    family: Family,
    environment: Environment,
    *,
    horizon: int,
    sizes: Sequence[int] = SIZES,
    episodes: int = EPISODES,
    advance: Callable[[int], None] = lambda done: None,
) -> MeasuredTrust | None:
    """Measure how far a model is to be trusted in the default filters of a family.

    Args:
        key: Random key.
        model: A trained belief model.
        family: Environments and policies.
        environment: One of them.
        horizon: Steps of an episode; at most `LONGEST` are made.
        sizes: Calls of the simulator at which share and width are measured.
        episodes: On how many.
        advance: Called after each run with 1.

    Returns:
        The trust; None where the default filter trusts the model alone.
    """
    options = {"horizon": min(horizon, LONGEST), "episodes": episodes, "advance": advance}
    if "carry" in _trusted(environment, FEWEST_CARRIED):
        return MeasuredTrust((FEWEST_CARRIED,), (Trust(carry=earned_carry(key, model, family, **options)),))
    if "model_share" not in _trusted(environment, SIZES[0]):
        return None
    found = [earned_shares(key, model, family, environment.space, size, **options) for size in sizes]
    return MeasuredTrust(tuple(sizes), tuple(found))


def earned_shares(
    key: Key[Array, ""],
    model: BeliefModel,
    family: Family,
    space: StateSpace,
    num_particles: int,
    *,
    horizon: int,
    episodes: int,
    advance: Callable[[int], None] = lambda done: None,
) -> Trust:
    """Choose the width of the kernel and the model's share beside it, for one number of calls.

    Args:
        key: Random key.
        model: A trained belief model.
        family: Environments and policies, for whose filters a `RegeneratingProposal` is picked.
        space: Of the states.
        num_particles: Calls of the simulator at each step.
        horizon: Steps of an episode.
        episodes: On how many.
        advance: Called after each run with 1.

    Returns:
        The best of the shares and of `SCALES`.
    """
    drawn = draw_episodes(family, prng.fold_in(key, jnp.int32(0)), episodes, horizon)

    def run(share: float, scale: float) -> Float[np.ndarray, "episodes steps 2"]:
        # Arrays, so that all settings are one program.
        proposal = RegeneratingProposal(kernel=KernelSmoother(jnp.float32(scale)), model_share=jnp.float32(share))
        filter = NeuralBayesianFilter(model, num_particles, proposal=proposal)
        both = np.asarray(log_scores_in_turn(filter, jax.random.fold_in(key, 1), drawn, parts=True), np.float64)
        advance(1)
        return np.logaddexp(both, log_floor(space))

    return chosen({scale: run(0.5, scale) for scale in widths(space)}, run)


def chosen(
    halves: Mapping[float, Float[np.ndarray, "episodes steps 2"]],
    run: Callable[[float, float], Float[np.ndarray, "episodes steps 2"]],
) -> Trust:
    """Choose among settings by runs with each width, and then by a run with each of the best.

    Args:
        halves: For each width, the log densities of the true states under the model and under the kernel, in a run in
            which both have half.
        run: The same for a run with a share of the model and a width.

    Returns:
        The setting whose own run gives the true states the largest mean log score.
    """

    def best(share: float | None) -> tuple[float, float, float]:
        """The share, the width and the score that are best in the runs with half."""
        found = [(*best_share(both[..., 0], both[..., 1], share), scale) for scale, both in halves.items()]
        share, score, scale = max(found, key=lambda found: found[1])
        return share, scale, score

    half = best(0.5)
    settings, scores = [half[:2]], [half[2]]
    for wanted in (None, *SHARES):
        share, scale, _ = best(wanted)
        both = run(share, scale)
        settings.append((share, scale))
        scores.append(best_share(both[..., 0], both[..., 1], share)[1])
    return Trust(*settings[int(np.argmax(scores))])


def best_share(
    first: Float[np.ndarray, "episodes steps"], second: Float[np.ndarray, "episodes steps"], share: float | None = None
) -> tuple[float, float]:
    """Find the share of one density in the mixture with another that gives states the largest mean log score.

    Args:
        first: log density of each state under the one.
        second: log density of each state under the other.
        share: Of the first; None finds the best one.

    Returns:
        The share of the first, between `LEAST` and 1 - `LEAST`; and the mean log score with it, over the states that
        either of the two has a density for.
    """
    grid = (np.linspace(LEAST, 1.0 - LEAST, 97) if share is None else np.array([share]))[:, None, None]
    with np.errstate(divide="ignore"):
        scores = np.logaddexp(np.log(grid) + first, np.log1p(-grid) + second)
    told = np.isfinite(scores).all(axis=0)
    means = np.where(told, scores, 0.0).sum(axis=(1, 2)) / max(told.sum(), 1)
    best = int(np.argmax(means))
    return float(grid[best, 0, 0]), float(means[best])


class TriedRule(CarryRule):
    """A rule whose numbers are an array, so that all rules are one program."""

    numbers: Float[Array, " 2"] = eqx.field(kw_only=True)
    """Share and fading."""

    def __call__(self, carried_share: Float[Array, ""], random_mass: Float[Array, ""]) -> Float[Array, ""]:
        return self.rule(carried_share, random_mass, self.numbers[0], self.numbers[1])


def earned_carry(
    key: Key[Array, ""],
    model: BeliefModel,
    family: Family,
    *,
    horizon: int,
    rules: Sequence[CarryRule] = RULES,
    episodes: int = EPISODES,
    advance: Callable[[int], None] = lambda done: None,
) -> CarryRule:
    """Choose how much carried branches are trusted beside a model.

    Args:
        key: Random key.
        model: A trained belief model.
        family: Environments for whose filters of `FEWEST_CARRIED` particles a `BranchProposal` is picked.
        horizon: Steps of an episode.
        rules: To choose from; of equal ones the first.
        episodes: On how many they are tried.
        advance: Called after each rule with 1.

    Returns:
        The rule whose filter has the largest mean log score of the true states.
    """
    drawn = draw_episodes(family, prng.fold_in(key, jnp.int32(0)), episodes, horizon)
    scores = []
    for rule in rules:
        tried = TriedRule(numbers=jnp.array([rule.share, rule.fading]))
        filter = NeuralBayesianFilter(model, FEWEST_CARRIED, proposal=BranchProposal(tried))
        scores.append(np.mean(log_scores(filter, jax.random.fold_in(key, 1), drawn)))
        advance(1)
    # A rule under which a state could not happen is the worst, whatever else is said of it.
    return rules[int(np.argmax(np.nan_to_num(scores, nan=-np.inf)))]


def log_floor(space: StateSpace) -> float:
    """Compute the log density that every state is given when settings are compared.

    Args:
        space: Of the states.

    Returns:
        `UNIFORM` of the uniform distribution over a box or a lattice; hardly anything elsewhere.
    """
    continuous, finite = capability(space, ContinuousSpace), capability(space, FiniteSpace)
    if continuous is not None:
        return float(np.log(UNIFORM) - np.sum(np.log(2.0 * np.asarray(continuous.scale, np.float64))))
    return -50.0 if finite is None else float(np.log(UNIFORM / finite.size))


def widths(space: StateSpace) -> tuple[float, ...]:
    """List the widths to choose from.

    Args:
        space: Of the states.

    Returns:
        Factors of Silverman's bandwidth: one, where there are no kernels.
    """
    used = "kernel_scale" in RegeneratingProposal().trusted(space)
    return SCALES if used else (Trust().kernel_scale,)  # type: ignore[return-value]


def _trusted(environment: Environment, num_particles: int) -> tuple[str, ...]:
    """What the default proposal takes from `Trust`."""
    return default_proposal(environment, num_particles).trusted(environment.space)
