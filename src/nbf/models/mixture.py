"""A decoder for real vectors: a mixture of Gaussians whose parameters a network computes.

    p_θ(x) = Σ_k w_k N(x; μ_k, L_k L_kᵀ), with L_k = diag(s_k) (I + U_k) and U_k strictly lower triangular

Everything acts on the rescaled state, where the box is (-1, 1)^d; densities are in the state's units. Where coordinates
are circular, of period 2, a component is a wrapped Gaussian, the sum over images Σ_j N(x + 2j; μ_k, L_k L_kᵀ). Rows of
L_k that belong to circular coordinates are shrunk to a length below `WIDEST`: then the images next to x, of which there
are 3 for each circular coordinate, are all that matter, and the density integrates to one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int, Key

from nbf import prng
from nbf.capabilities import ContinuousSpace, EvenDraws
from nbf.capability import capability, require
from nbf.contracts import StateSpace
from nbf.errors import InputError
from nbf.models.networks import Perceptron, bounded
from nbf.models.parts import DecoderConfig

LOG_SCALE_LIMIT = 7.0
"""Scales lie between e^-7 = 0.0009 and e^7, in half sides of the box, so that log densities are bounded."""
SHEAR_LIMIT = 10.0
"""Entries of U lie in ±10, which allows correlations up to 0.995; without a bound, solving with L could overflow."""
WIDEST = 0.6
"""Largest standard deviation along a circular coordinate, in half periods: the images reach 3 half periods, and beyond
5 deviations a Gaussian has 6e-7."""
MOST_CIRCULAR = 4
"""Most circular coordinates: a density sums over 3 images for each, 81 for four."""


class GaussianMixture(EvenDraws):
    """A mixture of Gaussians with full covariances.

    A bounded box clips samples beyond its walls. `log_prob` is the density before clipping, which integrates over the
    box to one minus the mass outside; it is -inf for a state that is not finite.
    """

    network: Perceptron
    """From the condition to the parameters of all components."""
    components: int = eqx.field(static=True)
    """Number of components."""
    dimension: int = eqx.field(static=True)
    """Numbers per state d."""
    circular: tuple[int, ...] = eqx.field(static=True)
    """Indices of the circular coordinates."""

    def __init__(
        self,
        key: Key[Array, ""],
        dimension: int,
        condition: int,
        *,
        components: int,
        width: int,
        depth: int,
        circular: tuple[int, ...] = (),
    ):
        """Draw the parameters.

        Args:
            key: Random key.
            dimension: Numbers per state.
            condition: Size of the condition.
            components: Number of components.
            width: Units of each hidden layer.
            depth: Hidden layers.
            circular: Indices of the circular coordinates.
        """
        self.components, self.dimension, self.circular = components, dimension, circular
        network_key, mean_key = jax.random.split(key)
        outputs = components * (1 + 2 * dimension + dimension * (dimension - 1) // 2)
        network = Perceptron(network_key, condition, outputs, width=width, depth=depth, zero_output=True)
        # Components that start equal would stay equal: their means start uniform in the box, and each is about as
        # wide as its share of it.
        means = jax.random.uniform(mean_key, (components, dimension), minval=-1.0, maxval=1.0)
        rest = jnp.zeros((components, outputs // components - 1 - dimension))
        rest = rest.at[:, :dimension].set(-math.log(components) / dimension)
        bias = jnp.concatenate([jnp.zeros((components, 1)), means, rest], axis=1).ravel()
        self.network = eqx.tree_at(lambda network: network.biases[-1], network, bias)

    def parameters(
        self, condition: Float[Array, " m"]
    ) -> tuple[Float[Array, " k"], Float[Array, "k d"], Float[Array, "k d d"]]:
        """Compute the parameters of each component, for encoded states.

        Args:
            condition: θ, followed by the context if there is one.

        Returns:
            log w, μ and L.
        """
        d = self.dimension
        raw = self.network(condition).reshape(self.components, -1)
        logits, means, log_scales, shears = jnp.split(raw, (1, 1 + d, 1 + 2 * d), axis=1)
        rows, columns = np.tril_indices(d, -1)
        factors = jnp.broadcast_to(jnp.eye(d), (self.components, d, d))
        factors = factors.at[:, rows, columns].set(bounded(shears, SHEAR_LIMIT))
        scales = jnp.exp(bounded(log_scales, LOG_SCALE_LIMIT))
        if self.circular:
            lengths = scales * jnp.sqrt(jnp.sum(factors**2, axis=-1))
            wraps = np.isin(np.arange(d), self.circular)
            scales = jnp.where(wraps, scales * (1.0 + (lengths / WIDEST) ** 4) ** -0.25, scales)
        return jax.nn.log_softmax(logits[:, 0]), means, scales[:, :, None] * factors

    def sample(
        self, key: Key[Array, ""], condition: Float[Array, " m"], n: int, space: StateSpace
    ) -> Float[Array, "n d"]:
        component_key, noise_key = jax.random.split(key)
        log_weights, means, factors = self.parameters(condition)
        chosen = prng.categoricals(component_key, jnp.exp(log_weights), n)
        return self._states(chosen, jax.random.normal(noise_key, (n, self.dimension)), means, factors, space)

    def draw(
        self, key: Key[Array, ""], condition: Float[Array, " m"], n: int, space: StateSpace
    ) -> tuple[Float[Array, "n d"], Float[Array, " n"]]:
        log_weights, means, factors = self.parameters(condition)
        numbers = prng.evenly(key, n, 1 + self.dimension)
        chosen = jnp.searchsorted(jnp.cumsum(jnp.exp(log_weights)), numbers[0], method="compare_all")
        noise = jax.scipy.special.ndtri(numbers[1:]).T
        chosen = jnp.minimum(chosen, self.components - 1)
        return self._states(chosen, noise, means, factors, space), jnp.zeros(n)

    def _states(
        self, chosen: Int[Array, " n"], noise: Float[Array, "n d"], means: Float[Array, "k d"],
        factors: Float[Array, "k d d"], space: StateSpace,
    ) -> Float[Array, "n d"]:  # fmt: skip
        """The states μ + L z of the chosen components."""
        space = self._fitting(space)
        # A sum of products, not a batched product, which a CPU does one small matrix at a time.
        encoded = means[chosen] + jnp.sum(factors[chosen] * noise[:, None, :], axis=-1)
        return jax.vmap(space.restore)(encoded)

    def log_prob(
        self, condition: Float[Array, " m"], states: Float[Array, "n d"], space: StateSpace
    ) -> Float[Array, " n"]:
        space = self._fitting(space)
        _check_states(states, space)
        finite = jnp.all(jnp.isfinite(states), axis=1)
        encoded = jax.vmap(space.rescale, out_axes=1)(jnp.where(finite[:, None], states, 0.0))
        log_weights, means, factors = self.parameters(condition)
        noise: list[Float[Array, "*images k n"]] = []
        for axis in range(self.dimension):
            rest = self._images(encoded[axis] - means[:, axis, None], axis)
            rest = rest - sum((factors[:, axis, i, None] * noise[i] for i in range(axis)), start=jnp.zeros(()))
            noise.append(rest / factors[:, axis, axis, None])
        log_scales = jnp.sum(jnp.log(jnp.diagonal(factors, axis1=1, axis2=2)), axis=1)
        constant = log_weights - log_scales - 0.5 * self.dimension * math.log(2.0 * math.pi)
        exponent = constant[:, None] - 0.5 * sum(part**2 for part in noise)
        log_density = jax.nn.logsumexp(exponent, axis=tuple(range(exponent.ndim - 1)))
        return jnp.where(finite, log_density - float(np.sum(np.log(space.scale))), -jnp.inf)

    def _images(self, apart: Float[Array, "k n"], axis: int) -> Float[Array, "*images k n"]:
        """The differences of a coordinate: itself, or those of the three nearest images along an axis of their own."""
        if axis not in self.circular:
            return apart
        nearest = apart - 2.0 * jnp.round(apart / 2.0)
        # Each circular coordinate has an axis of its own, the last one the innermost.
        inner = len(self.circular) - 1 - self.circular.index(axis)
        return nearest + jnp.asarray([-2.0, 0.0, 2.0]).reshape(3, *(1,) * (inner + 2))

    def objective(
        self, key: Key[Array, ""], conditions: Float[Array, "b m"], states: Float[Array, "b n d"], space: StateSpace
    ) -> Float[Array, "b n"]:
        return jax.vmap(self.log_prob)(conditions, states, space)

    def _fitting(self, space: StateSpace) -> ContinuousSpace:
        found = capability(space, ContinuousSpace)
        if found is None or (found.dimension, found.circular) != (self.dimension, self.circular):
            circular = f" with coordinates {self.circular} circular" if self.circular else ""
            raise InputError(
                f"This decoder is for a Box of {self.dimension} dimensions{circular}; it does not fit "
                f"{space.signature}: build one for that space."
            )
        return found


def _check_states(states: Float[Array, "n d"], space: ContinuousSpace) -> None:
    """Raise `InputError` unless the states have the right size and, outside of `jit`, are finite."""
    if states.shape[1] != space.dimension:
        raise InputError(f"A state of {space.signature} has {space.dimension} numbers; got {states.shape[1]}.")
    if not isinstance(states, Tracer) and not np.all(np.isfinite(states)):
        worst = int(np.argmin(np.all(np.isfinite(states), axis=1)))
        raise InputError(f"States must be finite; number {worst} is {np.asarray(states)[worst].tolist()}.")


@dataclass(frozen=True)
class MixtureConfig(DecoderConfig):
    """Config of a mixture of Gaussians with full covariances, wrapped along circular coordinates."""

    components: int = 16
    """Number of components."""
    width: int = 128
    """Units of each hidden layer."""
    depth: int = 2
    """Hidden layers."""

    def check(self, space: StateSpace) -> None:
        found = capability(space, ContinuousSpace)
        if found is None:
            raise InputError(f"The mixture decoder has a density on a Box; it does not fit {space.signature}.")
        if len(found.circular) > MOST_CIRCULAR:
            raise InputError(
                f"The mixture sums over 3 images for each circular coordinate, and takes at most {MOST_CIRCULAR}; "
                f"{space.signature} has {len(found.circular)}: encode some of them as sine and cosine in the state."
            )

    def build(self, key: Key[Array, ""], space: StateSpace, condition: int) -> GaussianMixture:
        space = require(space, ContinuousSpace, "The mixture decoder", "Use a Box.")
        return GaussianMixture(
            key,
            space.dimension,
            condition,
            components=self.components,
            width=self.width,
            depth=self.depth,
            circular=space.circular,
        )
