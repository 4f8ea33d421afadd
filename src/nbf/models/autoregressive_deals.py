"""A learned model over deals of cards: maximum entropy, and which cards go together.

The embedding of a belief is its marginals, the mean of a network's features of a deal, and how noisy these means are.
Cards are dealt one after another. The owner of each has the conditional distribution of the maximum-entropy density
with these marginals (`maximum_entropy`), given the owners of the cards before it, times a learned factor:

    p(x) = Π_c p(x_c | x_<c),    p(x_c = o | x_<c) ∝ p_maxent(o | x_<c) · exp(a_θ[c, o] + P[c, o] · h_c),
    h_c = g_θ · relu(b_θ + Σ_{i<c} Q[i, x_i]),

with a, b and g given by a network of the embedding, of what was allowed when it was made, and of what is allowed now.
The sum over the cards before is carried from card to card, as in NADE (Larochelle, Murray 2011). P and a start at zero:
a model that was not trained is the maximum-entropy one. The conditional distribution of maximum entropy looks ahead, so
that every deal that is begun can be completed, and none is illegal.
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
from nbf.models.maximum_entropy import MaximumEntropyDeals, sobol
from nbf.models.networks import Perceptron
from nbf.models.noise_level import NoiseLevelEncoder
from nbf.models.set_encoder import MeanEncoder
from nbf.spaces import Deals
from nbf.spaces.deal_weights import Weights, completions, owner_strides, owner_ways


class Factors(eqx.Module):
    """What the learned factor takes from a belief."""

    bias: Float[Array, " units"]
    """b."""
    gain: Float[Array, " units"]
    """g."""
    shift: Float[Array, "cards owners"]
    """a."""


class AutoregressiveDeals(BeliefModel, EvenDraws):
    """Maximum entropy with a learned factor for each card, given the cards before it. Its embedding is the marginals,
    cards × owners, then the learned features, then the noise level of the set."""

    space: DealSpace
    """Of the deals."""
    encoder: NoiseLevelEncoder
    """Of all numbers of the embedding but the marginals."""
    condition: Perceptron
    """From the embedding, what was allowed, and what is, to b, g and a."""
    taken: Float[Array, "cards owners units"]
    """Q."""
    given: Float[Array, "cards owners units"]
    """P."""

    def __init__(
        self, key: Key[Array, ""], space: DealSpace, *, features: int, width: int, depth: int, units: int, largest: int
    ):
        """Draw the parameters.

        Args:
            key: Random key.
            space: Of the deals.
            features: Learned features of the embedding.
            width: Units of each hidden layer of the encoder and of the network of the embedding.
            depth: Hidden layers of both.
            units: Numbers that are carried from card to card.
            largest: Effective sample sizes beyond it are told as this one.
        """
        encoder_key, condition_key, taken_key = jax.random.split(key, 3)
        size, shape = space.num_features, (space.cards, space.owners, units)
        self.space = space
        self.encoder = NoiseLevelEncoder(MeanEncoder(encoder_key, size, features, width=width, depth=depth), largest)
        outputs = 2 * units + size
        inputs = 3 * size + features + 1
        self.condition = Perceptron(condition_key, inputs, outputs, width=width, depth=depth, zero_output=True)
        self.taken = jnp.sqrt(2.0 / space.cards) * jax.random.normal(taken_key, shape)
        self.given = jnp.zeros(shape)

    @property
    def base(self) -> MaximumEntropyDeals:
        """The model whose density the factors change."""
        return MaximumEntropyDeals(self.space)

    def embed(self, states: State, log_weights: Float[Array, " n"], space: StateSpace | None = None) -> Embedding:
        learned = self.encoder(states, log_weights, self.space)
        return jnp.concatenate([self.base.embed(states, log_weights), learned])

    def weights(self, embedding: Embedding, space: StateSpace) -> Weights:
        """Find the weights of the maximum-entropy density that the learned factors change.

        Args:
            embedding: Of a belief.
            space: What is legal now, and what was when the belief was embedded: see `MaximumEntropyDeals.weights`.

        Returns:
            The weights of each card.
        """
        return self.base.weights(self._marginals(embedding), space)

    def sample(self, key: Key[Array, ""], embedding: Embedding, n: int, space: StateSpace) -> Int[Array, "n cards"]:
        return self._dealt(embedding, jax.random.uniform(key, (self.space.cards, n)), space)

    def draw(
        self, key: Key[Array, ""], embedding: Embedding, n: int, space: StateSpace
    ) -> tuple[Int[Array, "n cards"], Float[Array, " n"]]:
        # Sobol points, shifted at random (Cranley, Patterson 1976): each draw is exact, and together they lie evenly.
        points = jnp.asarray(sobol(self.space.cards, n))
        uniform = jnp.mod(points + jax.random.uniform(key, (self.space.cards, 1)), 1.0)
        return self._dealt(embedding, uniform, space), jnp.zeros(n)

    def log_prob(self, embedding: Embedding, states: State, space: StateSpace) -> Float[Array, " n"]:
        return self._log_probs(embedding[None], states[None], jax.tree.map(lambda leaf: leaf[None], space))[0]

    def objective(
        self, key: Key[Array, ""], embeddings: Float[Array, "b m"], states: State, space: StateSpace
    ) -> Float[Array, "b n"]:
        return self._log_probs(embeddings, states, space)

    def _log_probs(
        self, embeddings: Float[Array, "b m"], states: Int[Array, "b n cards"], space: StateSpace
    ) -> Float[Array, "b n"]:
        """The log probability of the deals of each belief; examples are columns, as in `networks`."""
        space = deal_space(space)
        flat, weights, factors = jax.vmap(self._prepared)(embeddings, space)
        ways_of = lambda states, weights, rest: _ways(states, weights, rest, space.quotas)  # noqa: E731
        ways = jax.vmap(ways_of, out_axes=2)(states, weights, flat[:, 1:])
        held = states.transpose(2, 0, 1)[:, None] == jnp.arange(space.owners)[:, None, None]  # cards owners b n
        (cards, owners, beliefs, n), units = held.shape, self.taken.shape[2]
        # One product for all cards: what is carried to each is a masked sum over all of them.
        before = np.tri(cards, k=-1, dtype=np.float32)[:, None, :, None]
        masked = (before * self.taken.transpose(2, 0, 1)).reshape(cards * units, cards * owners)
        carried = masked @ held.reshape(cards * owners, beliefs * n).astype(jnp.float32)
        hidden = jax.nn.relu(carried.reshape(cards, units, beliefs, n) + factors.bias.T[:, :, None])
        hidden = (factors.gain.T[:, :, None] * hidden).reshape(cards, units, beliefs * n)
        logits = jnp.einsum("cou,cun->con", self.given, hidden).reshape(held.shape)
        possible = ways > 0
        logits = logits + factors.shift.transpose(1, 2, 0)[..., None] + jnp.log(jnp.where(possible, ways, 1.0))
        logits = jnp.where(possible, logits, -jnp.inf)
        largest = jax.lax.stop_gradient(jnp.max(logits, axis=1, keepdims=True))
        logits = logits - jnp.where(largest > -jnp.inf, largest, 0.0)
        total = jnp.sum(jnp.exp(logits), axis=1)
        chosen = jnp.sum(jnp.where(held & possible, logits, 0.0), axis=1) - jnp.log(jnp.where(total > 0, total, 1.0))
        found = jnp.sum(jnp.where(jnp.any(held & possible, axis=1), chosen, -jnp.inf), axis=0)
        legal = jax.vmap(lambda space, states: jax.vmap(space.contains)(states))(space, states)
        return jnp.where(legal, found, -jnp.inf)

    def _dealt(
        self, embedding: Embedding, uniform: Float[Array, "cards n"], space: StateSpace
    ) -> Int[Array, "n cards"]:
        """Deals by inversion of the conditional distributions."""
        space = deal_space(space)
        flat, weights, factors = self._prepared(embedding, space)
        strides = jnp.asarray(owner_strides(space.quotas))

        def step(carry: tuple[Array, Array], inputs: tuple[Array, ...]) -> tuple[tuple[Array, Array], Array]:
            place, carried = carry
            card, rest, uniform, shift, given, taken = inputs
            ways = owner_ways(card, rest, place, space.quotas)
            hidden = factors.gain[:, None] * jax.nn.relu(carried + factors.bias[:, None])
            logits = jnp.where(ways > 0, shift[:, None] + given @ hidden, -jnp.inf)
            owner = inverse_cdf(uniform, ways * jnp.exp(logits - jnp.max(logits, axis=0)))
            return (place + strides[owner], carried + taken.T @ jax.nn.one_hot(owner, space.owners, axis=0)), owner

        n = uniform.shape[1]
        start = jnp.zeros(n, jnp.int32), jnp.zeros((self.taken.shape[2], n))
        inputs = weights, flat[1:], uniform, factors.shift, self.given, self.taken
        return jax.lax.scan(step, start, inputs)[1].T

    def _prepared(
        self, embedding: Embedding, space: DealSpace
    ) -> tuple[Float[Array, "cards_1 places"], Weights, Factors]:
        """Sums over all that may follow each card, the weights, and the factors of a belief."""
        weights = jax.lax.stop_gradient(self.weights(embedding, space))
        after, _ = completions(weights, space.quotas)
        now = space.allowed.astype(jnp.float32).ravel()
        before = now if space.context is None else space.context
        units = self.taken.shape[2]
        bias, gain, shift = jnp.split(self.condition(jnp.concatenate([embedding, before, now])), (units, 2 * units))
        return after.reshape(len(after), -1), weights, Factors(bias, 1.0 + gain, shift.reshape(space.cards, -1))

    def _marginals(self, embedding: Embedding) -> Float[Array, " d"]:
        return embedding[: self.space.num_features]


def _ways(
    states: Int[Array, "n cards"],
    weights: Weights,
    rest: Float[Array, "cards places"],
    quotas: tuple[int, ...],
) -> Float[Array, "cards owners n"]:
    """The weights of each card's owners in the density of maximum entropy, given the cards before it."""
    moves = jnp.asarray(owner_strides(quotas))[jnp.clip(states, 0, len(quotas))]
    place = jnp.cumsum(moves, axis=1) - moves
    place = jnp.minimum(place, rest.shape[1] - 1).T  # an illegal deal may be beyond the grid
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
    features: int = 32
    """Learned features of the embedding."""
    width: int = 128
    """Units of each hidden layer of the encoder and of the network of the embedding."""
    depth: int = 2
    """Hidden layers of both."""
    units: int = 128
    """Numbers that are carried from card to card."""
    largest: int = 256
    """Effective sample sizes beyond it are told as this one; at least 2."""

    def build(self, key: Key[Array, ""]) -> AutoregressiveDeals:
        """Build a model with random parameters.

        Args:
            key: Random key.

        Returns:
            The model.
        """
        sizes = (self.features, self.width, self.units)
        if min(sizes) < 1 or self.depth < 0 or self.largest < 2:
            raise InputError(
                "features, width and units must be at least 1, depth at least 0 and largest at least 2; got "
                f"{self.features}, {self.width}, {self.units}, {self.depth} and {self.largest}."
            )
        space = Deals(jnp.ones((self.cards, len(self.quotas) + 1), bool), self.quotas)
        return AutoregressiveDeals(
            key, space, features=self.features, width=self.width, depth=self.depth, units=self.units,
            largest=self.largest,
        )  # fmt: skip
