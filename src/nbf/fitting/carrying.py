"""How much carried branches are trusted beside the model, measured when it is fitted.

A filter that follows chosen branches may take its next belief from its particles or from the embedding. Which is better
depends on the model: so a few rules are tried on episodes of the family, all with the same random numbers, and the one
whose filter gives the true states the largest mean log score is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from nbf import prng
from nbf.contracts import BeliefModel, Family
from nbf.filters.neural import BranchProposal, CarryRule, NeuralBayesianFilter
from nbf.fitting.episodes import draw_episodes, log_scores
from nbf.fitting.fitted import FEWEST_CARRIED

RULES = (CarryRule(), CarryRule(0.9, 2.0), CarryRule(0.99, 2.0), CarryRule(0.99, 0.5))
"""From the most trust in the model to the least. The first is that of a filter whose model was not measured."""
EPISODES = 16
"""On which."""


class _TriedRule(CarryRule):
    """A rule whose numbers are an array, so that all rules are one program."""

    numbers: Float[Array, " 2"] = eqx.field(kw_only=True)

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
        tried = _TriedRule(numbers=jnp.array([rule.share, rule.fading]))
        filter = NeuralBayesianFilter(model, FEWEST_CARRIED, proposal=BranchProposal(tried))
        scores.append(np.mean(log_scores(filter, jax.random.fold_in(key, 1), drawn)))
        advance(1)
    # A rule under which a state could not happen is the worst, whatever else is said of it.
    return rules[int(np.argmax(np.nan_to_num(scores, nan=-np.inf)))]
