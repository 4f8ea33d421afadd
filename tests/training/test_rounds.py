"""Rounds of training are trainings, one after another, by one program."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fits import untrained_on_a_line
from tolerances import FLOAT

from nbf.errors import InputError
from nbf.sources.pool import BeliefPool
from nbf.spaces import Lattice
from nbf.training.config import FitConfig
from nbf.training.fit import train
from nbf.training.rounds import Rounds

CONFIG = FitConfig(steps=40, batch=2, samples=4, optimizer="adam", learning_rate=1e-2, schedule="cosine")


def pool(seed: int) -> BeliefPool:
    states = np.random.default_rng(seed).integers(0, 5, (7, 6, 1))
    return BeliefPool(jnp.asarray(states, jnp.int32), Lattice((5,)))


def test_rounds_are_trainings_one_after_another(key, tmp_path):
    first_key, second_key = jax.random.split(key)
    model = untrained_on_a_line().model
    rounds = Rounds(model, pool(0), CONFIG)
    first = rounds.train(model, pool(1), key=first_key)
    second = rounds.train(first.model, pool(2), key=second_key, resume=tmp_path / "round.safetensors")
    program: Any = rounds.program
    assert program._cache_size() == 1, "it was compiled again"
    model = train(model, pool(1), CONFIG, key=first_key, progress=False).model
    alone = train(model, pool(2), CONFIG, key=second_key, progress=False)
    np.testing.assert_allclose(second.losses, alone.losses, **FLOAT)
    for ours, theirs in zip(jax.tree.leaves(second.model), jax.tree.leaves(alone.model), strict=True):
        np.testing.assert_allclose(ours, theirs, **FLOAT)
    # The file is that of the finished round: it is not trained twice.
    again = rounds.train(first.model, pool(2), key=second_key, resume=tmp_path / "round.safetensors")
    for ours, theirs in zip(jax.tree.leaves(again.model), jax.tree.leaves(second.model), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_round_does_not_stop_early():
    with pytest.raises(InputError, match="patience"):
        Rounds(untrained_on_a_line().model, pool(0), FitConfig(steps=20, patience=2))
