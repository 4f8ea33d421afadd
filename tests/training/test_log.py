"""The curves of a training are its losses, also those of one that was stopped and went on."""

from __future__ import annotations

import struct
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constructors import small_grid
from extras import without
from jaxtyping import Array, Float
from tensorboardX.proto.event_pb2 import Event
from tolerances import FLOAT

import nbf
from nbf.training import intervals
from nbf.training.fit import Fitted, train

SOURCE = nbf.ExactPosteriors(nbf.One(*small_grid()), horizon=1)
SHORT = nbf.FitConfig(steps=50, batch=2, samples=4, optimizer="adam", learning_rate=0.1)


class Number(eqx.Module):
    value: Float[Array, ""]


@pytest.fixture(autouse=True)
def short_chunks(monkeypatch):
    monkeypatch.setattr(intervals, "CHUNK", 10)
    monkeypatch.setattr(intervals, "SAVE_EVERY", 0.0)


def trained(log, resume: Path | None = None) -> Fitted:
    return train(
        Number(jnp.float32(3.0)), SOURCE, SHORT, key=jax.random.key(1), resume=resume, progress=False, log=log,
        loss=lambda model, *_: (model.value - 1.0) ** 2,
    )  # fmt: skip


def curves(folder: Path) -> dict[str, dict[int, float]]:
    """What TensorBoard shows of the files in a folder: a step that a later session begins anew hides the older ones."""
    shown: dict[str, dict[int, float]] = {}
    for path in sorted(folder.glob("events.*")):
        content, at = path.read_bytes(), 0
        while at < len(content):  # a TFRecord: length, its checksum, the data, their checksum
            (length,) = struct.unpack_from("<Q", content, at)
            event = Event.FromString(content[at + 12 : at + 12 + length])
            at += 16 + length
            if event.HasField("session_log"):
                shown = {name: {s: v for s, v in curve.items() if s < event.step} for name, curve in shown.items()}
            for value in event.summary.value:
                shown.setdefault(value.tag, {})[event.step] = value.simple_value
    return shown


def test_curves_are_the_losses_of_the_training(tmp_path):
    with nbf.TensorBoard(tmp_path / "curves") as log:
        fitted = trained(log)
    shown = curves(tmp_path / "curves")
    assert list(shown["loss"]) == [10, 20, 30, 40, 50]
    np.testing.assert_allclose(list(shown["loss"].values()), fitted.losses, **FLOAT)
    np.testing.assert_allclose(shown["seconds"][50], fitted.seconds, **FLOAT)
    assert fitted.losses[-1] < fitted.losses[0], "nothing was learned"


def test_curves_go_on_with_a_training_that_was_stopped(tmp_path):
    folder, resume = tmp_path / "curves", tmp_path / "run.safetensors"

    class EnoughError(Exception):
        """Ends a session as a failure would: after a step that was logged and not saved."""

    def failing(step: int, values: dict[str, float]) -> None:
        log(step, {**values, "loss": -1.0} if step == 30 else values)
        if step == 30:
            raise EnoughError

    with nbf.TensorBoard(folder) as log, pytest.raises(EnoughError):
        trained(failing, resume)
    with nbf.TensorBoard(folder) as log:
        trained(log, resume)
    whole = trained(None)
    shown = curves(folder)["loss"]
    assert list(shown) == [10, 20, 30, 40, 50]
    np.testing.assert_allclose(list(shown.values()), whole.losses, **FLOAT)


def test_a_folder_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "taken").touch()
    with pytest.raises(nbf.InputError, match="is a file, and curves need a folder"):
        nbf.TensorBoard(tmp_path / "taken")


def test_the_extra_is_named():
    done = without("tensorboardX", "import nbf; nbf.TensorBoard('curves')")
    assert done.stderr.splitlines()[-1] == (
        "nbf.errors.MissingExtraError: nbf.TensorBoard needs tensorboardX: "
        "pip install 'neural-bayesian-filtering[tensorboard]'"
    )
