"""Flows over a lattice by variational dequantization (Flow++, Ho et al., arXiv 1902.00275).

A cell x becomes the unit cube [x, x+1)^d, on which a flow has a density:

    P(x) = ∫_[0,1)^d p(x + u) du  >=  exp E_q(u|x,θ) [ log p(x + u) - log q(u | x, θ) ]

The noise q is an affine map of logistic noise, squashed to the cube; its shift and scale come from
a network of x and θ, trained by the same bound.

The flow's base is uniform on the whole box. Its coupling layers act on the logits of the box's
coordinates, so that they map the box to itself: an affine map of the box itself would leave the
support of the base.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from nbf.contracts import Embedding, StateSpace
from nbf.models.coupling import AffineCoupling, shift_and_log_scale
from nbf.models.networks import Perceptron, columns
from nbf.spaces import Lattice

EDGE = 1e-6
"""Logits are taken of numbers in [EDGE, 1 - EDGE]; float32 resolves no finer near 1."""


def log_logistic(x: Float[Array, "d *n"]) -> Float[Array, "*n"]:
    """log density of d independent standard logistic variables, the logits of uniform ones."""
    return -jnp.sum(jnp.abs(x) + 2.0 * jnp.log1p(jnp.exp(-jnp.abs(x))), axis=0)


def logit(x: Float[Array, "d *n"]) -> Float[Array, "d *n"]:
    clipped = jnp.clip(x, EDGE, 1.0 - EDGE)
    return jnp.log(clipped) - jnp.log1p(-clipped)


class DequantizedFlow(eqx.Module):
    """The paper's Gridworld decoder: dequantization, coupling layers in logit space, a uniform base."""

    space: Lattice
    flow: AffineCoupling
    noise: Perceptron
    noise_projection: Float[Array, "width m"]
    points: int = eqx.field(static=True)
    """Quadrature points along each axis of a cell, for `log_prob`."""

    def __init__(
        self,
        key: Key[Array, ""],
        space: Lattice,
        embedding: int,
        *,
        layers: int,
        width: int,
        depth: int,
        noise_width: int,
        noise_depth: int,
        points: int,
    ):
        flow_key, noise_key = jax.random.split(key)
        dimension, self.space = space.dimension, space
        self.flow = AffineCoupling(flow_key, dimension, embedding, layers=layers, width=width, depth=depth)
        noise = Perceptron(
            noise_key, dimension + embedding, 2 * dimension, width=noise_width, depth=noise_depth, zero_output=True
        )
        state, context = noise.weights[0][:, :dimension], noise.weights[0][:, dimension:]
        self.noise, self.noise_projection = eqx.tree_at(lambda net: net.weights[0], noise, state), context
        self.points = points

    def sample(self, key: Key[Array, ""], embedding: Embedding, n: int, space: StateSpace) -> Int[Array, "n d"]:
        assert isinstance(space, Lattice)
        base = logit(jax.random.uniform(key, (space.dimension, n)))
        logits = self.flow.forward(base, self.flow.condition(embedding)[..., None]).T
        shape = jnp.asarray(space.shape)
        cells = jnp.floor(jax.nn.sigmoid(logits) * shape).astype(jnp.int32)
        return jnp.minimum(cells, shape - 1)

    def objective(
        self, key: Key[Array, ""], embeddings: Float[Array, "b m"], states: Int[Array, "b n d"], space: StateSpace
    ) -> Float[Array, "b n"]:
        """The bound, with one draw of the noise per state."""
        uniform = jax.random.uniform(key, (states.shape[-1], *states.shape[:-1]))
        return self.log_ratio(embeddings.T[..., None], jnp.moveaxis(states, -1, 0), uniform)

    def log_prob(self, embedding: Embedding, states: Int[Array, "n d"], space: StateSpace) -> Float[Array, " n"]:
        """log of the flow's mass on each cell, by Gauss-Legendre quadrature over the unit cube."""
        nodes, weights = (np.stack(np.meshgrid(*[axis] * self.space.dimension)).reshape(self.space.dimension, 1, -1)
                          for axis in np.polynomial.legendre.leggauss(self.points))  # fmt: skip
        offsets = jnp.asarray((nodes + 1.0) / 2.0, jnp.float32)
        log_density = self.log_density(embedding[:, None, None], states.T[:, :, None] + offsets)
        return jax.nn.logsumexp(log_density, axis=1, b=np.prod(weights / 2.0, axis=0))

    def log_density(self, embedding: Float[Array, "m *beliefs"], points: Float[Array, "d *n"]) -> Float[Array, "*n"]:
        """log density of the flow at points of the box; a cell is the unit cube above its corner."""
        shape = columns(jnp.asarray(self.space.shape, jnp.float32), points)
        logits = logit(points / shape)
        z, log_det = self.flow.inverse(logits, self.flow.condition(embedding))
        return log_logistic(z) + log_det - log_logistic(logits) - jnp.sum(jnp.log(shape))

    def log_ratio(
        self, embedding: Float[Array, "m *beliefs"], states: Int[Array, "d *n"], uniform: Float[Array, "d *draws"]
    ) -> Float[Array, "*out"]:
        """log p(x + u) - log q(u | x, θ), the noise u made from a uniform vector; all axes broadcast.

        Its mean over the noise is the bound; the log of the mean of its exponential is log P(x).
        """
        encoded = self.space.encode(states)
        product = jnp.tensordot(self.noise.weights[0], encoded, 1) + jnp.tensordot(self.noise_projection, embedding, 1)
        shift, log_scale = shift_and_log_scale(self.noise.from_first(product))
        base = logit(uniform)
        noise = base * jnp.exp(log_scale) + shift
        log_q = log_logistic(base) - jnp.sum(log_scale, axis=0) - log_logistic(noise)
        return self.log_density(embedding, states + jax.nn.sigmoid(noise)) - log_q
