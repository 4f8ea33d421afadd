"""An auxiliary filter: a look-ahead weight selects, among many draws, those that are simulated (Pitt, Shephard 1999).

The selected states keep importance weights, so that the set still stands for the belief before the observation.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from nbf import prng
from nbf.capabilities import LookAhead
from nbf.capability import require
from nbf.contracts import Environment, Observation, Policy, State
from nbf.errors import InputError
from nbf.filters.checks import check_counts, check_numbers
from nbf.filters.neural.even import EvenProposal, decoded
from nbf.filters.neural.proposal import Prior, Proposal, Proposed, simulated
from nbf.resampling.auxiliary import log_first_stage
from nbf.resampling.exponential_tilt import tilt
from nbf.resampling.optimal import optimal_resample, split_heavy
from nbf.resampling.weights import normalize


class LookAheadProposal(Proposal):
    """Select by a look-ahead weight. Needs `LookAhead`. Without an observation it is `EvenProposal`."""

    candidates: int = eqx.field(static=True, default=128)
    """Draws among which those that are simulated are selected, where they are no fewer than `draws_per_particle`
    allows: up to 32 particles. A model that lists its states offers all of them."""
    draws_per_particle: int = eqx.field(static=True, default=4)
    """The least number of draws for each particle, so that there is a choice however many particles there are."""
    defensive: float = eqx.field(static=True, default=0.1)
    """The part of the selection that ignores the look-ahead weight: no importance weight is larger than 1/defensive
    times what it would be without it."""
    calibration_ridge: float = eqx.field(static=True, default=0.2)
    """Ridge of the tilt that brings the selected states to the mean features of all candidates."""
    newton_steps: int = eqx.field(static=True, default=2)
    """Of the tilt of the selected states, and of that of the candidates unless the correction names its own number. A
    third step changes no divergence by more than its standard error, and takes its time twice."""

    def __check_init__(self) -> None:
        check_counts("LookAheadProposal", candidates=self.candidates, draws_per_particle=self.draws_per_particle)
        check_counts("LookAheadProposal", least=0, newton_steps=self.newton_steps)
        check_numbers("LookAheadProposal", calibration_ridge=self.calibration_ridge)
        if not 0 < self.defensive <= 1:
            raise InputError(f"LookAheadProposal needs a defensive part in (0, 1]; got {self.defensive}.")

    def draws(self, num_particles: int) -> int:
        """Count the draws among which those that are simulated are selected.

        Args:
            num_particles: Of the filter.

        Returns:
            How many.
        """
        return max(self.draws_per_particle * num_particles, self.candidates)

    def check(self, environment: Environment, num_particles: int) -> None:
        require(environment, LookAhead, "LookAheadProposal", "Use EvenProposal.")

    def __call__(
        self,
        key: Key[Array, ""],
        prior: Prior,
        observation: Observation,
        environment: Environment,
        policy: Policy,
    ) -> Proposed:
        if observation is None:
            return EvenProposal()(key, prior, observation, environment, policy)
        guide = require(environment, LookAhead, "LookAheadProposal", "Use EvenProposal.")
        n = prior.num_particles
        keys = prng.split(key, n + 1)
        draw_key, select_key, _ = prng.split(keys[0], 3)
        states, log_weights, drawn = decoded(draw_key, prior, self.draws(n))
        log_weights = prior.corrected(states, log_weights, drawn, self.newton_steps)
        guesses = jax.vmap(guide.look_ahead, (None, 0, None))(observation, states, policy)
        parents, weights, lost = self._selected(select_key, guesses, states, log_weights, prior)
        return simulated(keys[1:], parents, weights, jnp.maximum(lost, drawn), environment, policy)

    def _selected(
        self,
        key: Key[Array, ""],
        guesses: Float[Array, " k"],
        states: State,
        log_weights: Float[Array, " k"],
        prior: Prior,
    ) -> tuple[State, Float[Array, " n"], Float[Array, ""]]:
        """Of k candidates the n from which the observation is likely, with importance weights that keep the prior
        unbiased, and the share of the mass that was decided by a random choice."""
        first = log_first_stage(log_weights, guesses, self.defensive)
        selected, log_total = normalize(log_weights + first)
        resample_key, split_key = prng.split(key)
        features = prior.correction.matched(prior.model, states, prior.space)
        columns = jnp.zeros((log_weights.shape[0], 0)) if features is None else features.T
        (few, few_first, few_columns), weights, lost = optimal_resample(
            resample_key, (states, first, columns), selected, prior.num_particles
        )
        if features is not None:
            target = features @ jnp.exp(selected)
            found = tilt(weights, few_columns.T, target, self.calibration_ridge, self.newton_steps)
            weights = normalize(found(weights, few_columns.T))[0]
        chosen, weights = split_heavy(split_key, weights)
        few, few_first = jax.tree.map(lambda leaf: leaf[chosen], (few, few_first))
        return few, weights + log_total - few_first, lost
