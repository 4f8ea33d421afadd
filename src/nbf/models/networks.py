"""Multilayer perceptrons, one example per call."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key


class Perceptron(eqx.Module):
    """`depth` hidden layers of `width` units with ReLU, then a linear layer.

    He initialisation; with `zero_output` the last layer starts at zero, so that whatever it
    parameterises starts as the identity.
    """

    weights: tuple[Float[Array, "out in"], ...]
    biases: tuple[Float[Array, " out"], ...]

    def __init__(
        self, key: Key[Array, ""], in_size: int, out_size: int, *, width: int, depth: int, zero_output: bool = False
    ):
        sizes = (in_size, *(width,) * depth, out_size)
        keys = jax.random.split(key, depth + 1)
        scales = [*(2.0,) * depth, 0.0 if zero_output else 1.0]
        self.weights = tuple(
            jnp.sqrt(scale / fan_in) * jax.random.normal(key, (fan_out, fan_in))
            for key, scale, fan_in, fan_out in zip(keys, scales, sizes[:-1], sizes[1:], strict=True)
        )
        self.biases = tuple(jnp.zeros(size) for size in sizes[1:])

    def __call__(self, x: Float[Array, " in"]) -> Float[Array, " out"]:
        return self.from_first(self.weights[0] @ x)

    def from_first(self, first: Float[Array, " width"]) -> Float[Array, " out"]:
        """The rest of the network, given the product of the first layer: a caller may share a part
        of that product among many examples."""
        hidden = first + self.biases[0]
        for weight, bias in zip(self.weights[1:], self.biases[1:], strict=True):
            hidden = weight @ jax.nn.relu(hidden) + bias
        return hidden
