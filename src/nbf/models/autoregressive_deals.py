"""A learned model over deals of cards: maximum entropy, and which cards go together.

The embedding of a belief is the probability of each owner of each card and of each pair of cards, and how noisy these
are. Cards are dealt one after another. The owner of each has the conditional distribution of the maximum-entropy
density with these marginals (`maximum_entropy`), given the owners of the cards before it, times a learned factor:

    p(x) = Π_c p(x_c | x_<c),    p(x_c = o | x_<c) ∝ p_maxent(o | x_<c) · exp(Σ_i J[(c, o), (i, x_i)] - its mean).

A network gives each coupling J of two cards and their owners: from the probability of that pair in the belief and in
the maximum-entropy density, from those of the two cards, and from the noise. It is the same network for all pairs, so
that little training suffices, and none of it is about a certain card, player or policy. Its last layer starts at zero:
a model that was not trained is the maximum-entropy one. What has become known of a card since the belief was embedded
counts for the cards before it too, by how far its marginals moved.

The conditional distribution of maximum entropy looks ahead, so that every deal that is begun can be completed, and none
is illegal.
"""

from __future__ import annotations

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from nbf.capabilities import DealSpace, EvenDraws
from nbf.capability import require
from nbf.contracts import BeliefModel, Embedding, State, StateSpace
from nbf.errors import InputError
from nbf.models.autoregressive import inverse_cdf
from nbf.models.maximum_entropy import NEWTON_STEPS, RIDGE, MaximumEntropyDeals, sobol
from nbf.models.networks import Perceptron
from nbf.resampling.exponential_tilt import tilt
from nbf.resampling.weights import effective_sample_size, mean_weights
from nbf.spaces import Deals
from nbf.spaces.deal_weights import Weights, completions, marginals, owner_strides, owner_ways

LEAST = 0.003
"""Added to the probability of a pair before its logarithm is taken."""
INPUTS = 9
"""Numbers that the network sees of a pair."""


class Decoded(eqx.Module):
    """What a belief is decoded to: d = cards · owners."""

    weights: Weights
    """Of the maximum-entropy density, given what is known now."""
    rest: Float[Array, "cards places"]
    """Sums over all that may follow each card: see `completions`."""
    couplings: Float[Array, "d d"]
    """J, of each card with those before it; else zero."""
    field: Float[Array, " d"]
    """What is added to the logits of each card before any owner is known."""


