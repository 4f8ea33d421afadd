"""A training that was killed or stopped, and went on, is bit for bit the training that was not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

PROGRAM = """
import sys
import nbf
from nbf import prng
from nbf.training import fit as training
from nbf.files.checkpoint import save_model
training.SAVE_EVERY = 0.0
config = nbf.FlowConfig((3, 3), embedding=4, encoder_width=8, noise_width=4, flow_width=8, flow_depth=2, flow_layers=2)
source = nbf.ExactPosteriors(nbf.RandomGridworlds(3, 2, 1, 1), 3)
fitted = training.fit(
    config.build(prng.stream(0, "parameters")), source, nbf.FitConfig(steps=1200, batch=4, samples=8),
    key=prng.stream(0, "training"), resume=sys.argv[1], progress=False,
)
save_model(sys.argv[2], fitted.model, config)
"""


def start(folder: Path) -> subprocess.Popen:
    # All runs are one program: the first compiles it for the others.
    cache = {
        "JAX_COMPILATION_CACHE_DIR": str(folder.parent / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder / "run.safetensors"), str(folder / "model.safetensors")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **cache},
    )  # fmt: skip


def chunks(path: Path) -> int:
    try:
        return len(load_file(path)["losses"])
    except (FileNotFoundError, OSError):
        return 0


def finish(folder: Path) -> tuple[dict, dict]:
    process = start(folder)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return load_file(folder / "run.safetensors"), load_file(folder / "model.safetensors")


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    return finish(tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize("sent", [signal.SIGKILL])
def test_a_stopped_run_goes_on_to_the_same_result(sent, uninterrupted, tmp_path):
    process = start(tmp_path)
    path = tmp_path / "run.safetensors"
    while chunks(path) < 5:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.005)
    process.send_signal(sent)
    process.communicate(timeout=60)
    stopped_at = chunks(path)
    assert 5 <= stopped_at < 60, "it was not stopped on its way"
    assert not (tmp_path / "model.safetensors").exists()
    for resumed, whole in zip(finish(tmp_path), uninterrupted, strict=True):
        assert resumed.keys() == whole.keys()
        for name in whole:
            np.testing.assert_array_equal(resumed[name], whole[name], err_msg=name)
