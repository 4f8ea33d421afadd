"""The point-mass filter: Bayes' rule for the masses of the cells of a fine grid on a plane (Bucy, Senne 1971).

For a position with a drift, Gaussian noise of the same deviation on both axes, and walls,

    x' = clip(x + mean + σ·ε),    y ~ H(x'),

the motion along one axis does not depend on the other, so a prediction is two products of matrices. They are exact
for a density that is constant within cells and for the atoms on the walls, which are places of their own
(`nbf.beliefs.histogram`). There are two approximations: the result is again taken as constant within cells, and the
likelihood is averaged over a few points of each cell. Both errors are of second order in the side of a cell.
"""

from __future__ import annotations

import functools
import itertools
import operator

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jax.scipy.stats import norm
from jaxtyping import Array, Float, Int, Key

from nbf.beliefs.histogram import HistogramBelief
from nbf.capabilities import ContinuousSpace, Drifting
from nbf.capability import capability, require
from nbf.contracts import Environment, Filter, FilterInfo, Observation, Policy
from nbf.errors import InputError
from nbf.filters.checks import check_counts
from nbf.filters.exact import exact_info
from nbf.resampling.likelihoods import is_invalid, log_likelihood_of

FAR = 12.0
"""Standard deviations beyond which a Gaussian is zero in float32."""


class PointMassFilter(Filter):
    """The posterior as masses of resolution² cells and of the walls around them, which are the filter's state. Needs
    `Drifting`."""

    resolution: int = eqx.field(static=True, default=200)
    """Cells along each axis. Memory grows with its square."""
    points: int = eqx.field(static=True, default=2)
    """Gauss-Legendre points along each axis of a cell, at which the likelihood is evaluated."""

    def __check_init__(self) -> None:
        check_counts("A point-mass filter", resolution=self.resolution, points=self.points)

    def init(self, key: Key[Array, ""], environment: Environment) -> Float[Array, "places places"]:
        _plane(environment)
        cells = jnp.full((self.resolution, self.resolution), 1.0 / self.resolution**2)
        return jnp.pad(cells, 1)

    def update(
        self,
        key: Key[Array, ""],
        state: Float[Array, "places places"],
        observation: Observation,
        environment: Environment,
        policy: Policy,
    ) -> tuple[Float[Array, "places places"], FilterInfo]:
        predicted = self.predict(state, environment, policy)
        size = jnp.asarray(float(state.size))
        if observation is None:
            return predicted, exact_info(size, jnp.bool_(True), 0.0)
        likelihood, log_scale, invalid = self._likelihood(predicted, observation, environment)
        joint = predicted * likelihood
        evidence = jnp.sum(joint)
        possible = evidence > 0
        posterior = joint / jnp.where(possible, evidence, 1.0)
        info = exact_info(size, possible, jnp.log(evidence) + log_scale, invalid)
        return jnp.where(possible, posterior, predicted), info

    def predict(
        self, state: Float[Array, "places places"], environment: Environment, policy: Policy
    ) -> Float[Array, "places places"]:
        """Compute the masses after the motion, before any observation.

        Args:
            state: The masses before it.
            environment: Of this step.
            policy: π.

        Returns:
            The masses, normalised.
        """
        moving, space = _plane(environment)
        mean, deviation = moving.drift(policy)
        rows, columns = (
            motion(self.resolution, mean[axis] / side, deviation / side)
            for axis, side in enumerate(2.0 * space.scale / self.resolution)
        )
        moved = rows.T @ state @ columns
        return moved / jnp.sum(moved)

    def belief(self, state: Float[Array, "places places"], environment: Environment) -> HistogramBelief:
        return HistogramBelief(state, _plane(environment)[1])

    def _likelihood(
        self, predicted: Float[Array, "places places"], observation: Observation, environment: Environment
    ) -> tuple[Float[Array, "places places"], Float[Array, ""], Int[Array, ""]]:
        """The likelihood of every place divided by the largest at a place with mass, the log of that one, and the
        number of places where it is invalid."""
        _, space = _plane(environment)
        nodes, weights = np.polynomial.legendre.leggauss(self.points)
        inside = (np.arange(self.resolution)[:, None] + (nodes + 1.0) / 2.0) / self.resolution
        share = np.concatenate([np.zeros((1, self.points)), inside, np.ones((1, self.points))])
        rows, columns = (
            jnp.asarray(low + (high - low) * share, jnp.float32)
            for low, high in zip(space.low, space.high, strict=True)
        )

        def at(row: Float[Array, ""], column: Float[Array, ""]) -> Float[Array, ""]:
            position = jnp.stack([row, column])
            return log_likelihood_of(environment)(observation, position, position)

        everywhere = jax.vmap(jax.vmap(at, (None, 0)), (0, None))
        # An array for each pair of points instead of one for all: XLA then fuses their sum into a single loop.
        pairs = list(itertools.product(range(self.points), repeat=2))
        parts = [jnp.where(predicted > 0, everywhere(rows[:, a], columns[:, b]), -jnp.inf) for a, b in pairs]
        invalid = functools.reduce(operator.or_, map(is_invalid, parts))
        parts = [jnp.where(part < jnp.inf, part, -jnp.inf) for part in parts]
        largest = functools.reduce(jnp.maximum, [jnp.max(part) for part in parts])
        log_scale = jnp.where(largest > -jnp.inf, largest, 0.0)
        shares = [float(weights[a] * weights[b]) / 4.0 for a, b in pairs]
        terms = (share * jnp.exp(part - log_scale) for share, part in zip(shares, parts, strict=True))
        return functools.reduce(operator.add, terms), log_scale, jnp.sum(invalid, dtype=jnp.int32)


