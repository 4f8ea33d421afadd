"""Triangulation (section "Triangulation" and its appendix): localisation from noisy ranges to three beacons.

An agent in a square moves by a fixed length in one cardinal direction, with Gaussian noise on both axes and
stopped by the walls, or scans: it then stands still and reads its noisy distance to the active beacon. The
beacons are active in turn. The start is uniform in the square.

The hidden state is the position alone. Whether a step is a move or a scan is public and does not depend on the
position, so its probability cancels in Bayes' rule; like the time it is part of the step's environment. After a
scan the posterior is the prior times the likelihood, without any motion; after a move it is the prediction,
without any likelihood. No particle is spent on the branch not taken. The evidence is that of the readings, given
which steps were scans.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.scipy.stats import norm
from jaxtyping import Array, Bool, Float, Int, Key

from nbf.capabilities import Drifting, GaussianDynamics, LookAhead, Scheduled, StateEmission
from nbf.contracts import Observation
from nbf.errors import InputError
from nbf.spaces import Box

DIRECTIONS = ((-1.0, 0.0), (1.0, 0.0), (0.0, -1.0), (0.0, 1.0))
"""The cardinal directions: down and up each axis."""
BEACONS = ((-2.0, -2.0), (0.0, 8.0**0.5), (2.0, -2.0))
"""The paper's beacons, in the order in which they are active."""


class ScanPolicy(eqx.Module):
    """Moves in one cardinal direction or scans, at random."""

    direction: Int[Array, ""]
    """Which of `DIRECTIONS`."""
    move: Float[Array, ""]
    """Probability of a move; otherwise the step is a scan."""

    def __check_init__(self) -> None:
        if not isinstance(self.move, Tracer) and not np.all(
            (np.asarray(self.move) >= 0) & (np.asarray(self.move) <= 1)
        ):
            raise InputError(f"The probability of a move must be in [0, 1]; got {self.move}.")
        if not isinstance(self.direction, Tracer):
            direction = np.asarray(self.direction)
            if not np.all((direction >= 0) & (direction < len(DIRECTIONS))):
                raise InputError(f"A direction is one of 0..{len(DIRECTIONS) - 1}; got {direction}.")


