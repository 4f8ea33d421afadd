"""Flows of affine coupling layers with masked inputs (Dinh et al., arXiv 1605.08803), conditioned on θ.

A layer leaves half of the coordinates alone and moves the other half by an affine map whose shift
and scale a network computes from the first half and from θ:

    x_b = z_b · exp(s(z_a, θ)) + t(z_a, θ),    x_a = z_a

Layers alternate the halves and start as the identity. The parameters of all layers are stacked, and
θ enters the first product of every network, which is computed once per belief and shared by its
samples.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from nbf.contracts import Embedding
from nbf.models.networks import Perceptron

LOG_SCALE_LIMIT = 3.0
"""One layer scales by at most e^3: a soft bound that keeps AdaGrad at 0.1 from leaving float32."""


class AffineCoupling(eqx.Module):
    """A stack of affine coupling layers. Acts on unbounded vectors."""

    networks: Perceptron
    projection: Float[Array, "layers width m"]
    layers: int = eqx.field(static=True)
    dimension: int = eqx.field(static=True)

    def __init__(
        self, key: Key[Array, ""], dimension: int, embedding: int, *, layers: int, width: int, depth: int
    ):
        def build(key: Key[Array, ""]) -> tuple[Perceptron, Float[Array, "width m"]]:
            inputs = dimension + embedding
            network = Perceptron(key, inputs, 2 * dimension, width=width, depth=depth, zero_output=True)
            state, context = network.weights[0][:, :dimension], network.weights[0][:, dimension:]
            return eqx.tree_at(lambda net: net.weights[0], network, state), context

        self.networks, self.projection = jax.vmap(build)(jax.random.split(key, layers))
        self.layers, self.dimension = layers, dimension

    def condition(self, embedding: Embedding) -> Float[Array, "layers width"]:
        """What θ contributes to the first product of each layer."""
        return self.projection @ embedding

    def forward(self, z: Float[Array, " d"], context: Float[Array, "layers width"]) -> Float[Array, " d"]:
        """From base to state."""
        for layer in range(self.layers):
            shift, log_scale = self._affine(layer, z, context[layer])
            z = z * jnp.exp(log_scale) + shift
        return z

    def inverse(
        self, x: Float[Array, " d"], context: Float[Array, "layers width"]
    ) -> tuple[Float[Array, " d"], Float[Array, ""]]:
        """From state to base, and log |det ∂z/∂x|."""
        log_det = jnp.zeros(())
        for layer in reversed(range(self.layers)):
            shift, log_scale = self._affine(layer, x, context[layer])
            x = (x - shift) * jnp.exp(-log_scale)
            log_det = log_det - jnp.sum(log_scale)
        return x, log_det

    def _affine(
        self, layer: int, x: Float[Array, " d"], context: Float[Array, " width"]
    ) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
        kept = (np.arange(self.dimension) + layer) % 2 == 1
        network = jax.tree.map(lambda leaf: leaf[layer], self.networks)
        shift, log_scale = jnp.split(network.from_first(network.weights[0] @ jnp.where(kept, x, 0.0) + context), 2)
        log_scale = LOG_SCALE_LIMIT * jnp.tanh(log_scale / LOG_SCALE_LIMIT)
        return jnp.where(kept, 0.0, shift), jnp.where(kept, 0.0, log_scale)
