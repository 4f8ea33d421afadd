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
from nbf.models.coupling import AffineCoupling
from nbf.models.networks import Perceptron
from nbf.spaces import Lattice

EDGE = 1e-6
"""Logits are taken of numbers in [EDGE, 1 - EDGE]; float32 resolves no finer near 1."""


def log_logistic(x: Float[Array, " d"]) -> Float[Array, ""]:
    """log density of independent standard logistic variables, the logits of uniform ones."""
    return -jnp.sum(jnp.abs(x) + 2.0 * jnp.log1p(jnp.exp(-jnp.abs(x))))


def logit(x: Float[Array, " d"]) -> Float[Array, " d"]:
    clipped = jnp.clip(x, EDGE, 1.0 - EDGE)
    return jnp.log(clipped) - jnp.log1p(-clipped)


class DequantizedFlow(eqx.Module):
    """The paper's Gridworld decoder: dequantization, coupling layers in logit space, a uniform base."""

    flow: AffineCoupling
    noise: Perceptron
    noise_projection: Float[Array, "width m"]
    points: int = eqx.field(static=True)
    """Quadrature points along each axis of a cell, for `log_prob`."""

    def __init__(
        self, key: Key[Array, ""], dimension: int, embedding: int, *,
        layers: int, width: int, depth: int, noise_width: int, noise_depth: int, points: int,
    ):
        flow_key, noise_key = jax.random.split(key)
        self.flow = AffineCoupling(flow_key, dimension, embedding, layers=layers, width=width, depth=depth)
        noise = Perceptron(
            noise_key, dimension + embedding, 2 * dimension, width=noise_width, depth=noise_depth, zero_output=True
        )
        state, context = noise.weights[0][:, :dimension], noise.weights[0][:, dimension:]
        self.noise, self.noise_projection = eqx.tree_at(lambda net: net.weights[0], noise, state), context
        self.points = points

    def sample(self, key: Key[Array, ""], embedding: Embedding, n: int, space: StateSpace) -> Int[Array, "n d"]:
        assert isinstance(space, Lattice)
        base = logit(jax.random.uniform(key, (n, space.dimension)))
        logits = jax.vmap(self.flow.forward, (0, None))(base, self.flow.condition(embedding))
        shape = jnp.asarray(space.shape)
        cells = jnp.floor(jax.nn.sigmoid(logits) * shape).astype(jnp.int32)
        return jnp.minimum(cells, shape - 1)

    def objective(
        self, key: Key[Array, ""], embedding: Embedding, states: Int[Array, "n d"], space: StateSpace
    ) -> Float[Array, " n"]:
        """The bound, with one draw of the noise per state."""
        uniform = jax.random.uniform(key, states.shape)
        return self._log_ratio(embedding, states, uniform[:, None], space)[:, 0]

    def log_prob(self, embedding: Embedding, states: Int[Array, "n d"], space: StateSpace) -> Float[Array, " n"]:
        """log of the flow's mass on each cell, by quadrature.

        With u = F(e) for the noise's own map F of the unit cube, ∫ p(x+u) du = ∫ p(x+F(e)) / q(F(e)) de.
        Where q has learned the shape of p within the cell the right side is nearly constant, so a
        midpoint rule in e needs few points.
        """
        ticks = (np.arange(self.points) + 0.5) / self.points
        grid = np.stack(np.meshgrid(*[ticks] * states.shape[-1], indexing="ij"), axis=-1).reshape(-1, states.shape[-1])
        nodes = jnp.broadcast_to(jnp.asarray(grid, jnp.float32), (states.shape[0], *grid.shape))
        return jax.nn.logsumexp(self._log_ratio(embedding, states, nodes, space), axis=1) - np.log(len(grid))

    def _log_ratio(
        self, embedding: Embedding, states: Int[Array, "n d"], uniform: Float[Array, "n k d"], space: StateSpace
    ) -> Float[Array, "n k"]:
        """log p(x + u) - log q(u | x, θ) for k draws of the noise per state, each from a uniform vector."""
        assert isinstance(space, Lattice)
        shape = jnp.asarray(space.shape, jnp.float32)
        context, noise_context = self.flow.condition(embedding), self.noise_projection @ embedding

        def one_state(state: Int[Array, " d"], uniform: Float[Array, "k d"]) -> Float[Array, " k"]:
            raw = self.noise.from_first(self.noise.weights[0] @ space.encode(state) + noise_context)
            shift, log_scale = jnp.split(raw, 2)

            def one_draw(uniform: Float[Array, " d"]) -> Float[Array, ""]:
                base = logit(uniform)
                noise = base * jnp.exp(log_scale) + shift
                log_q = log_logistic(base) - jnp.sum(log_scale) - log_logistic(noise)
                logits = logit((state + jax.nn.sigmoid(noise)) / shape)
                z, log_det = self.flow.inverse(logits, context)
                log_p = log_logistic(z) + log_det - log_logistic(logits) - jnp.sum(jnp.log(shape))
                return log_p - log_q

            return jax.vmap(one_draw)(uniform)

        return jax.vmap(one_state)(states, uniform)
