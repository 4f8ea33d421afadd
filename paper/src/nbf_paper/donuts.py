"""Donuts: ring distributions in the plane (section "Illustrative Example: Donuts").

A donut has a mean, a radius R and a width w. A point lies at a uniform angle around the mean, at a
signed distance r ~ N(R, w²) from it; its density at distance ρ = |r| is

    p(x) = [N(ρ; R, w²) + N(-ρ; R, w²)] / (2πρ)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from nbf.contracts import Belief, BeliefSource
from nbf.errors import InputError
from nbf.spaces import Box

NODES = 512
"""Points of the quadrature over the distance, for the entropy."""


class Donut(Belief):
    """One ring."""

    mean: Float[Array, " 2"]
    radius: Float[Array, ""]
    width: Float[Array, ""]

    def sample(self, key: Key[Array, ""], n: int) -> Float[Array, "n 2"]:
        angle_key, distance_key = jax.random.split(key)
        angle = jax.random.uniform(angle_key, (n,), maxval=2.0 * math.pi)
        distance = self.radius + self.width * jax.random.normal(distance_key, (n,))
        return self.mean + distance[:, None] * jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=-1)

    def log_prob(self, state: Float[Array, " 2"]) -> Float[Array, ""]:
        distance = jnp.sqrt(jnp.maximum(jnp.sum((state - self.mean) ** 2), jnp.finfo(jnp.float32).tiny))
        return self.log_distance(distance) - jnp.log(2.0 * math.pi * distance)

    def log_probs(self, states: Float[Array, "n 2"]) -> Float[Array, " n"]:
        return jax.vmap(self.log_prob)(states)

    def log_distance(self, distance: Float[Array, ""]) -> Float[Array, ""]:
        """log density of the distance from the mean: a folded normal."""
        ends = jnp.stack([distance - self.radius, distance + self.radius]) / self.width
        return jax.nn.logsumexp(-0.5 * ends**2) - jnp.log(self.width) - 0.5 * math.log(2.0 * math.pi)

    def entropy(self) -> Float[Array, ""]:
        """-E[log p(x)], by Gauss-Legendre quadrature over the distance."""
        nodes, weights = np.polynomial.legendre.leggauss(NODES)
        low = jnp.maximum(self.radius - 8.0 * self.width, 0.0)
        half = (self.radius + 8.0 * self.width - low) / 2.0
        distances = low + half * (jnp.asarray(nodes, jnp.float32) + 1.0)
        log_density = jax.vmap(self.log_distance)(distances)
        surprise = jnp.log(2.0 * math.pi * distances) - log_density
        return half * jnp.sum(jnp.asarray(weights, jnp.float32) * jnp.exp(log_density) * surprise)

    def expectation(self, function: Callable[[Float[Array, " 2"]], Any]) -> Any:
        raise InputError("The expectation over a donut has no closed form: average over samples instead.")


class Donuts(BeliefSource):
    """Random donuts: each parameter uniform in its range."""

    offset: float = eqx.field(static=True, default=1.0)
    """The mean lies in [-offset, offset]²."""
    radius: tuple[float, float] = eqx.field(static=True, default=(1.0, 2.0))
    width: tuple[float, float] = eqx.field(static=True, default=(0.2, 0.5))

    def __check_init__(self) -> None:
        for name, (low, high) in (("radius", self.radius), ("width", self.width)):
            if not 0.0 < low <= high < math.inf:
                raise InputError(f"A donut's {name} needs a range 0 < low <= high; got {low} to {high}.")
        if not 0.0 <= self.offset < math.inf:
            raise InputError(f"A donut's offset must be at least 0; got {self.offset}.")

    @property
    def space(self) -> Box:
        """The plane, scaled to the reach of the largest donut."""
        reach = float(self.offset + self.radius[1])
        return Box((-reach, -reach), (reach, reach), bounded=False)

    def belief(self, key: Key[Array, ""]) -> Donut:
        """One random donut."""
        keys = jax.random.split(key, 3)
        mean = jax.random.uniform(keys[0], (2,), minval=-self.offset, maxval=self.offset)
        radius = jax.random.uniform(keys[1], minval=self.radius[0], maxval=self.radius[1])
        return Donut(mean, radius, jax.random.uniform(keys[2], minval=self.width[0], maxval=self.width[1]))

    def sample(self, key: Key[Array, ""], n: int) -> tuple[Float[Array, "n 2"], Box]:
        belief_key, sample_key = jax.random.split(key)
        return self.belief(belief_key).sample(sample_key, n), self.space