class AutoregressiveDeals(BeliefModel, EvenDraws):
    """Maximum entropy with a learned factor for each card, given the cards before it. Its embedding is the marginals,
    cards × owners, the same of each pair of cards, and the effective size of the set."""

    space: DealSpace
    """Of the deals."""
    network: Perceptron
    """From what is known of a pair to two numbers, by which its deviations from maximum entropy are multiplied."""
    largest: int = eqx.field(static=True)
    """Effective sample sizes beyond it are told as this one."""

    @property
    def base(self) -> MaximumEntropyDeals:
        """The model whose density the factors change."""
        return MaximumEntropyDeals(self.space)

    def embed(self, states: State, log_weights: Float[Array, " n"], space: StateSpace | None = None) -> Embedding:
        held = jax.vmap(self.space.encode, out_axes=1)(states)
        shares = mean_weights(log_weights)
        size = jnp.clip(effective_sample_size(log_weights), 1.0, self.largest)
        return jnp.concatenate([held @ shares, ((held * shares) @ held.T).ravel(), size[None]])

    def weights(self, embedding: Embedding, space: StateSpace) -> Weights:
        """Find the weights of the maximum-entropy density that the learned factors change.

        Args:
            embedding: Of a belief.
            space: What is legal now, and what was when the belief was embedded: see `MaximumEntropyDeals.weights`.

        Returns:
            The weights of each card.
        """
        return self.base.weights(embedding[: self.space.num_features], space)

    def sample(self, key: Key[Array, ""], embedding: Embedding, n: int, space: StateSpace) -> Int[Array, "n cards"]:
        return self._dealt(embedding, jax.random.uniform(key, (self.space.cards, n)), space)[0]

    def draw(
        self, key: Key[Array, ""], embedding: Embedding, n: int, space: StateSpace
    ) -> tuple[Int[Array, "n cards"], Float[Array, " n"]]:
        # Sobol points, shifted at random (Cranley, Patterson 1976): each draw is exact, and together they lie evenly.
        points = jnp.asarray(sobol(self.space.cards, n))
        uniform = jnp.mod(points + jax.random.uniform(key, (self.space.cards, 1)), 1.0)
        drawn, held = self._dealt(embedding, uniform, space)
        # The mean conditional probabilities vary less than the draws do, so the draws are tilted to have them.
        features, even = jax.nn.one_hot(drawn.T, self.space.owners - 1, axis=0).reshape(-1, n), jnp.zeros(n)
        return drawn, tilt(even, features, held[:, :-1].T.ravel(), RIDGE, NEWTON_STEPS)(even, features)

    def log_prob(self, embedding: Embedding, states: State, space: StateSpace) -> Float[Array, " n"]:
        space = deal_space(space)
        found = self._decoded(embedding, space)
        shape = (space.cards, space.owners, len(states))
        held = states.T[:, None] == jnp.arange(space.owners)[:, None]
        ways = _ways(states, found.weights, found.rest, space.quotas)
        logits = found.couplings @ held.reshape(-1, len(states)).astype(jnp.float32) + found.field[:, None]
        possible = ways > 0
        logits = jnp.where(possible, logits.reshape(shape) + jnp.log(jnp.where(possible, ways, 1.0)), -jnp.inf)
        largest = jax.lax.stop_gradient(jnp.max(logits, axis=1, keepdims=True))
        logits = logits - jnp.where(largest > -jnp.inf, largest, 0.0)
        total = jnp.sum(jnp.exp(logits), axis=1)
        chosen = jnp.sum(jnp.where(held & possible, logits, 0.0), axis=1) - jnp.log(jnp.where(total > 0, total, 1.0))
        legal = jax.vmap(space.contains)(states) & jnp.all(jnp.any(held & possible, axis=1), axis=0)
        return jnp.where(legal, jnp.sum(chosen, axis=0), -jnp.inf)

    def _dealt(
        self, embedding: Embedding, uniform: Float[Array, "cards n"], space: StateSpace
    ) -> tuple[Int[Array, "n cards"], Float[Array, "cards owners"]]:
        """Deals by inversion of the conditional distributions, and the mean of these."""
        space = deal_space(space)
        found, strides = self._decoded(embedding, space), jnp.asarray(owner_strides(space.quotas))
        cards, owners, n = space.cards, space.owners, uniform.shape[1]

        def step(
            carry: tuple[Array, Array], inputs: tuple[Array, ...]
        ) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
            place, logits = carry
            number, card, rest, uniform, couplings = inputs
            ways = owner_ways(card, rest, place, space.quotas)
            own = jnp.where(ways > 0, jax.lax.dynamic_slice_in_dim(logits, number * owners, owners), -jnp.inf)
            shares = ways * jnp.exp(own - jnp.max(own, axis=0))
            owner = inverse_cdf(uniform, shares)
            mean = jnp.mean(shares / jnp.sum(shares, axis=0), axis=1)
            logits = logits + couplings.T @ jax.nn.one_hot(owner, owners, axis=0)
            return (place + strides[owner], logits), (owner, mean)

        start = jnp.zeros(n, jnp.int32), jnp.broadcast_to(found.field[:, None], (cards * owners, n))
        given = found.couplings.T.reshape(cards, owners, -1)
        inputs = jnp.arange(cards), found.weights, found.rest, uniform, given
        drawn, held = jax.lax.scan(step, start, inputs)[1]
        return drawn.T, held

    def _decoded(self, embedding: Embedding, space: DealSpace) -> Decoded:
        size = space.num_features
        then = space if space.context is None else _as_embedded(space)
        # None of these depends on what is trained.
        weights, before = jax.lax.stop_gradient((self.weights(embedding, space), self.weights(embedding, then)))
        pairs, single = pair_marginals(before, space.quotas), marginals(before, space.quotas).ravel()
        moved = marginals(weights, space.quotas).ravel() - single
        couplings = self._couplings(embedding[size : size + size**2].reshape(size, size), pairs, single, embedding[-1])
        card = np.arange(size) // space.owners
        earlier = jnp.where(card < card[:, None], couplings, 0.0)
        later = jnp.where(card > card[:, None], couplings, 0.0)
        after, _ = completions(weights, space.quotas)
        return Decoded(weights, after.reshape(len(after), -1)[1:], earlier, later @ moved - earlier @ single)

    def _couplings(
        self, found: Float[Array, "d d"], pairs: Float[Array, "d d"], single: Float[Array, " d"], size: Float[Array, ""]
    ) -> Float[Array, "d d"]:
        """J, from the probabilities of pairs in the belief and in the density of largest entropy."""
        owner = np.arange(len(single)) % self.space.owners
        last = np.broadcast_to(owner == self.space.owners - 1, found.shape)
        ratio = jnp.log(found + LEAST) - jnp.log(pairs + LEAST)
        more = (found - pairs) / (pairs + 0.05)
        told = jnp.log1p(size * pairs) / jnp.log(1.0 + self.largest)
        level = jnp.broadcast_to(jnp.log(size) / jnp.log(float(self.largest)), found.shape)
        both = jnp.broadcast_to(single, found.shape)
        numbers = (ratio, more, told, level, both, both.T, owner[:, None] == owner, last, last.T)
        seen = jnp.stack([jnp.asarray(part, jnp.float32).ravel() for part in numbers])
        by_ratio, by_more = self.network(seen).reshape(2, *found.shape)
        return jnp.where(pairs > 0, by_ratio * ratio + by_more * more, 0.0)


