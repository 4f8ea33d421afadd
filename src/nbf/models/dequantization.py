"""Flows over a lattice by variational dequantization (Flow++, Ho et al., arXiv 1902.00275).

A sequence of L symbols out of K is a point of the lattice (K, ..., K), which is how the paper treats Goofspiel.

A cell x becomes the unit cube [x, x+1)^d, on which a flow has a density:

    P(x) = ∫_[0,1)^d p(x + u) du  >=  exp E_q(u|x,θ) [ log p(x + u) - log q(u | x, θ) ]

The noise q is a map of logistic noise, squashed to the cube. A network of x and θ gives its parameters and is trained
by the same bound. In Gridworld the map is affine in every coordinate, in Goofspiel it is one coupling layer; without a
map the noise is uniform.

The flow's coupling layers act on the logits of the box's coordinates, so that they map the box to itself. Its base is
uniform on the whole box, or normal on its logits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from nbf import prng
from nbf.capabilities import EvenDraws, FiniteSpace, SequenceSpace
from nbf.capability import capability
from nbf.contracts import Embedding, StateSpace
from nbf.errors import InputError
from nbf.models.coupling import Coupling
from nbf.models.flow import BASES, QUANTILES, check_choice, check_coupling, log_logistic, logit, unit_log_density
from nbf.models.networks import Perceptron, columns
from nbf.models.parts import DecoderConfig
from nbf.models.transforms import Affine, Transform, log_scale_of, transform_of, unstacked
from nbf.spaces import Lattice

NOISES = ("mlp", "coupling", "uniform")
"""Kinds of dequantization noise."""
LARGEST_QUADRATURE = 4096
"""Most quadrature points of a cell: 8 per axis in 4-D, 4 in 6-D. Beyond, use importance samples."""


def lattice_of(space: StateSpace) -> Lattice:
    """The lattice on whose cells a flow has a density.

    Args:
        space: Space of the states.

    Returns:
        The lattice of the points of a finite space, or of the sequences of `Tokens`; raises `InputError` for others.
    """
    finite, sequences = capability(space, FiniteSpace), capability(space, SequenceSpace)
    if finite is not None:
        return Lattice(finite.shape)
    if sequences is not None:
        return Lattice((sequences.categories,) * sequences.length)
    raise InputError(
        f"The dequantized flow fills the cells of a Lattice, as which it also takes Tokens; it does not fit "
        f"{space.signature}. For a Box there is the coupling flow."
    )


class DequantizedFlow(EvenDraws):
    """The paper's Gridworld and Goofspiel decoders: dequantization, then coupling layers in logit space.

    It does not know which states are legal: it may draw illegal ones, to which a filter gives weight zero. `log_prob`
    is the log of the flow's mass on a cell, by Gauss-Legendre quadrature over the unit cube, or by importance samples
    that are the same every time. `objective` is the bound, with one draw of the noise per state.
    """

    space: Lattice
    """The lattice whose cells have a density; `Tokens` are treated as one."""
    flow: Coupling
    """Coupling layers on logits."""
    noise: Perceptron | Coupling | None
    """The map of the noise; None is uniform noise."""
    noise_projection: Float[Array, "width m"] | None
    """First weights of a noise network for θ; a coupling has its own."""
    points: int = eqx.field(static=True)
    """Quadrature points along each axis of a cell, for `log_prob`."""
    importance_samples: int = eqx.field(static=True)
    """Draws of the noise by which `log_prob` estimates instead; 0 is quadrature."""
    base: str = eqx.field(static=True)
    """One of `flow.BASES`."""
    noise_conditioned: bool = eqx.field(static=True)
    """Whether the noise depends on θ, beside the state."""

    def __init__(
        self,
        key: Key[Array, ""],
        space: StateSpace,
        embedding: int,
        *,
        layers: int,
        width: int,
        depth: int,
        noise_width: int,
        noise_depth: int,
        points: int,
        transform: Transform = Affine(),  # noqa: B008 - a frozen value
        base: str = "uniform",
        noise: str = "mlp",
        importance_samples: int = 0,
        noise_conditioned: bool = True,
    ):
        """Draw the parameters.

        Args:
            key: Random key.
            space: Space of the states.
            embedding: Size of the condition.
            layers: Coupling layers.
            width: Hidden units of each layer's network.
            depth: Hidden layers of each layer's network.
            noise_width: Hidden units of the noise's network.
            noise_depth: Hidden layers of the noise's network.
            points: Quadrature points along each axis of a cell.
            transform: What moves a coordinate.
            base: One of `flow.BASES`.
            noise: One of `NOISES`.
            importance_samples: Draws of the noise for `log_prob`; 0 is quadrature.
            noise_conditioned: Whether the noise depends on θ, beside the state.
        """
        flow_key, noise_key = jax.random.split(key)
        self.space, self.points, self.base = lattice_of(space), points, base
        self.importance_samples, dimension = importance_samples, self.space.dimension
        self.flow = Coupling(
            flow_key, dimension, embedding, transform=transform, layers=layers, width=width, depth=depth
        )
        self.noise_conditioned, given = noise_conditioned, embedding if noise_conditioned else 0
        self.noise, self.noise_projection = _noise_map(noise_key, noise, dimension, given, noise_width, noise_depth)

    def sample(self, key: Key[Array, ""], embedding: Embedding, n: int, space: StateSpace) -> Int[Array, "n d"]:
        return self._cells(BASES[self.base][0](key, (self.space.dimension, n)), embedding)

    def draw(
        self, key: Key[Array, ""], embedding: Embedding, n: int, space: StateSpace
    ) -> tuple[Int[Array, "n d"], Float[Array, " n"]]:
        return self._cells(QUANTILES[self.base](prng.evenly(key, n, self.space.dimension)), embedding), jnp.zeros(n)

    def _cells(self, base: Float[Array, "d n"], embedding: Embedding) -> Int[Array, "n d"]:
        """The cells of the images of base points."""
        logits = self.flow.forward(base, self.flow.condition(embedding)[..., None]).T
        shape = jnp.asarray(self.space.shape)
        cells = jnp.floor(jax.nn.sigmoid(logits) * shape).astype(jnp.int32)
        return jnp.minimum(cells, shape - 1)

    def objective(
        self, key: Key[Array, ""], embeddings: Float[Array, "b m"], states: Int[Array, "b n d"], space: StateSpace
    ) -> Float[Array, "b n"]:
        uniform = jax.random.uniform(key, (states.shape[-1], *states.shape[:-1]))
        return self.log_ratio(embeddings.T[..., None], jnp.moveaxis(states, -1, 0), uniform)

    def log_prob(self, embedding: Embedding, states: Int[Array, "n d"], space: StateSpace) -> Float[Array, " n"]:
        if self.importance_samples:
            key = prng.stream(0, "importance samples")
            return self.log_prob_estimate(key, embedding, states, space, self.importance_samples)
        nodes, weights = (np.stack(np.meshgrid(*[axis] * self.space.dimension)).reshape(self.space.dimension, 1, -1)
                          for axis in np.polynomial.legendre.leggauss(self.points))  # fmt: skip
        offsets = jnp.asarray((nodes + 1.0) / 2.0, jnp.float32)
        log_density = self.log_density(embedding[:, None, None], states.T[:, :, None] + offsets)
        return jax.nn.logsumexp(log_density, axis=1, b=np.prod(weights / 2.0, axis=0))

    def log_prob_estimate(
        self, key: Key[Array, ""], embedding: Embedding, states: Int[Array, "n d"], space: StateSpace, samples: int
    ) -> Float[Array, " n"]:
        """Estimate log P of each cell by importance sampling with the noise (Burda et al., arXiv 1509.00519).

        The estimate is a lower bound in the mean, and tighter with more samples. One sample is the bound of training.

        Args:
            key: Random key.
            embedding: θ.
            states: Cells.
            space: Of the environment.
            samples: Draws of the noise per cell.

        Returns:
            The estimate for each cell.
        """
        if samples < 1:
            raise InputError(f"samples must be at least 1; got {samples}.")
        uniform = jax.random.uniform(key, (self.space.dimension, states.shape[0], samples))
        log_ratio = self.log_ratio(embedding[:, None, None], states.T[:, :, None], uniform)
        return jax.nn.logsumexp(log_ratio, axis=1) - math.log(samples)

    def log_density(self, embedding: Float[Array, "m *beliefs"], points: Float[Array, "d *n"]) -> Float[Array, "*n"]:
        """Log density of the flow at points of the box; a cell is the unit cube above its corner.

        Args:
            embedding: θ of each belief.
            points: Points; all axes but the first broadcast against those of `embedding`.

        Returns:
            The log density at each point.
        """
        shape = columns(jnp.asarray(self.space.shape, jnp.float32), points)
        unit = unit_log_density(self.flow, self.base, points / shape, self.flow.condition(embedding))
        return unit - jnp.sum(jnp.log(shape))

    def log_ratio(
        self, embedding: Float[Array, "m *beliefs"], states: Int[Array, "d *n"], uniform: Float[Array, "d *draws"]
    ) -> Float[Array, "*out"]:
        """Compute log p(x + u) - log q(u | x, θ).

        Its mean over the noise u is the bound; the log of the mean of its exponential is log P(x).

        Args:
            embedding: θ of each belief.
            states: Cells x.
            uniform: Uniform numbers from which the noise is made. All axes but the first broadcast.

        Returns:
            The log ratio of each cell and draw.
        """
        base = logit(uniform)
        noise, log_det = self._noise(embedding, self.space.encode(states), base)
        log_q = log_logistic(base) - log_det - log_logistic(noise)
        return self.log_density(embedding, states + jax.nn.sigmoid(noise)) - log_q

    def _noise(
        self, embedding: Float[Array, "m *beliefs"], encoded: Float[Array, "d *n"], base: Float[Array, "d *draws"]
    ) -> tuple[Float[Array, "d *out"], Float[Array, "*scaled"]]:
        """The logits of the noise, made from those of uniform noise, and log |det| of that map."""
        if self.noise is None:
            return base, jnp.zeros(())
        embedding = embedding if self.noise_conditioned else embedding[:0]
        if isinstance(self.noise, Coupling):
            # The contributions of x and of θ, apart: θ's is shared by a belief's samples. `inverse`, not `forward`,
            # because it also gives the log-determinant.
            of_state, of_belief = jnp.split(self.noise.projection, [self.space.dimension], axis=2)
            context = jnp.tensordot(of_state, encoded, 1) + jnp.tensordot(of_belief, embedding, 1)
            examples = jnp.broadcast_shapes(base.shape[1:], context.shape[2:])
            return self.noise.inverse(jnp.broadcast_to(base, (base.shape[0], *examples)), context)
        assert self.noise_projection is not None
        product = jnp.tensordot(self.noise.weights[0], encoded, 1) + jnp.tensordot(self.noise_projection, embedding, 1)
        raw = self.noise.from_first(product)
        shift, log_scale = unstacked(raw.reshape(2, -1, *raw.shape[1:]))
        log_scale = log_scale_of(log_scale)
        return base * jnp.exp(log_scale) + shift, jnp.sum(log_scale, axis=0)


def _noise_map(
    key: Key[Array, ""], kind: str, dimension: int, embedding: int, width: int, depth: int
) -> tuple[Perceptron | Coupling | None, Float[Array, "width m"] | None]:
    """The map of the noise and, of a network, its first weights for θ, apart from those for the state."""
    inputs = dimension + embedding
    if kind == "coupling":
        return Coupling(key, dimension, inputs, transform=Affine(), layers=1, width=width, depth=depth), None
    if kind == "mlp":
        network = Perceptron(key, inputs, 2 * dimension, width=width, depth=depth, zero_output=True)
        of_state, of_belief = jnp.split(network.weights[0], [dimension], axis=1)
        return eqx.tree_at(lambda net: net.weights[0], network, of_state), of_belief
    return None, None


@dataclass(frozen=True)
class DequantizedFlowConfig(DecoderConfig):
    """Config of coupling layers over a Lattice or Tokens, by dequantization; the defaults are Gridworld's."""

    transform: str = "affine"
    """What moves a coordinate: affine, nlsq or spline."""
    base: str = "uniform"
    """uniform on the box, or normal on its logits."""
    noise: str = "mlp"
    """Noise within a cell: mlp, coupling (one affine layer) or uniform."""
    layers: int = 5
    """Coupling layers."""
    width: int = 32
    """Hidden units of each layer's network."""
    depth: int = 5
    """Hidden layers of each layer's network."""
    noise_width: int = 32
    """Hidden units of the noise's network."""
    noise_depth: int = 2
    """Hidden layers of the noise's network."""
    bins: int = 8
    """Bins of a spline."""
    quadrature: int = 4
    """Gauss-Legendre points along each axis of a cell, for `log_prob`."""
    importance_samples: int = field(default=0, metadata={"added later": True})
    """Draws of the noise by which `log_prob` is estimated instead, for states of many dimensions; 0 is quadrature."""
    noise_conditioned: bool = field(default=True, metadata={"added later": True})
    """Whether the noise depends on θ, beside the state; uniform noise depends on neither."""

    def check(self, space: StateSpace) -> None:
        lattice = lattice_of(space)
        check_coupling(lattice)
        transform_of(self.transform, self.bins)
        check_choice("base", self.base, tuple(BASES))
        check_choice("noise", self.noise, NOISES)
        if self.noise == "uniform" and not self.noise_conditioned:
            raise InputError(
                "noise_conditioned=False says nothing of uniform noise, which has no network; leave it out."
            )
        if self.importance_samples < 0:
            raise InputError(f"importance_samples must be 0 (quadrature) or more; got {self.importance_samples}.")
        most = int(LARGEST_QUADRATURE ** (1.0 / lattice.dimension) + 1e-9)
        if self.importance_samples == 0 and self.quadrature > most:
            raise InputError(
                f"quadrature must be at most {most} points an axis in {lattice.dimension} dimensions, "
                f"{LARGEST_QUADRATURE} a cell; got {self.quadrature}. Use importance_samples instead."
            )

    def build(self, key: Key[Array, ""], space: StateSpace, condition: int) -> DequantizedFlow:
        return DequantizedFlow(
            key,
            space,
            condition,
            layers=self.layers,
            width=self.width,
            depth=self.depth,
            noise_width=self.noise_width,
            noise_depth=self.noise_depth,
            points=self.quadrature,
            transform=transform_of(self.transform, self.bins),
            base=self.base,
            noise=self.noise,
            importance_samples=self.importance_samples,
            noise_conditioned=self.noise_conditioned,
        )