def motion(resolution: int, mean: Float[Array, ""], deviation: Float[Array, ""]) -> Float[Array, "places places"]:
    """Compute the transition matrix along one axis, in units of the side of a cell.

    The start within a cell is uniform. With G(z) = z·Φ(z) + φ(z), the integral of Φ, the mass that ends below an edge
    is a difference of two σ·G, and the mass of a cell a second difference. For the sake of rounding, G is written as
    max(z, 0) + g(|z|), and the differences of the first part, which are large where those of g vanish, in closed form.

    Args:
        resolution: Cells along the axis.
        mean: Of the motion.
        deviation: Its standard deviation; may be 0.

    Returns:
        Row i: the probability of each place after the motion from place i.
    """
    deviation = jnp.asarray(deviation, jnp.float32)

    def tail(distance: Float[Array, " k"]) -> Float[Array, " k"]:
        z = jnp.minimum(jnp.abs(distance) / jnp.maximum(deviation, jnp.finfo(jnp.float32).tiny), FAR)
        return deviation * (norm.pdf(z) - z * ndtr(-z))

    def to_wall(mean: Float[Array, ""]) -> Float[Array, " cells"]:
        """From each cell to the lower wall."""
        start = jnp.arange(resolution + 1) + mean
        return jnp.clip(-start[:-1], 0.0, 1.0) - jnp.diff(tail(start))

    def from_wall(mean: Float[Array, ""]) -> Float[Array, " places"]:
        """From the lower wall to each place."""
        distance = jnp.arange(resolution + 1) - mean
        z = jnp.clip(distance / jnp.maximum(deviation, jnp.finfo(jnp.float32).tiny), -FAR, FAR)
        below = jnp.where(deviation > 0, ndtr(z), distance >= 0)
        return jnp.diff(below, prepend=0.0, append=1.0)

    offset = jnp.arange(-resolution, resolution + 1) - mean
    between = jnp.maximum(1.0 - jnp.abs(offset), 0.0)[1:-1] + jnp.diff(tail(offset), n=2)
    # Row i is `between`, shifted by i places. A vector of period 2r cut into rows of 2r - 1 is shifted by one from row
    # to row, and is four times as fast as a gather.
    period = jnp.roll(jnp.pad(between, (1, 0)), -resolution)
    repeated = jnp.broadcast_to(period, (resolution, 2 * resolution)).ravel()[: resolution * (2 * resolution - 1)]
    cells = repeated.reshape(resolution, 2 * resolution - 1)[:, :resolution]
    inner = jnp.concatenate([to_wall(mean)[:, None], cells, to_wall(-mean)[::-1, None]], axis=1)
    matrix = jnp.concatenate([from_wall(mean)[None], inner, from_wall(-mean)[None, ::-1]])
    return jnp.maximum(matrix, 0.0)


def _plane(environment: Environment) -> tuple[Drifting, ContinuousSpace]:
    moving = require(environment, Drifting, "The point-mass filter", "Use a particle filter.")
    space = capability(environment.space, ContinuousSpace)
    if space is None or space.dimension != 2 or not np.all(space.walled):
        raise InputError(
            "The point-mass filter needs positions in a bounded Box of 2 dimensions, neither of them circular; "
            f"{type(environment).__name__} has {environment.space.signature}. Use a particle filter."
        )
    return moving, space
