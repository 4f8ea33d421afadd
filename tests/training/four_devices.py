"""A program for `test_devices.py`, started with four forced host devices: what it finds goes to the file named."""

from __future__ import annotations

import functools
import re
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import nbf
from nbf.training import fit, intervals
from nbf.training.config import optimizer_of
from nbf.training.fit import TrainingStopped, train, training_chunk
from nbf.training.loss import batch_loss
from nbf.training.run import TrainingRun

intervals.CHUNK = 5
STEPS, BATCH, SAMPLES = 20, 8, 16
CONFIG = nbf.FitConfig(
    steps=STEPS, batch=BATCH, samples=SAMPLES, optimizer="adam", learning_rate=1e-2, random_sets=True
)
FAMILY = nbf.RandomGridworlds(3, 2, 1, 1)
SOURCE = nbf.ExactPosteriors(FAMILY, 3)
KEY, FOUR = jax.random.key(12), jax.devices()
Found = dict[str, Any]


@functools.cache
def compiled(devices: tuple[Any, ...] | None) -> Any:
    """One program for all runs on the same devices: compiling is what takes the time."""
    return training_chunk(SOURCE, eqx.partition(untrained(), eqx.is_inexact_array)[1], CONFIG, None, devices)


def untrained() -> Any:
    small = {"encoder_width": 8, "encoder_depth": 1, "decoder_width": 8, "decoder_depth": 1}
    return nbf.EnumeratedConfig((3, 3), embedding=4, **small).build(jax.random.key(2))


def numbers(model: Any) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array))])


def one_step_at_a_time() -> Found:
    """The same steps on one device, without the library's loop."""
    parameters, static = eqx.partition(untrained(), eqx.is_inexact_array)
    optimizer = optax.adam(CONFIG.learning_rate)
    state, losses = optimizer.init(parameters), []

    @jax.jit
    def step(parameters: Any, state: Any, i: Any) -> Any:
        data_key, loss_key = jax.random.split(jax.random.fold_in(KEY, i))
        states, space = jax.vmap(lambda key: SOURCE.sample(key, SAMPLES))(jax.random.split(data_key, BATCH))

        def loss_of(parameters: Any) -> Any:
            return batch_loss(eqx.combine(parameters, static), loss_key, states, space, random_sets=True)

        loss, gradient = jax.value_and_grad(loss_of)(parameters)
        updates, state = optimizer.update(gradient, state, parameters)
        return optax.apply_updates(parameters, updates), state, loss

    for i in range(STEPS):
        parameters, state, loss = step(parameters, state, i)
        losses.append(float(loss))
    chunks = np.reshape(losses, (-1, intervals.CHUNK)).mean(axis=1)
    return {"loss_by_hand": chunks, "parameters_by_hand": numbers(parameters)}


def trained(name: str, devices: Any, resume: Path | None = None) -> Found:
    model = jax.device_put(untrained(), jax.devices()[-1])  # wherever it was before
    fitted = train(model, SOURCE, CONFIG, key=KEY, progress=False, devices=devices, resume=resume)
    places = {
        device.id for leaf in jax.tree.leaves(eqx.filter(fitted.model, eqx.is_array)) for device in leaf.devices()
    }
    return {
        f"loss_{name}": fitted.losses,
        f"parameters_{name}": numbers(fitted.model),
        f"places_{name}": np.asarray(sorted(places)),
    }


def resumed(name: str, path: Path, first: Any, then: Any) -> Found:
    """Half of a run on some devices, and the rest on others."""
    add = TrainingRun.add

    def stopping(self: TrainingRun, loss: Any) -> None:
        add(self, loss)
        if self.steps == STEPS // 2:
            signal.raise_signal(signal.SIGINT)

    TrainingRun.add = stopping
    try:
        trained(name, first, path)
    except TrainingStopped:
        TrainingRun.add = add
        return trained(name, then, path)
    raise AssertionError("the run was not stopped")


def shares() -> Found:
    """Where the arrays of a chunk are: its results, and the beliefs inside of it."""
    seen: list[Any] = []

    def loss(model: Any, key: Any, states: Any, space: Any) -> Any:
        jax.debug.inspect_array_sharding(states, callback=seen.append)
        return batch_loss(model, key, states, space)

    parameters, static = eqx.partition(untrained(), eqx.is_inexact_array)
    chunk = training_chunk(SOURCE, static, CONFIG, loss, FOUR)
    state = optimizer_of(CONFIG).init(parameters)
    results = jax.tree.leaves(chunk(parameters, state, KEY, jnp.asarray(0), jnp.asarray(STEPS)))
    return {
        "results_replicated": all(leaf.sharding.is_fully_replicated and len(leaf.devices()) == 4 for leaf in results),
        "beliefs_of_a_device": [sharding.shard_shape((BATCH, SAMPLES, 2))[0] for sharding in seen],
    }


def refused() -> Found:
    """What is said of a batch of six."""
    told = []
    for attempt in (
        lambda: train(untrained(), SOURCE, replace(CONFIG, batch=6), key=KEY, progress=False, devices=FOUR),
        lambda: nbf.shard(jnp.zeros((6, 2)), FOUR),
    ):
        try:
            attempt()
        except nbf.InputError as error:
            told.append(str(error))
    return dict(zip(("refused_training", "refused_batch"), told, strict=True))


def filtered() -> Found:
    """Eight episodes on one device, and over four."""
    environment, policy = FAMILY.sample(jax.random.key(0))
    keys = jax.random.split(KEY, BATCH)
    _, observations = jax.jit(jax.vmap(lambda key: nbf.rollout(key, environment, policy, 5)))(keys)
    tracker = nbf.NeuralBayesianFilter(untrained(), num_particles=8)

    @jax.jit
    def embeddings(keys: Any, observations: Any) -> Any:
        def one(key: Any, observations: Any) -> Any:
            return nbf.run(tracker, key, observations, environment, policy, look=lambda state: state.embedding)[0]

        return jax.vmap(one)(keys, observations)

    divided = nbf.shard((keys, np.asarray(observations)), FOUR)
    program = embeddings.lower(*divided).compile()
    many = program(*divided)
    return {
        "filtered_on_one": embeddings(keys, observations),
        "filtered_on_four": many,
        "episodes_of_a_device": [shard.data.shape[0] for shard in many.addressable_shards],
        "devices_of_episodes": [shard.device.id for shard in many.addressable_shards],
        "gathered": len(re.findall(r"all-gather|all-to-all", str(program.as_text()))),
    }


if __name__ == "__main__":
    file = Path(sys.argv[1])
    found = {**one_step_at_a_time(), **shares(), **filtered(), **refused()}
    fit.training_chunk = lambda *given: compiled(given[-1] and tuple(given[-1]))
    found |= {**trained("one", None), **trained("four", FOUR)}
    found |= resumed("to_four", file.with_name("a.safetensors"), None, FOUR)
    found |= resumed("to_one", file.with_name("b.safetensors"), FOUR, None)
    np.savez(file, **found)
