"""A training in a process of its own, which can be killed and started again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from safetensors.numpy import load_file

PROGRAM = """
import sys
import nbf
from nbf import prng
from nbf.training import intervals
from nbf.training.fit import fit
from nbf.files.checkpoint import save_model
intervals.SAVE_EVERY = 0.0
config = nbf.FlowConfig((3, 3), embedding=4, encoder_width=8, noise_width=4, flow_width=8, flow_depth=2, flow_layers=2)
source = nbf.ExactPosteriors(nbf.RandomGridworlds(3, 2, 1, 1), 3)
fitted = fit(
    config.build(prng.stream(0, "parameters")), source, nbf.FitConfig(steps=600, batch=4, samples=8),
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
