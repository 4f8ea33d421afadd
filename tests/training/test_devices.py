"""Training and filtering over several devices: the numbers of one device, each with its share of the batch.

A process has the devices that it was started with, so `four_devices.py` runs in one of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tolerances import FLOAT

import nbf
from nbf.devices import check_devices
from nbf.training.fit import train

PROGRAM = Path(__file__).with_name("four_devices.py")
ONE = jax.devices()[:1]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """What the program finds on four forced host devices."""
    file = tmp_path_factory.mktemp("devices") / "found.npz"
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, str(PROGRAM), str(file)], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    with np.load(file) as arrays:
        return dict(arrays)


@pytest.mark.parametrize("name", ["one", "four", "to_four", "to_one"])
def test_the_run_is_the_same_on_any_devices(name: str, found: dict[str, np.ndarray]):
    """As steps by hand, also if some other devices began it."""
    np.testing.assert_allclose(found[f"loss_{name}"], found["loss_by_hand"], **FLOAT)
    np.testing.assert_allclose(found[f"parameters_{name}"], found["parameters_by_hand"], **FLOAT)


def test_each_device_has_its_share_of_the_beliefs_and_all_parameters(found: dict[str, np.ndarray]):
    assert found["results_replicated"]
    assert found["beliefs_of_a_device"].size
    assert set(found["beliefs_of_a_device"]) == {2}


def test_a_model_that_four_devices_trained_is_on_the_default_one(found: dict[str, np.ndarray]):
    np.testing.assert_array_equal(found["places_four"], [0])


def test_episodes_over_four_devices_are_those_of_one(found: dict[str, np.ndarray]):
    np.testing.assert_allclose(found["filtered_on_four"], found["filtered_on_one"], **FLOAT)
    np.testing.assert_array_equal(found["episodes_of_a_device"], [2, 2, 2, 2])
    np.testing.assert_array_equal(np.sort(found["devices_of_episodes"]), [0, 1, 2, 3])
    assert found["gathered"] == 0, "devices wait for each other's episodes"


WRONG = {
    "empty": ([], "is empty.* Give at least one"),
    "a name": ("cpu", "sequence of JAX devices"),
    "a number": (4, "sequence of JAX devices"),
    "numbers": ([0, 1], "sequence of JAX devices"),
    "twice": ([*ONE, *ONE], "twice.* Give each of them once"),
}


@pytest.mark.parametrize(("devices", "message"), WRONG.values(), ids=WRONG)
def test_what_is_no_sequence_of_devices_is_refused(devices: Any, message: str):
    with pytest.raises(nbf.InputError, match=message):
        check_devices(devices)


def test_every_way_in_refuses_wrong_devices(tmp_path: Path):
    """Before anything is drawn, compiled or written."""
    family, path = nbf.RandomGridworlds(3, 2, 1, 1), tmp_path / "run.safetensors"
    model = nbf.EnumeratedConfig((3, 3), embedding=4).build(jax.random.key(2))
    source, config = nbf.ExactPosteriors(family, 3), nbf.FitConfig(steps=20, batch=8, samples=8)
    with pytest.raises(nbf.InputError, match="is empty"):
        train(model, source, config, key=jax.random.key(0), progress=False, devices=[], resume=path)
    with pytest.raises(nbf.InputError, match="is empty"):
        nbf.fit(family, devices=[], progress=False, resume=path)
    with pytest.raises(nbf.InputError, match="is empty"):
        nbf.shard(jnp.zeros(4), [])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({}, "leading axes of no array at all"),
        (jnp.zeros(()), "leading axes of none"),
        ((jnp.zeros(4), np.zeros((6, 4))), "leading axes of 4, 6.* give it to the compiled function"),
        (jnp.zeros((0, 3)), "The batch has 0 entries.* multiple of 1, such as 1"),
    ],
)
def test_what_is_no_batch_is_refused(batch: Any, message: str):
    with pytest.raises(nbf.InputError, match=message):
        nbf.shard(batch, ONE)


def test_a_batch_that_four_devices_cannot_share_is_refused(found: dict[str, np.ndarray]):
    expected = "6 entries, which 4 devices cannot share equally. Choose a multiple of 4, such as 8, or fewer devices."
    assert str(found["refused_training"]) == f"The batch of training has {expected}"
    assert str(found["refused_batch"]) == f"The batch has {expected}"
