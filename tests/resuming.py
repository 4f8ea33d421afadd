"""A training in a process of its own, which can be killed and started again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from safetensors.numpy import load_file

PROGRAM = """
import pathlib
import sys
import nbf
from nbf import prng
from nbf.training import intervals
from nbf.training.fit import train
from nbf.files.checkpoint import save_model
intervals.SAVE_EVERY = 0.0
config = nbf.EnumeratedConfig((3, 3), embedding=4, encoder_width=8, encoder_depth=1, decoder_width=8, decoder_depth=1)
source = nbf.ExactPosteriors(nbf.RandomGridworlds(3, 2, 1, 1), 3)
for folder in map(pathlib.Path, sys.argv[1:]):
    fitted = train(
        config.build(prng.stream(0, "parameters")), source, nbf.FitConfig(steps=600, batch=4, samples=8),
        key=prng.stream(0, "training"), resume=folder / "run.safetensors", progress=False,
    )
    save_model(folder / "model.safetensors", fitted.model, config)
"""


def start(*folders: Path) -> subprocess.Popen:
    """A training in each folder, one after another."""
    # All runs are one program: the first compiles it for the others.
    cache = {
        "JAX_COMPILATION_CACHE_DIR": str(folders[0].parent / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *map(str, folders)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **cache},
    )  # fmt: skip


def chunks(path: Path) -> int:
    try:
        return len(load_file(path)["losses"])
    except (FileNotFoundError, OSError):
        return 0


def finish(*folders: Path) -> list[dict]:
    """Start in each folder, or go on there: what it then holds, the run and the model of each."""
    process = start(*folders)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return [load_file(folder / f"{name}.safetensors") for folder in folders for name in ("run", "model")]
