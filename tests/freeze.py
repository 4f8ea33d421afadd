"""Writes tests/data/frozen: a small model of every decoder, as this version saves it, with numbers that it gives.

`python tests/freeze.py` adds what is not there and never touches what is: a file must be readable for good.
"""

from __future__ import annotations

import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from constructors import DECODERS, EMBEDDING, with_random_parameters
from paths import FROZEN

from nbf.files.shipped import save_model
from nbf.models.belief_model import ModelConfig, space_config
from nbf.models.set_encoder import MeanConfig
from nbf.spaces import Box, Lattice

NUMBERS = FROZEN / "numbers.json"
MEAN = MeanConfig(width=8, depth=1)


def states_of(space):
    """Some states, the same for good."""
    if isinstance(space, Box):
        share = np.linspace(0.2, 0.8, 5)[:, None] + np.linspace(0.0, 0.1, space.dimension)
        return jnp.asarray(
            np.asarray(space.low) + share * (np.asarray(space.high) - np.asarray(space.low)), jnp.float32
        )
    if isinstance(space, Lattice):
        return jnp.asarray(space.points())
    return jnp.asarray([[0, 1, 2], [2, 0, 1], [1, 2, 0]])[:, : space.length]


def numbers_of(model, space) -> list[float]:
    """log densities of the states, given the embedding of a part of them."""
    return [round(float(value), 6) for value in np.asarray(_numbers(model, states_of(space), space))]


@eqx.filter_jit
def _numbers(model, states, space):
    embedding = model.embed(states[:3], jnp.asarray([0.0, -1.0, 0.5]), space)
    log_probs = model.log_prob(embedding, states, space)
    return jnp.concatenate([embedding, jnp.maximum(log_probs, -1e30)])


def main() -> None:
    FROZEN.mkdir(parents=True, exist_ok=True)
    known = json.loads(NUMBERS.read_text()) if NUMBERS.exists() else {}
    for name, (space, decoder) in DECODERS.items():
        if name in known:
            continue
        config = ModelConfig(space_config(space), decoder, MEAN, embedding=EMBEDDING)
        model = with_random_parameters(config.build, jax.random.key(len(known)))
        save_model(FROZEN / f"{name.replace(' ', '-').replace(',', '')}.safetensors", model, config)
        known[name] = numbers_of(model, space)
    NUMBERS.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
