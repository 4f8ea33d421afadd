"""Move many points with few calls of the simulator.

A filter can weigh far more states than it can afford to simulate. Of the K weighted points that it carries, n are
chosen by weight and simulated. The others follow what these did: a linear regression of their displacements on the
encoding φ, the mean m(x) of its residuals r_i near x, and the rest of one of them,

    x' = x + a + B φ(x) + m(x) + (r_i - m(x)),    i with probability ∝ exp(-|φ(x) - φ(x_i)|² / 2h²).

The rest is smoothed by a kernel that keeps its covariance (the smoothed bootstrap: Silverman, Young 1987), so that few
of them stand for a density of noise.

Where motion is linear with additive noise only the error of the regression is left; where it is smooth, the error falls
with the distance between simulated points. A point that was simulated goes where the simulator says, so with n = K this
is the simulator. It needs a `Box`: elsewhere there are no displacements.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from nbf import prng
from nbf.beliefs.kde import unit_bandwidth
from nbf.beliefs.particles import ParticleBelief
from nbf.capabilities import ContinuousSpace
from nbf.capability import capability
from nbf.contracts import Environment, Policy, State, StateSpace
from nbf.errors import InputError
from nbf.filters.attempts import diverged
from nbf.filters.checks import check_counts
from nbf.resampling import schemes as resampling
from nbf.resampling.weights import normalize

RIDGE = 0.1
"""Of the regression with one simulated point; with n, an n-th of it."""
LEAST_DEVIATION = 1e-3
"""Of an encoded coordinate, by which it is scaled."""


class Surrogate(eqx.Module):
    """How points that are not simulated are moved. Its fields are constants; they are compiled in."""

    points: int = eqx.field(static=True, default=1024)
    """Points that a filter carries over a `Box`; at least as many as are simulated."""
    reach: float = eqx.field(static=True, default=0.5)
    """How far a point looks for a residual, in Silverman's widths of the simulated ones."""

    def __check_init__(self) -> None:
        check_counts("A surrogate", points=self.points)
        if not self.reach > 0:
            raise InputError(f"The reach of a surrogate must be above 0; got {self.reach}.")

    def size(self, space: StateSpace, calls: int) -> int:
        """Count the points that a filter carries.

        Args:
            space: Of the states.
            calls: Calls of the simulator at each step.

        Returns:
            `points` over a box, if they are more than the calls; else as many as the calls.
        """
        return calls if capability(space, ContinuousSpace) is None else max(self.points, calls)

    def __call__(
        self, key: Key[Array, ""], belief: ParticleBelief, environment: Environment, policy: Policy, calls: int
    ) -> State:
        """Move a set by the simulator, or by what the simulator did with a part of it.

        Args:
            key: Random key.
            belief: K weighted points.
            environment: Of this step.
            policy: π.
            calls: Calls of the simulator; with as many as there are points, all of them are simulated.

        Returns:
            Where each point goes; NaN if no simulated one went anywhere finite.
        """
        states, space = belief.states, capability(environment.space, ContinuousSpace)
        move = jax.vmap(environment.transition, (0, 0, None))
        if calls >= belief.log_weights.shape[0]:
            return move(prng.split(key, calls), states, policy)
        assert space is not None
        choice_key, pick_key, noise_key, move_key = prng.split(key, 4)
        log_weights = normalize(belief.log_weights)[0]
        chosen = resampling.systematic_draw(choice_key, log_weights, calls)
        children = move(prng.split(move_key, calls), states[chosen], policy)
        lost = diverged(children)
        sound = jnp.ones(calls) if lost is None else 1.0 - lost.astype(jnp.float32)
        moves = space.difference(children, states[chosen]) / space.scale
        numbers = _standardised(jax.vmap(space.encode)(states), jnp.exp(log_weights))
        rest, fitted = _regressed(numbers, chosen, jnp.where(sound[:, None] > 0, moves, 0.0), sound)
        shares = self._shares(numbers, chosen, sound)
        mean = shares @ rest
        noise = _noise(pick_key, noise_key, rest, mean, shares, jnp.exp(log_weights))
        followed = states + space.scale * (fitted + mean + noise)
        found = space.nearest(followed).at[chosen].set(children)
        return jnp.where(jnp.any(sound > 0), found, jnp.nan)

    def _shares(
        self, numbers: Float[Array, "K k"], chosen: Int[Array, " n"], sound: Float[Array, " n"]
    ) -> Float[Array, "K n"]:
        """For each point, the probability of each of the simulated ones, by its distance."""
        simulated = numbers[chosen]
        width = self.reach * unit_bandwidth(numbers.shape[1], float(len(chosen)))
        # |x|² is the same for all simulated points, so it is left out.
        nearness = numbers @ simulated.T - 0.5 * jnp.sum(simulated**2, axis=1)
        return jax.nn.softmax(jnp.where(sound > 0, nearness / width**2, -jnp.inf), axis=1)


def _standardised(numbers: Float[Array, "K k"], weights: Float[Array, " K"]) -> Float[Array, "K k"]:
    """Encodings with mean zero and unit deviation under the belief."""
    centred = numbers - weights @ numbers
    return centred / jnp.sqrt(weights @ centred**2 + LEAST_DEVIATION**2)


def _regressed(
    numbers: Float[Array, "K k"], chosen: Int[Array, " n"], moves: Float[Array, "n d"], sound: Float[Array, " n"]
) -> tuple[Float[Array, "n d"], Float[Array, "K d"]]:
    """The residuals of a ridge regression of the moves, and what it says of all points."""
    shares = sound / jnp.maximum(jnp.sum(sound), 1.0)
    mean, centre = shares @ moves, shares @ numbers[chosen]
    inputs = numbers[chosen] - centre
    gram = (inputs.T * shares) @ inputs + RIDGE / len(chosen) * jnp.eye(inputs.shape[1])
    slope = jnp.linalg.solve(gram, (inputs.T * shares) @ (moves - mean))
    return jnp.where(sound[:, None] > 0, moves - mean - inputs @ slope, 0.0), mean + (numbers - centre) @ slope


def _noise(
    pick_key: Key[Array, ""],
    noise_key: Key[Array, ""],
    rest: Float[Array, "n d"],
    mean: Float[Array, "K d"],
    shares: Float[Array, "K n"],
    weights: Float[Array, " K"],
) -> Float[Array, "K d"]:
    """For each point what one residual near it has beyond their mean there, with kernel noise, and shrunk so that the
    covariance stays what it is."""
    n, d = rest.shape
    place = prng.uniform(pick_key, (len(mean), 1))
    picked = jnp.minimum(jnp.sum(jnp.cumsum(shares, axis=1) < place, axis=1), n - 1)
    within = (rest.T * (weights @ shares)) @ rest - (mean.T * weights) @ mean
    root = jnp.linalg.cholesky(within + jnp.diag(1e-10 + 1e-3 * jnp.maximum(jnp.diag(within), 0.0)))
    width = unit_bandwidth(d, float(n))
    return (rest[picked] - mean + width * jax.random.normal(noise_key, mean.shape) @ root.T) / jnp.sqrt(1.0 + width**2)
