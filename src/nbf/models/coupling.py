"""Flows of coupling layers with masked inputs (Dinh et al., arXiv 1605.08803), conditioned on θ.

A layer keeps half of the coordinates and moves each coordinate of the other half by a monotone map (see `transforms`)
whose parameters a network computes from the kept half and from θ:

    x_b = transform(z_b; network(z_a, θ)),    x_a = z_a

Layers alternate the halves and start as the identity. The parameters of all layers are stacked. θ enters the first
product of every network, which is computed once per belief and shared by its samples. As in `networks`, the first axis
holds the features of one example; all further axes are examples.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from nbf.models.networks import Perceptron, columns
from nbf.models.transforms import Transform


class Coupling(eqx.Module):
    """A stack of coupling layers over unbounded vectors."""

    networks: Perceptron
    """The networks of all layers, stacked along a leading axis."""
    projection: Float[Array, "layers width m"]
    """Their first weights for θ."""
    transform: Transform = eqx.field(static=True)
    """What moves a coordinate."""
    layers: int = eqx.field(static=True)
    """Number of layers."""
    dimension: int = eqx.field(static=True)
    """Number of coordinates d."""

    def __init__(
        self,
        key: Key[Array, ""],
        dimension: int,
        condition: int,
        *,
        transform: Transform,
        layers: int,
        width: int,
        depth: int,
        activation: str = "relu",
    ):
        """Draw the parameters.

        Args:
            key: Random key.
            dimension: Number of coordinates d.
            condition: Size of θ.
            transform: What moves a coordinate.
            layers: Number of layers.
            width: Hidden units of each layer's network.
            depth: Hidden layers of each layer's network.
            activation: Of those networks.
        """

        def build(key: Key[Array, ""]) -> tuple[Perceptron, Float[Array, "width m"]]:
            outputs = transform.parameters * dimension
            network = Perceptron(
                key, dimension + condition, outputs, width=width, depth=depth, zero_output=True, activation=activation
            )
            state, context = network.weights[0][:, :dimension], network.weights[0][:, dimension:]
            return eqx.tree_at(lambda net: net.weights[0], network, state), context

        self.networks, self.projection = jax.vmap(build)(jax.random.split(key, layers))
        self.transform, self.layers, self.dimension = transform, layers, dimension

    def condition(self, embedding: Float[Array, "m *beliefs"]) -> Float[Array, "layers width *beliefs"]:
        """Compute what θ contributes to the first product of each layer's network.

        Args:
            embedding: θ of each belief.

        Returns:
            The context of `forward` and `inverse`.
        """
        return jnp.tensordot(self.projection, embedding, 1)

    def forward(self, z: Float[Array, "d *n"], context: Float[Array, "layers width *ctx"]) -> Float[Array, "d *n"]:
        """Map base points to states.

        A scan, while `inverse` is unrolled: a filter samples few points, where the short body of a loop runs 1.6 times
        as fast; training differentiates `inverse`, where a loop costs more.

        Args:
            z: Base points.
            context: From `condition`; its trailing axes broadcast against those of z.

        Returns:
            The states.
        """

        def layer(z: Float[Array, "d *n"], inputs: tuple) -> tuple[Float[Array, "d *n"], None]:
            kept, raw = self._raw(z, *inputs)
            return jnp.where(kept, z, self.transform.forward(raw, z)), None

        return jax.lax.scan(layer, z, (self._kept(), self.networks, context))[0]

    def inverse(
        self, x: Float[Array, "d *n"], context: Float[Array, "layers width *ctx"]
    ) -> tuple[Float[Array, "d *n"], Float[Array, "*n"]]:
        """Map states to base points.

        Args:
            x: States.
            context: From `condition`; its trailing axes broadcast against those of x.

        Returns:
            Base points, and log |det ∂z/∂x|.
        """
        log_det = jnp.zeros(x.shape[1:])
        for layer in reversed(self._unstacked(context)):
            kept, raw = self._raw(x, *layer)
            z, log_slopes = self.transform.inverse(raw, x)
            x = jnp.where(kept, x, z)
            log_det = log_det + jnp.sum(jnp.where(kept, 0.0, log_slopes), axis=0)
        return x, log_det

    def _unstacked(
        self, context: Float[Array, "layers width *ctx"]
    ) -> list[tuple[Bool[np.ndarray, " d"], Perceptron, Float[Array, "width *ctx"]]]:
        """The kept coordinates, the network and the context of each layer."""
        leaves, structure = jax.tree.flatten((self.networks, context))
        # The gradient of a split is one concatenation; that of an index is a padded sum for each layer.
        split = zip(*(jax.lax.split(leaf, (1,) * self.layers) for leaf in leaves), strict=True)
        layers = [structure.unflatten([part[0] for part in parts]) for parts in split]
        return [(kept, *layer) for kept, layer in zip(self._kept(), layers, strict=True)]

    def _kept(self) -> Bool[np.ndarray, "layers d"]:
        """Which coordinates each layer keeps."""
        return (np.arange(self.dimension) + np.arange(self.layers)[:, None]) % 2 == 1

    def _raw(
        self,
        x: Float[Array, "d *n"],
        kept: Bool[np.ndarray, " d"] | Bool[Array, " d"],
        network: Perceptron,
        context: Float[Array, "width *ctx"],
    ) -> tuple[Bool[np.ndarray, "d *ones"] | Bool[Array, "d *ones"], Float[Array, "p d *out"]]:
        """Which coordinates a layer keeps, and the raw parameters of the map of each coordinate."""
        kept = columns(kept, x)
        product = jnp.tensordot(network.weights[0], jnp.where(kept, x, 0.0), 1)
        raw = network.from_first(product + context)
        return kept, raw.reshape(self.transform.parameters, self.dimension, *raw.shape[1:])
