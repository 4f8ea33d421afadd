"""A sequential test of a filter's predictions: do the observations follow the model?

Before an observation y_t is used, m others are drawn from the filter's own prediction,

    x ~ belief,    x' ~ T(x, π),    y ~ H(x, x'),

and all are scored by their evidence, log Σ_i H(x_i, x_i')[y], over one set of simulated transitions. If the prediction
is right, y_t and the draws are exchangeable whatever the score is, so with ties broken at random

    p_t = (number of draws that score below y_t + U) / (m + 1)

is uniform on [0, 1] and independent of the past. Small p are surprises; p that are always large mean observations that
are more likely than the model predicts, for example with less noise.

The test is a betting martingale. For any κ > 0, κ p^(κ-1) is a bet of mean 1, on small p if κ < 1 and on large ones if
κ > 1; with 1 - p in place of p, the other way round (Shafer et al. 2011, arXiv 0912.4269). A share of the initial
capital of 1 enters the bets at each step, so that a late change is still detected:

    E_t = R_t + Σ_s≤t (R_s-1 - R_s) · mean_k Π_s≤r≤t κ_k u_k,r^(κ_k - 1),    R_t = 1 / (1 + log(1 + t))

is a non-negative martingale that starts at 1 if the predictions are right, so by Ville's inequality the probability
that it ever reaches 1/α is at most α, at any number of steps and of looks.
"""

from __future__ import annotations

import math
import zlib

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from nbf.beliefs.model import ModelBelief
from nbf.contracts import Belief, Environment, Filter, FilterInfo, FilterState, Observation, Policy, State
from nbf.errors import InputError
from nbf.filters.attempts import diverged
from nbf.filters.checks import check_counts
from nbf.resampling.likelihoods import log_likelihoods
from nbf.resampling.weights import normalize

BETS = (0.25, 0.5, 0.75, 2.0)
"""κ: the smaller, the more a bet is on few tiny p; above 1, it is on p that are seldom small. Each also for 1 - p."""
TIE = 1e-3
"""Scores are rounded to multiples of this many nats: those of equal observations may differ in their last digit. p is
uniform for any score, also for a rounded one."""
LEAST = 1e-7
"""p is kept this far from 0 and 1, where bets are infinite; a bet then pays less than it should."""
MOST = 2**30
"""Steps that are counted, so that the counter does not overflow."""


class SurpriseState(eqx.Module):
    """The state of the watched filter, and the capital of the bets against its predictions."""

    watched: FilterState
    p: Float[Array, ""]
    """p-value of the last observation: uniform on [0, 1] if its prediction was right."""
    log_bets: Float[Array, " bets"]
    """log of the capital in each bet."""
    steps: Int[Array, ""]
    """Observations so far."""

    @property
    def log_e(self) -> Float[Array, "*batch"]:
        """log E_t, the evidence against the predictions: 0 at first, and seldom large unless they are wrong. A state
        with leading axes, as of a batch or of all steps of a run, has one for each."""
        return jnp.logaddexp(_log_reserve(self.steps), jax.nn.logsumexp(self.log_bets, axis=-1))

    def alarm(self, rate: float = 0.001) -> Bool[Array, "*batch"]:
        """Tell whether E_t >= 1/rate.

        Args:
            rate: Of false alarms: the probability, at most, that this ever happens while the predictions are right.

        Returns:
            A boolean, for each state of a batch.
        """
        if not 0.0 < rate < 1.0:
            raise InputError(f"A rate of false alarms is above 0 and below 1; got {rate}.")
        return self.log_e >= -math.log(rate)


