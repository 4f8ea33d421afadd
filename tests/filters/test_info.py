"""What one step tells, printed."""

from __future__ import annotations

import jax
import jax.numpy as jnp

import nbf


def test_a_step_tells_its_numbers():
    info = nbf.FilterInfo(jnp.float32(12.34567), jnp.float32(-jnp.inf), jnp.int32(2), jnp.bool_(True))
    assert repr(info) == "FilterInfo(ess=12.35, log_evidence=-inf, attempts=2, recovered=True, invalid=0)"
    many = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), info)
    assert repr(many).startswith("FilterInfo(ess=f32[2], log_evidence=f32[2], ")
    seen = []
    jax.jit(lambda info: seen.append(repr(info)))(info)
    assert seen[0].startswith("FilterInfo(ess=f32[], ")
