"""A budget of time for training: how many steps fit in it."""

from __future__ import annotations

import itertools
from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from constructors import MODELS
from tolerances import FLOAT

from nbf.environments.gridworld import RandomGridworlds
from nbf.errors import InputError
from nbf.files.checkpoint import read_file
from nbf.sources.exact import ExactPosteriors
from nbf.training import fit as training
from nbf.training import intervals, pace
from nbf.training.config import FitConfig, last_step, optimizer_of

KEY = jax.random.key(5)
SOURCE = ExactPosteriors(RandomGridworlds(3, 2, 1, 1, temperature=0.5), horizon=3)
COSINE = FitConfig(steps=90, batch=4, samples=8, optimizer="adam", learning_rate=1e-2, schedule="cosine")
CHUNKS = {}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Chunks of five steps, compiled once for all runs but those of another length."""
    make = training.training_chunk

    def once(source, static, config, *_):
        return CHUNKS.setdefault(replace(config, steps=1), make(source, static, config))

    monkeypatch.setattr(intervals, "CHUNK", 5)
    monkeypatch.setattr(training, "training_chunk", once)


@pytest.fixture
def a_second_each_look(monkeypatch):
    """A clock that is one second on at every look: a chunk takes one, four trials nine."""
    monkeypatch.setattr(pace, "time", SimpleNamespace(monotonic=itertools.count().__next__))


def train(config=COSINE, **options):
    model = MODELS["enumerated"](jax.random.key(2), (3, 3))
    return training.train(model, SOURCE, config, key=KEY, progress=False, **options)


def test_the_schedule_is_optax_s_for_any_length():
    rate = optax.cosine_decay_schedule(COSINE.learning_rate, 90)

    @jax.jit
    def updates(last):
        optimizer = optimizer_of(replace(COSINE, optimizer="adam", steps=7), last)

        def step(state, _):
            change, state = optimizer.update(jnp.ones(()), state)
            return state, change

        return jax.lax.scan(step, optimizer.init(jnp.zeros(())), length=100)[1]

    # With a gradient of one, Adam's step is its rate.
    np.testing.assert_allclose(-updates(jnp.asarray(90)), [float(rate(i)) for i in range(100)], **FLOAT)
    assert last_step(replace(COSINE, steps=7)) == 10


def test_a_budget_buys_the_steps_that_fit_in_it(a_second_each_look, tmp_path):
    """Nine seconds are gone after the trials: of 20, eleven are left for chunks of one second each."""
    path = tmp_path / "run.safetensors"
    bought = train(seconds=20.0, resume=path)
    assert len(bought.losses) == 11
    counted = train(replace(COSINE, steps=55))
    assert np.array_equal(bought.losses, counted.losses)
    assert all(map(np.array_equal, jax.tree.leaves(bought.model), jax.tree.leaves(counted.model)))
    # A run that was begun keeps its length, whatever the budget is now.
    assert '"steps": 55' in read_file(path)[0]["config"]
    assert np.array_equal(train(seconds=1000.0, resume=path).losses, bought.losses)


def test_a_large_budget_buys_no_more_than_asked_for(a_second_each_look):
    assert len(train(seconds=1000.0).losses) == COSINE.steps // 5


def test_a_budget_that_compiling_uses_up_is_refused(a_second_each_look, tmp_path):
    with pytest.raises(InputError, match=r"compiling it took 9 s, where 9 s were left .* Allow more"):
        train(seconds=9.0, resume=tmp_path / "run.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_a_file_without_a_length_is_refused(tmp_path):
    path = tmp_path / "run.safetensors"
    train(replace(COSINE, steps=5), resume=path)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'\\"steps\\": 5', b'\\"steqs\\": 5'))
    with pytest.raises(InputError, match=r"damaged run .* start anew"):
        train(seconds=20.0, resume=path)
