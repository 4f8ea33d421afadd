"""A decoder for sequences of symbols: one softmax for each place, given the symbols before it.

    p_θ(x) = Π_i p(x_i | x_<i, θ), illegal symbols masked

The network is a masked one (MADE, Germain et al., arXiv 1502.03509). Every unit has a rank, the first place whose
logits may depend on it, and is connected to units of no higher rank. So all places are scored in one pass, and a sample
takes one pass as well: each place computes the units of its own rank. A second network computes all biases of the first
from θ, once per belief, so that what does not depend on the prefix, such as the first symbol, has a network of full
width. As in `networks`, the first axis holds the features of one example and all further axes are examples.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, Key

from nbf.capabilities import EvenDraws, SequenceSpace
from nbf.capability import capability, require
from nbf.contracts import StateSpace
from nbf.errors import InputError
from nbf.models.networks import Perceptron
from nbf.models.parts import DecoderConfig
from nbf.resampling.optimal import optimal_indices
from nbf.spaces import Tokens

LARGEST_LAYER = 2**26
"""Most weights of a layer, 256 MB: a config that asks for more is refused before memory is allocated."""
LARGEST_TRIANGULAR = 128
"""Up to this many symbols a cumulative sum by a triangular matrix is cheaper than XLA's, above all to compile, once for
each place."""


def shifted_logits(
    logits: Float[Array, "*shape"], legal: Bool[Array, "*shape"] | None, axis: int
) -> Float[Array, "*shape"]:
    """Mask logits and subtract the largest legal one along an axis.

    Args:
        logits: Unnormalised log probabilities.
        legal: Which entries are legal; None is all.
        axis: Axis of the categories.

    Returns:
        Logits, -inf where illegal, without NaN even if everything is.
    """
    masked = logits if legal is None else jnp.where(legal, logits, -jnp.inf)
    largest = jax.lax.stop_gradient(jnp.max(masked, axis, keepdims=True))
    return masked - jnp.where(jnp.isfinite(largest), largest, 0.0)


def inverse_cdf(uniform: Float[Array, " n"], probs: Float[Array, "K n"]) -> Int[Array, " n"]:
    """Draw an index for each column, in proportion to its entries, by inversion.

    Args:
        uniform: A number in [0, 1] for each column.
        probs: Probabilities, not necessarily normalised.

    Returns:
        Indices. An entry of probability zero is never drawn; of a column of zeros the first index is.
    """
    small = len(probs) <= LARGEST_TRIANGULAR
    cumulative = np.tri(len(probs), dtype=np.float32) @ probs if small else jnp.cumsum(probs, axis=0)
    passed = (cumulative > uniform * cumulative[-1]) & (probs > 0)
    # The first sum above the threshold; should rounding leave none, the likeliest entry.
    return jnp.argmax(jnp.where(passed, jnp.inf, probs), axis=0).astype(jnp.int32)


class Autoregressive(EvenDraws):
    """A softmax over the legal symbols of each place, given θ and the symbols before it.

    An illegal state has log probability -inf and is never drawn. If a space's `legal` leaves nothing to draw, that is
    an `InputError` outside of `jit`; inside, the state drawn is one that `contains` refuses.

    `draw` gives distinct states: at every place all continuations of the prefixes are weighted, and at most n are kept,
    as in `optimal.optimal_indices`. If there are fewer than n states, the other entries have weight zero.
    """

    biases: Perceptron
    """From θ to the biases of every layer of the masked network."""
    weights: tuple[Float[Array, "out in"], ...]
    """Weights of the masked network, before masking."""
    length: int = eqx.field(static=True)
    """Symbols of a state."""
    categories: int = eqx.field(static=True)
    """Values of a symbol, K."""

    def __init__(self, key: Key[Array, ""], space: SequenceSpace, condition: int, *, width: int, depth: int):
        """Draw the parameters.

        Args:
            key: Random key.
            space: Space of the states.
            condition: Size of the condition.
            width: Units of each hidden layer.
            depth: Hidden layers.
        """
        self.length, self.categories = space.length, space.categories
        # A single symbol has no prefix: there is nothing to mask.
        ranks = _ranks(self.length, self.categories, (width,) * depth if self.length > 1 else ())
        layers = list(itertools.pairwise(ranks))
        bias_key, *keys = jax.random.split(key, 1 + len(layers))
        biases = sum(len(high) for _, high in layers)
        self.biases = Perceptron(bias_key, condition, biases, width=width, depth=depth, zero_output=True)
        # He initialisation, where a one-hot symbol has a mean square of 1 / K; logits start at zero.
        scales = (*(2.0 * self.categories, *(2.0,) * depth)[: len(layers) - 1], 0.0)
        # Unmasked inputs of each unit, found without the mask, which may be huge.
        fan_ins = [np.searchsorted(low, high, side="right")[:, None] for low, high in layers]
        self.weights = tuple(
            jnp.sqrt(scale / jnp.maximum(fan_in, 1)) * jax.random.normal(key, (len(high), len(low)))
            for key, scale, fan_in, (low, high) in zip(keys, scales, fan_ins, layers, strict=True)
        )

    def sample(
        self, key: Key[Array, ""], condition: Float[Array, " m"], n: int, space: StateSpace
    ) -> Int[Array, "n l"]:
        uniform = jax.random.uniform(key, (self.length, n))

        def choose(place: int, logits: Float[Array, "K n"]) -> tuple[None, Int[Array, " n"]]:
            return None, inverse_cdf(uniform[place], jnp.exp(logits))

        return self._written(condition, n, space, choose)

    def draw(
        self, key: Key[Array, ""], condition: Float[Array, " m"], n: int, space: StateSpace
    ) -> tuple[Int[Array, "n l"], Float[Array, " n"]]:
        keys = jax.random.split(key, self.length)
        log_weights = jnp.full(n, -jnp.inf).at[0].set(0.0)

        def choose(place: int, logits: Float[Array, "K n"]) -> tuple[Int[Array, " n"], Int[Array, " n"]]:
            nonlocal log_weights
            # If everything is illegal the weight is zero, not NaN.
            total = jnp.sum(jnp.exp(logits), axis=0)
            after = log_weights + logits - jnp.log(jnp.where(total > 0, total, 1.0))
            chosen, log_weights, _ = optimal_indices(keys[place], after.ravel(), n)
            return chosen % n, chosen // n

        return self._written(condition, n, space, choose), log_weights

    def _written(
        self,
        condition: Float[Array, " m"],
        n: int,
        space: StateSpace,
        choose: Callable[[int, Float[Array, "K n"]], tuple[Int[Array, " n"] | None, Int[Array, " n"]]],
    ) -> Int[Array, "n l"]:
        """Write n sequences place by place.

        From shifted logits, -inf where illegal, `choose` decides which prefixes go on (None is each of them, in order)
        and by which symbols.
        """
        space = self._fitting(space)
        biases, ranks = self._biases(condition), self._ranks()[1:]
        states = jnp.zeros((n, 0), jnp.int32)
        layers = [jnp.zeros((0, n)) for _ in self.weights]
        for place in range(self.length):
            new = jnp.zeros((0, n))
            for layer, (weight, bias, rank) in enumerate(zip(self.weights, biases, ranks, strict=True)):
                first, last = np.searchsorted(rank, (place, place + 1))
                seen = layers[layer] if layer == 0 else jax.nn.relu(layers[layer])
                new = weight[first:last, : len(seen)] @ seen + bias[first:last, None]
                if layer + 1 < len(layers):
                    layers[layer + 1] = jnp.concatenate([layers[layer + 1], new])
            legal = None if space.legal is None else jax.vmap(space.mask, out_axes=-1)(states)
            _check_legal(legal, f"after {place} symbols")
            parents, drawn = choose(place, shifted_logits(new, legal, axis=0))
            if parents is not None:
                states, layers = states[parents], [layer[:, parents] for layer in layers]
            states = jnp.concatenate([states, drawn[:, None].astype(jnp.int32)], axis=1)
            layers[0] = jnp.concatenate([layers[0], self._one_hot(drawn[None]).reshape(self.categories, n)])
        return states

    def log_prob(
        self, condition: Float[Array, " m"], states: Int[Array, "n l"], space: StateSpace
    ) -> Float[Array, " n"]:
        return self._log_probs(condition[None], states[None], jax.tree.map(lambda leaf: leaf[None], space))[0]

    def objective(
        self, key: Key[Array, ""], conditions: Float[Array, "b m"], states: Int[Array, "b n l"], space: StateSpace
    ) -> Float[Array, "b n"]:
        return self._log_probs(conditions, states, space)

    def logits(
        self, conditions: Float[Array, "m b"], symbols: Float[Array, "places K b n"]
    ) -> Float[Array, "length K b n"]:
        """Logits of every place, given the symbols before it.

        Args:
            conditions: The condition of each belief.
            symbols: One-hot symbols of all places but the last.

        Returns:
            Logits of all places.
        """
        beliefs, n = symbols.shape[2:]
        hidden = symbols.reshape(-1, beliefs * n)
        layers = zip(self.weights, _masks(self._ranks()), self._biases(conditions), strict=True)
        for layer, (weight, mask, bias) in enumerate(layers):
            product = (weight * mask) @ (hidden if layer == 0 else jax.nn.relu(hidden))
            hidden = (product.reshape(-1, beliefs, n) + bias[..., None]).reshape(-1, beliefs * n)
        return hidden.reshape(self.length, self.categories, beliefs, n)

    def _log_probs(
        self, conditions: Float[Array, "b m"], states: Int[Array, "b n l"], space: StateSpace
    ) -> Float[Array, "b n"]:
        space = self._fitting(space)
        if states.shape[-1] != self.length:
            raise InputError(f"A state of {space.signature} has {self.length} symbols; got {states.shape[-1]}.")
        chosen = self._one_hot(jnp.moveaxis(states, -1, 0)) > 0
        legal = None
        if space.legal is not None:
            known = jnp.clip(states, 0, self.categories - 1)
            masks = lambda states, space: jax.vmap(space.masks, out_axes=-1)(states)  # noqa: E731
            legal = jax.vmap(masks, out_axes=2)(known, space)
            _check_legal(legal[0], "as the first symbol")
            chosen = chosen & legal
        logits = shifted_logits(self.logits(conditions.T, chosen[:-1].astype(jnp.float32)), legal, axis=1)
        total = jnp.sum(jnp.exp(logits), axis=1)
        log_prob = jnp.sum(jnp.where(chosen, logits, 0.0), axis=1) - jnp.log(jnp.where(total > 0, total, 1.0))
        return jnp.sum(jnp.where(jnp.any(chosen, axis=1), log_prob, -jnp.inf), axis=0)

    def _one_hot(self, states: Int[Array, "l *n"]) -> Float[Array, "l K *n"]:
        return jax.nn.one_hot(states, self.categories, axis=1)

    def _biases(self, condition: Float[Array, "m *b"]) -> list[Float[Array, "_ *b"]]:
        """The biases of each layer."""
        return jnp.split(self.biases(condition), np.cumsum([len(weight) for weight in self.weights])[:-1])

    def _ranks(self) -> list[Int[np.ndarray, " _"]]:
        return _ranks(self.length, self.categories, tuple(len(weight) for weight in self.weights[:-1]))

    def _fitting(self, space: StateSpace) -> SequenceSpace:
        found = capability(space, SequenceSpace)
        if found is None or (found.length, found.categories) != (self.length, self.categories):
            raise InputError(
                f"This decoder is for {Tokens(self.length, self.categories).signature}; it does not fit "
                f"{space.signature}: build one for that space."
            )
        return found


def _ranks(length: int, categories: int, hidden: tuple[int, ...]) -> list[Int[np.ndarray, " _"]]:
    """The rank of each input and hidden unit, and the place of each logit; ascending."""
    places = np.repeat(np.arange(length), categories)
    return [places[:-categories] + 1, *(np.sort(np.arange(size) % (length - 1)) + 1 for size in hidden), places]


def _masks(ranks: list[Int[np.ndarray, " _"]]) -> list[Bool[np.ndarray, "_ _"]]:
    """Which weights of each layer are not masked."""
    return [low <= high[:, None] for low, high in itertools.pairwise(ranks)]


def _check_legal(legal: Bool[Array, "K *n"] | None, where: str) -> None:
    """Raise `InputError` if nothing is legal, as far as that is known outside of `jit`."""
    if legal is None or isinstance(legal, Tracer):
        return
    if not np.all(np.any(legal, axis=0)):
        raise InputError(f"The space's `legal` allows no symbol {where}; it must leave at least one of {len(legal)}.")


@dataclass(frozen=True)
class AutoregressiveConfig(DecoderConfig):
    """Config of an autoregressive decoder."""

    width: int = 128
    """Units of each hidden layer, for all places together."""
    depth: int = 2
    """Hidden layers."""

    def check(self, space: StateSpace) -> None:
        found = capability(space, SequenceSpace)
        if found is None:
            raise InputError(f"The autoregressive decoder writes Tokens; it does not fit {space.signature}.")
        if self.depth and self.width < found.length - 1:
            raise InputError(
                f"width must be at least {found.length - 1}, a unit for each place of {space.signature} but the "
                f"first; got {self.width}."
            )
        largest = space.num_features * (self.width if self.depth else space.num_features)
        if largest > LARGEST_LAYER:
            raise InputError(
                f"A layer for {space.signature} and width {self.width} would have {largest} weights, more than "
                f"{LARGEST_LAYER}: use a smaller width or fewer symbols."
            )
        if found.legal is not None:
            _check_legal(found.mask(jnp.zeros(0, jnp.int32)), "as the first symbol")

    def build(self, key: Key[Array, ""], space: StateSpace, condition: int) -> Autoregressive:
        space = require(space, SequenceSpace, "The autoregressive decoder", "Use Tokens.")
        return Autoregressive(key, space, condition, width=self.width, depth=self.depth)