def pair_marginals(weights: Weights, quotas: tuple[int, ...]) -> Float[Array, "d d"]:
    """Compute the probability of each pair of cards and their owners, where a deal's is a product of weights.

    Args:
        weights: Of the cards.
        quotas: Cards of each owner but the last.

    Returns:
        A symmetric matrix over cards · owners.
    """
    size, owners = weights.size, weights.shape[1]
    single = marginals(weights, quotas).ravel()

    def given(index: Int[Array, ""]) -> Float[Array, " d"]:
        card, owner = index // owners, index % owners
        known = weights.at[card].multiply(jnp.arange(owners) == owner)
        return marginals(known, quotas).ravel()

    joint = jnp.where(single[:, None] > 0, single[:, None] * jax.vmap(given)(jnp.arange(size)), 0.0)
    return jnp.where(jnp.isfinite(joint), joint, 0.0)


def _as_embedded(space: DealSpace) -> DealSpace:
    """The space in which what was legal when the belief was embedded is legal."""
    assert space.context is not None
    allowed = space.context.reshape(space.allowed.shape) > 0
    return eqx.tree_at(lambda space: space.allowed, space, allowed)


def _ways(
    states: Int[Array, "n cards"], weights: Weights, rest: Float[Array, "cards places"], quotas: tuple[int, ...]
) -> Float[Array, "cards owners n"]:
    """The weights of each card's owners in the density of largest entropy, given the cards before it."""
    moves = jnp.asarray(owner_strides(quotas))[jnp.clip(states, 0, len(quotas))].T
    before = np.tri(len(weights), k=-1, dtype=np.float32)  # a product is faster than a cumulative sum
    place = (before @ moves.astype(jnp.float32)).astype(jnp.int32)
    place = jnp.minimum(place, rest.shape[1] - 1)  # an illegal deal may be beyond the grid
    return jax.vmap(lambda card, rest, place: owner_ways(card, rest, place, quotas))(weights, rest, place)


def deal_space(space: StateSpace) -> DealSpace:
    """See a space as one of deals, or raise.

    Args:
        space: Of an environment.

    Returns:
        The same space.
    """
    return require(space, DealSpace, "A model over deals", "Use Deals.")


@dataclass(frozen=True)
class AutoregressiveDealsConfig:
    """Config of maximum entropy with learned factors."""

    cards: int
    """In the deck."""
    quotas: tuple[int, ...]
    """Cards of each owner but the last."""
    width: int = 16
    """Units of each hidden layer of the network of a pair."""
    depth: int = 2
    """Hidden layers of it."""
    largest: int = 256
    """Effective sample sizes beyond it are told as this one; at least 2."""

    def build(self, key: Key[Array, ""]) -> AutoregressiveDeals:
        """Build a model with random parameters.

        Args:
            key: Random key.

        Returns:
            The model.
        """
        if self.width < 1 or self.depth < 0 or self.largest < 2:
            raise InputError(
                "width must be at least 1, depth at least 0 and largest at least 2; got "
                f"{self.width}, {self.depth} and {self.largest}."
            )
        space = Deals(jnp.ones((self.cards, len(self.quotas) + 1), bool), self.quotas)
        network = Perceptron(key, INPUTS, 2, width=self.width, depth=self.depth, zero_output=True)
        return AutoregressiveDeals(space, network, self.largest)