class Surprise(Filter):
    """A filter that watches another: the same beliefs, bit for bit, and in its state `p`, `log_e` and `alarm(rate)`.

        tracker = nbf.Surprise(nbf.ParticleFilter(256))
        state, info = tracker.step(key, state, observation, environment, policy)
        if state.alarm(0.001): ...

    An alarm says that predictions are wrong: the environment is not what the filter was told, or the filter is too
    coarse an approximation. The rate of false alarms is a bound for right predictions: `ExactFilter` has right ones,
    few particles do not. In the right world, over 60 steps on a 5 x 5 grid, an alarm at 1 % was raised in
    5.4 % of the episodes with 16 particles, in 1.3 % with 32, in 0.7 % with 64 and in 0.3 % with 256
    (benchmarks/false_alarms.py). Watch filters of at least 64 particles, of more for longer runs or sharper beliefs.

    At a missing observation p is a uniform random number, and nothing is bet.
    """

    filter: Filter
    draws: int = eqx.field(static=True, default=32)
    """m, the drawn observations to which the true one is compared; p-values are seldom much below 1/m."""
    particles: int = eqx.field(static=True, default=128)
    """Simulated transitions over which the scores are summed, not the particles of the filter. Their number changes the
    power of the test, never the rate of false alarms."""

    def __check_init__(self) -> None:
        check_counts("Surprise", draws=self.draws, particles=self.particles)

    def init(self, key: Key[Array, ""], environment: Environment) -> SurpriseState:
        nothing = jnp.full(2 * len(BETS), -jnp.inf, jnp.float32)
        return SurpriseState(self.filter.init(key, environment), jnp.float32(0.5), nothing, jnp.int32(0))

    def update(
        self,
        key: Key[Array, ""],
        state: SurpriseState,
        observation: Observation,
        environment: Environment,
        policy: Policy,
    ) -> tuple[SurpriseState, FilterInfo]:
        watched, info = self.filter.update(key, state.watched, observation, environment, policy)
        # The filter has used the key as if it were not watched.
        own_key = jax.random.fold_in(key, zlib.crc32(b"surprise"))
        if observation is None:
            return SurpriseState(watched, jax.random.uniform(own_key), state.log_bets, state.steps), info
        p = self.rank(own_key, self.filter.belief(state.watched, environment), observation, environment, policy)
        entering = _log_entering(state.steps) - math.log(2 * len(BETS))
        log_bets = jnp.logaddexp(state.log_bets, entering) + log_payoffs(p)
        return SurpriseState(watched, p, log_bets, jnp.minimum(state.steps + 1, MOST)), info

    def belief(self, state: SurpriseState, environment: Environment) -> Belief:
        return self.filter.belief(state.watched, environment)

    def rank(
        self,
        key: Key[Array, ""],
        belief: Belief,
        observation: Observation,
        environment: Environment,
        policy: Policy,
    ) -> Float[Array, ""]:
        """Compute the p-value of an observation.

        Args:
            key: Random key.
            belief: Before the observation.
            observation: y.
            environment: Of this step.
            policy: π.

        Returns:
            p.
        """
        sample_key, move_key, observe_key, tie_key = jax.random.split(key, 4)
        states = belief.sample(sample_key, self.particles + self.draws)
        move_keys = jax.random.split(move_key, self.particles + self.draws)
        moved = jax.vmap(environment.transition, (0, 0, None))(move_keys, states, policy)
        sound = _sound(belief, states, moved, environment)

        def of(part: slice) -> tuple[State, State]:
            return jax.tree.map(lambda leaf: leaf[part], (states, moved))

        observe_keys = jax.random.split(observe_key, self.draws)
        drawn = jax.vmap(environment.observe)(observe_keys, *of(slice(self.particles, None)))
        # All are scored by one program, so that equal observations have equal scores.
        both = jax.tree.map(lambda own, others: jnp.concatenate([jnp.asarray(own)[None], others]), observation, drawn)
        log_prior = jnp.where(sound[: self.particles], 0.0, -jnp.inf)

        def score(observation: Observation) -> Float[Array, ""]:
            likelihoods = log_likelihoods(environment, observation, *of(slice(self.particles)))
            return normalize(log_prior + likelihoods)[1]

        scores = jnp.round(jax.lax.optimization_barrier(jax.vmap(score)(both)) / TIE)
        lots = jax.random.uniform(tie_key, (self.draws + 2,))
        below = (scores[1:] < scores[0]) | ((scores[1:] == scores[0]) & (lots[1:-1] < lots[0]))
        counted = sound[self.particles :]
        return (jnp.sum(below & counted) + lots[-1]) / (jnp.sum(counted) + 1.0)


def log_payoffs(p: Float[Array, ""]) -> Float[Array, " bets"]:
    """Compute the payoff of each bet.

    Args:
        p: A p-value.

    Returns:
        log payoffs: for each κ of `BETS` on p, then for each on 1 - p.
    """
    inside = jnp.clip(p, LEAST, 1.0 - LEAST)
    kappa = jnp.asarray(BETS, jnp.float32)
    bets = [jnp.log(kappa) + (kappa - 1.0) * log_u for log_u in (jnp.log(inside), jnp.log1p(-inside))]
    return jnp.concatenate(bets)


def _sound(belief: Belief, states: State, moved: State, environment: Environment) -> Bool[Array, " n"]:
    """Which draws count: not illegal states of a model, nor states that a simulator leaves NaN; the filters give them
    no weight either."""
    if isinstance(belief, ModelBelief):
        sound = jax.vmap(environment.space.contains)(states)
    else:
        sound = jnp.ones(jax.tree.leaves(moved)[0].shape[0], bool)
    lost = diverged(moved)
    return sound if lost is None else sound & ~lost


def _log_reserve(steps: Int[Array, "*batch"]) -> Float[Array, "*batch"]:
    """log R: the capital that has not been bet yet. It falls so slowly that a late change is detected too."""
    return -jnp.log1p(jnp.log1p(steps.astype(jnp.float32)))


def _log_entering(steps: Int[Array, ""]) -> Float[Array, ""]:
    """log (R_t - R_t+1) = log R_t + log R_t+1 + log log ((t + 2) / (t + 1)), without cancellation."""
    between = jnp.log(jnp.log1p(1.0 / (steps + 1.0)))
    return _log_reserve(steps) + _log_reserve(steps + 1) + between
