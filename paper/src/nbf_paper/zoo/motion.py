"""Motion that several problems share."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key


def reflected(value: Float[Array, "*any"], side: Any) -> Float[Array, "*any"]:
    """A coordinate between walls at 0 and `side` that reflect, for moves shorter than `side`."""
    return side - jnp.abs(side - jnp.abs(value))


def headings(key: Key[Array, ""], steps: int, turn: float) -> Float[Array, "steps 2"]:
    """Unit vectors of a course that begins anywhere and turns at random, by so many radians a step."""
    start_key, turn_key = jax.random.split(key)
    start = jax.random.uniform(start_key, maxval=2 * jnp.pi)
    course = start + turn * jnp.cumsum(jax.random.normal(turn_key, (steps,)))
    return jnp.stack([jnp.cos(course), jnp.sin(course)], axis=-1)
