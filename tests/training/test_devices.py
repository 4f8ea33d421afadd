"""Training and filtering over several devices: the numbers of one device, each with its share of the batch.

A process has the devices that it was started with, so `four_devices.py` runs in one of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tolerances import FLOAT

import nbf
from nbf.training.fit import train

PROGRAM = Path(__file__).with_name("four_devices.py")
SOURCE = nbf.ExactPosteriors(nbf.RandomGridworlds(3, 2, 1, 1), 3)
CONFIG = nbf.FitConfig(steps=20, batch=8, samples=8)


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


class Another:
    """A device of another kind, which this machine does not have."""


WRONG = {
    "empty": ([], "devices is empty"),
    "a name": ("cpu", "sequence of JAX devices"),
    "a number": (4, "sequence of JAX devices"),
    "numbers": ([0, 1], "sequence of JAX devices"),
    "twice": ([jax.devices()[0]] * 2, "twice"),
}


@pytest.mark.parametrize(("devices", "message"), WRONG.values(), ids=WRONG)
def test_what_is_no_sequence_of_devices_is_refused(devices: Any, message: str, tmp_path: Path):
    model = nbf.EnumeratedConfig((3, 3), embedding=4).build(jax.random.key(2))
    path = tmp_path / "run.safetensors"
    with pytest.raises(nbf.InputError, match=message):
        train(model, SOURCE, CONFIG, key=jax.random.key(0), progress=False, devices=devices, resume=path)
    assert not path.exists()
    with pytest.raises(nbf.InputError, match=message):
        nbf.shard(jnp.zeros(4), devices)
    with pytest.raises(nbf.InputError, match=message):
        nbf.fit(nbf.RandomGridworlds(3, 2, 1, 1), devices=devices, progress=False)
