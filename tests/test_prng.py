"""Keys and bits of our own threefry are those of `jax.random`, whatever the key."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Key

from nbf import prng

DATA, SHAPES = jax.random.key_data, ((), (1,), (33,), (4, 5))


@pytest.mark.parametrize("seed", [0, 7, 2**31 - 1])
@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_same_as_jax(seed: int, impl: str) -> None:
    for ours, theirs in zip(*both(jax.random.key(seed, impl=impl)), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@jax.jit
def both(key: Key[Array, ""]) -> tuple[list[Array], list[Array]]:
    """The same of both; in one program, since many small ones take longer."""
    key = jax.random.fold_in(key, 5)
    ours, theirs = (
        [DATA(one.fold_in(key, number)) for number in (0, 1, 2**31 - 1)]
        + [DATA(one.split(key, count)) for count in (1, 2, 1000)]
        + [one.bits(key, shape) for shape in SHAPES]
        + [one.uniform(key, shape) for shape in SHAPES]
        for one in (prng, jax.random)
    )
    return ours, theirs


def test_same_where_the_number_is_traced_and_keys_are_a_batch() -> None:
    keys, numbers = jax.random.split(jax.random.key(1), 6), jnp.arange(6, dtype=jnp.int32)
    ours = jax.jit(jax.vmap(prng.fold_in))(keys, numbers)
    np.testing.assert_array_equal(DATA(ours), DATA(jax.vmap(jax.random.fold_in)(keys, numbers)))
    ours = jax.jit(jax.vmap(lambda key: prng.split(key, 3)))(keys)
    np.testing.assert_array_equal(DATA(ours), DATA(jax.vmap(lambda key: jax.random.split(key, 3))(keys)))


def test_same_in_the_older_mode_of_jax() -> None:
    key = jax.random.key(3)
    jax.config.update("jax_threefry_partitionable", False)
    try:
        np.testing.assert_array_equal(DATA(prng.split(key, 4)), DATA(jax.random.split(key, 4)))
        np.testing.assert_array_equal(prng.bits(key, (9,)), jax.random.bits(key, (9,), jnp.uint32))
    finally:
        jax.config.update("jax_threefry_partitionable", True)