class Triangulation(LookAhead, StateEmission, Drifting, GaussianDynamics):
    """The environment of one step; `at` gives that of another.

    `look_ahead` is exact: a scan does not move, and a move reads nothing. The `moments` of the motion ignore the
    walls: beyond them the derivative of the clipped motion is 0, and a belief whose mean touches a wall would become
    certain at once.
    """

    space: Box
    beacons: Float[Array, "b 2"]
    step: Float[Array, ""]
    """Length of a move."""
    motion_noise: Float[Array, ""]
    """Standard deviation of a move along each axis; 0 is an exact move."""
    range_noise: Float[Array, ""]
    """Standard deviation of a reading."""
    time: Int[Array, ""]
    """Steps done before this one; the active beacon is number `time` modulo b."""
    scanning: Bool[Array, ""]
    """Whether this step is a scan, else a move."""

    def __check_init__(self) -> None:
        if self.space.dimension != 2 or not all(self.space.walled):
            raise InputError(
                f"Triangulation needs a bounded Box of 2 dimensions, none circular; got {self.space.signature}."
            )
        if self.beacons.shape[-2] < 1:
            raise InputError("Triangulation needs at least one beacon; got none.")
        least = {"step": self.step, "motion_noise": self.motion_noise, "range_noise": self.range_noise}
        for name, value in least.items():
            if not isinstance(value, Tracer) and not np.all(np.asarray(value) >= 0):
                raise InputError(f"{name} must be 0 or more; got {value}.")
        if not isinstance(self.range_noise, Tracer) and not np.all(np.asarray(self.range_noise) > 0):
            raise InputError(f"range_noise must be above 0, or no reading has a density; got {self.range_noise}.")

    def at(self, time: Int[Array, ""], scanning: Bool[Array, ""]) -> Triangulation:
        """Build the environment of another step.

        Args:
            time: Steps done before it.
            scanning: Whether it is a scan.

        Returns:
            The environment.
        """
        return eqx.tree_at(lambda world: (world.time, world.scanning), self, (time, scanning))

    @property
    def beacon(self) -> Float[Array, " 2"]:
        """Where the active beacon is."""
        return self.beacons[self.time % self.beacons.shape[0]]

    def init(self, key: Key[Array, ""]) -> Float[Array, " 2"]:
        low, high = jnp.asarray(self.space.low), jnp.asarray(self.space.high)
        return jax.random.uniform(key, (2,), minval=low, maxval=high)

    def drift(self, policy: ScanPolicy) -> tuple[Float[Array, " 2"], Float[Array, ""]]:
        mean = self.step * jnp.asarray(DIRECTIONS)[policy.direction]
        return jnp.where(self.scanning, 0.0, mean), jnp.where(self.scanning, 0.0, self.motion_noise)

    def transition(self, key: Key[Array, ""], state: Float[Array, " 2"], policy: ScanPolicy) -> Float[Array, " 2"]:
        mean, deviation = self.drift(policy)
        return self.space.nearest(state + mean + deviation * jax.random.normal(key, (2,)))

    def distance(self, position: Float[Array, " 2"]) -> Float[Array, ""]:
        """Compute the distance to the active beacon.

        Args:
            position: Of the agent.

        Returns:
            The distance.
        """
        return jnp.sqrt(jnp.sum((position - self.beacon) ** 2))

    def observe(
        self, key: Key[Array, ""], state: Float[Array, " 2"], next_state: Float[Array, " 2"]
    ) -> Float[Array, ""]:
        # A move reads nothing: its observation is 0.
        reading = self.distance(next_state) + self.range_noise * jax.random.normal(key)
        return jnp.where(self.scanning, reading, 0.0)

    def log_likelihood(
        self, observation: Float[Array, ""], state: Float[Array, " 2"], next_state: Float[Array, " 2"]
    ) -> Float[Array, ""]:
        density = norm.logpdf(observation, self.distance(next_state), self.range_noise)
        return jnp.where(self.scanning, density, 0.0)

    def look_ahead(
        self, observation: Float[Array, ""], state: Float[Array, " 2"], policy: ScanPolicy
    ) -> Float[Array, ""]:
        return self.log_likelihood(observation, state, state)

    @property
    def linear(self) -> bool:
        return False

    def initial_moments(self) -> tuple[Float[Array, " 2"], Float[Array, "2 2"]]:
        # The variance of a uniform distribution is side²/12.
        return jnp.asarray(self.space.middle), jnp.diag(jnp.asarray(2.0 * self.space.scale / 12.0**0.5))

    def moments(self, state: Float[Array, " 2"], policy: ScanPolicy) -> tuple[Float[Array, " 2"], Float[Array, "2 2"]]:
        mean, deviation = self.drift(policy)
        return state + mean, deviation * jnp.eye(2)

    def observation_moments(self, next_state: Float[Array, " 2"]) -> tuple[Float[Array, " 1"], Float[Array, "1 1"]]:
        # The bound makes the derivative 0 at the beacon itself, where the distance has none.
        square = jnp.sum((next_state - self.beacon) ** 2)
        distance = jnp.sqrt(jnp.maximum(square, jnp.finfo(square.dtype).tiny))
        return distance[None], self.range_noise[None, None]

    def reading(self, observation: Float[Array, ""]) -> Float[Array, " 1"]:
        return jnp.where(self.scanning, observation, jnp.nan)[None]

    def check_observation(self, observation: Observation) -> None:
        value = np.asarray(observation)
        if value.shape != () or not np.issubdtype(value.dtype, np.floating) or not np.isfinite(value):
            raise InputError(
                "A Triangulation observation is one finite real number, the range that was read (0 at a move); "
                f"got {observation!r}. Where a reading is missing, pass None."
            )


class TriangulationFamily(Scheduled):
    """The paper's episodes: a uniform direction, and a probability of a move that is uniform on [0, 1]."""

    half_width: float = eqx.field(static=True, default=5.0)
    """The square is [-half_width, half_width]²."""
    step: float = eqx.field(static=True, default=0.5)
    """Length of a move."""
    motion_noise: float = eqx.field(static=True, default=0.1)
    """Standard deviation of a move along each axis."""
    range_noise: float = eqx.field(static=True, default=0.5)
    """Standard deviation of a reading."""
    beacons: tuple[tuple[float, float], ...] = eqx.field(static=True, default=BEACONS)

    def __check_init__(self) -> None:
        self.environment()

    @property
    def space(self) -> Box:
        """The square."""
        return Box((-self.half_width,) * 2, (self.half_width,) * 2)

    def environment(self) -> Triangulation:
        """The environment of the first step, as a move."""
        noises = jnp.asarray(self.step), jnp.asarray(self.motion_noise), jnp.asarray(self.range_noise)
        beacons = jnp.reshape(jnp.asarray(self.beacons, jnp.float32), (-1, 2))
        return Triangulation(self.space, beacons, *noises, jnp.int32(0), jnp.bool_(False))

    def sample(self, key: Key[Array, ""]) -> tuple[Triangulation, ScanPolicy]:
        direction_key, move_key = jax.random.split(key)
        direction = jax.random.randint(direction_key, (), 0, len(DIRECTIONS))
        return self.environment(), ScanPolicy(direction, jax.random.uniform(move_key))

    def schedule(self, key: Key[Array, ""], steps: int) -> tuple[Triangulation, ScanPolicy]:
        policy_key, scan_key = jax.random.split(key)
        environment, policy = self.sample(policy_key)
        scans = jax.random.uniform(scan_key, (steps,)) >= policy.move
        environments = jax.vmap(environment.at)(jnp.arange(steps, dtype=jnp.int32), scans)
        return environments, jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (steps, *leaf.shape)), policy)
