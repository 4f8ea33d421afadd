"""A disk that is full leaves the old model, whole."""

from __future__ import annotations

from pathlib import Path

import jax
import pytest
from constructors import CONFIGS, MODELS
from disk import NoRoom, filled, small_disk

from nbf.errors import InputError
from nbf.files.checkpoint import save_model


def save_when_full(folder, full):
    """A model that was saved, then another that does not fit."""
    model, config = MODELS["enumerated"](jax.random.key(0), (2, 3)), CONFIGS["enumerated"]((2, 3))
    path = folder / "model.safetensors"
    save_model(path, model, config)
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    with full, pytest.raises(InputError, match=r"cannot be written.*What was there is unchanged"):
        save_model(path, model, config, note="x" * 20_000)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before, "a half-written file was left"


def test_a_file_that_does_not_fit_leaves_the_old_one(tmp_path: Path):
    save_when_full(tmp_path, NoRoom(4096))


@pytest.mark.slow
def test_a_disk_that_is_full_leaves_the_old_files(tmp_path: Path):
    with small_disk(tmp_path / "disk") as disk:
        (disk / "work").mkdir()
        save_when_full(disk / "work", filled(disk))
