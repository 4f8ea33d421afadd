"""The exact filter on the lumped state: the first symbol of a growing sequence and the set of the others.

Where the next symbol depends on the set of symbols so far and an observation on the newest one, sequences that share
the set have the same future: the chain is lumpable (Kemeny and Snell, *Finite Markov Chains*, 1960, section 6.3), and
Bayes' rule holds for the sums of their probabilities. With m the first symbol and S the set of all symbols so far,

    p'(m, S) ∝ Σ_{c in S} p(m, S - c) · π(c | S - c) · H(c)[y].

In Goofspiel m is the card that the opponent was not dealt and S - m its bids: of 7 cards at most 140 pairs instead of
5040 sequences, of 13 cards at most 12 012 instead of 6 227 020 800; the policy is called for at most 35 and 1716 hands.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from nbf.beliefs.lumped import LumpedBelief, sets_of
from nbf.capabilities import Lumpable
from nbf.capability import require
from nbf.contracts import Environment, Filter, FilterInfo, Observation, Policy
from nbf.filters.exact import exact_info, normalized
from nbf.resampling.likelihoods import is_invalid
from nbf.resampling.weights import scaled


class LumpedMasses(NamedTuple):
    """The posterior: the probability of every lumped state of one size."""

    masses: Float[Array, "sets firsts"]
    """Normalised; see `nbf.beliefs.lumped`."""
    size: Int[Array, ""]
    """Symbols so far, the first among them."""


class LumpedFilter(Filter):
    """The exact posterior over lumped states, for environments with `Lumpable` and up to
    `nbf.beliefs.lumped.MOST_SYMBOLS` symbols. An update calls the policy once for each set of symbols, padded to
    C(k, k/2) calls. Its belief is over *sets* (`LumpedState`), not over the sequences of the environment; its evidence
    is that of the exact filters over sequences."""

    def init(self, key: Key[Array, ""], environment: Environment) -> LumpedMasses:
        environment = _lumpable(environment)
        sets, first = len(sets_of(_symbols(environment)).members[0]), environment.first_log_probs()
        if first is None:
            return LumpedMasses(jnp.zeros((sets, 1)).at[0, 0].set(1.0), jnp.int32(0))
        # The sets of one symbol are listed in its order: set i is {i}.
        return LumpedMasses(jnp.zeros((sets, len(first))).at[: len(first)].set(jnp.diag(jnp.exp(first))), jnp.int32(1))

    def update(
        self,
        key: Key[Array, ""],
        state: LumpedMasses,
        observation: Observation,
        environment: Environment,
        policy: Policy,
    ) -> tuple[LumpedMasses, FilterInfo]:
        environment = _lumpable(environment)
        step = _Step(state, environment, policy)
        lumped = jnp.asarray(state.masses.size, state.masses.dtype)
        if observation is None:
            predicted, some = step.prediction()
            return predicted, exact_info(lumped, some, 0.0)
        log_likelihoods = environment.choice_log_likelihoods(observation)
        likelihood, log_scale = scaled(log_likelihoods)
        joint = step.weighed(likelihood)
        evidence = jnp.sum(joint)
        possible = (evidence > 0) & (evidence < jnp.inf)
        scale = jnp.where(possible, evidence, 1.0)
        posterior = LumpedMasses(joint / scale, step.size)
        invalid = jnp.sum(is_invalid(log_likelihoods), dtype=jnp.int32)
        info = exact_info(lumped, possible, jnp.log(scale) + log_scale, invalid)
        return jax.lax.cond(possible, lambda: posterior, lambda: step.prediction()[0]), info

    def belief(self, state: LumpedMasses, environment: Environment) -> LumpedBelief:
        return LumpedBelief(state.masses, state.size, _symbols(_lumpable(environment)))


class _Step:
    """One step of the lumped chain: the policy is called once for each set of symbols that may be left."""

    def __init__(self, state: LumpedMasses, environment: Lumpable, policy: Policy):
        symbols = _symbols(environment)
        listed, after = sets_of(symbols), jnp.minimum(state.size + 1, symbols)
        left = jnp.asarray(listed.left)[state.size]
        probs = jnp.exp(jax.vmap(environment.symbol_log_probs, (0, None))(left, policy))
        self.before, self.over = state, environment.over
        self.size = jnp.where(self.over, state.size, after)
        self.parents = jnp.asarray(listed.parents)[after]
        members = jnp.asarray(listed.members)[after]
        self.arriving = jnp.where(members, probs[self.parents, jnp.arange(symbols)], 0.0)
        """π(c | S - c), for each set S after the step and each symbol c of it."""

    def weighed(self, likelihood: Float[Array, " k"]) -> Float[Array, "sets firsts"]:
        """The joint masses of lumped states and an observation, given its likelihood after each symbol."""
        # Where c is the first symbol itself, there was no mass on S - c.
        grown = jnp.sum(self.before.masses[self.parents] * (self.arriving * likelihood)[:, :, None], axis=1)
        # At a step that adds nothing, the likelihood is the same for all states.
        return jnp.where(self.over, self.before.masses * likelihood[0], grown)

    def prediction(self) -> tuple[LumpedMasses, Bool[Array, ""]]:
        """The belief without an observation, and whether the policy gave any probability; else it stays as it was."""
        moved = self.weighed(jnp.ones(self.parents.shape[1], self.before.masses.dtype))
        masses, some = normalized(moved, self.before.masses)
        return LumpedMasses(masses, jnp.where(some, self.size, self.before.size)), some


def _lumpable(environment: Environment) -> Lumpable:
    return require(environment, Lumpable, "The lumped filter", "Use ExactFilter, or a particle filter.")


def _symbols(environment: Lumpable) -> int:
    """k: a state has k places, and the further symbol of its alphabet is padding."""
    return environment.space.length
