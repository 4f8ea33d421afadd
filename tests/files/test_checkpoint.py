"""Checkpoints: what was saved comes back, and whatever else is in a file is refused in one sentence."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import struct
from importlib.metadata import version

import jax
import jaxtyping
import numpy as np
import pytest
from constructors import CONFIGS, MODELS
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import nbf.models.belief_model
from nbf.errors import InputError
from nbf.files import checkpoint
from nbf.files.atomic import remove_abandoned
from nbf.files.shipped import SHIPPED, load_model, save_model, shipped_model

KNOWN = nbf.models.belief_model.MODELS
SHAPE = (2, 3)
each_config = pytest.mark.parametrize("name", CONFIGS)


@functools.cache
def model_of(name):
    return MODELS[name](jax.random.key(9), SHAPE)


@pytest.fixture(autouse=True)
def unchecked():
    """As a user has it: without the type checks of the tests, which would find wrong types of their own."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def saved(name, path):
    checkpoint.save_model(path, model_of(name), CONFIGS[name](SHAPE), seed="3", remark="grüße")
    return path


def refused(path, match=None):
    """`InputError` and nothing else, with a message that names the file and fits in a paragraph."""
    with pytest.raises(InputError, match=match) as caught:
        checkpoint.load_model(path, KNOWN)
    message = str(caught.value)
    assert len(message) < 600
    assert "\n" not in message.strip()
    return message


def metadata_of(path):
    with safe_open(str(path), framework="numpy") as file:
        return file.metadata()


def rewrite(path, leaves=None, **metadata):
    """The same file with some leaves or metadata replaced; None removes an entry."""
    kept = {key: value for key, value in {**metadata_of(path), **metadata}.items() if value is not None}
    changed = {key: value for key, value in {**load_file(path), **(leaves or {})}.items() if value is not None}
    save_file(changed, path, metadata=kept)


def reconfigure(path, **fields):
    """The same file with some fields of its config replaced; None removes one."""
    config = {**json.loads(metadata_of(path)["config"]), **fields}
    rewrite(path, config=json.dumps({key: value for key, value in config.items() if value is not None}))


# What was saved comes back


@each_config
def test_saved_and_loaded_is_the_same(name, tmp_path):
    path = saved(name, tmp_path / "new folder" / "model.safetensors")
    model, config, metadata = checkpoint.load_model(path, KNOWN)
    assert config == CONFIGS[name](SHAPE)
    assert jax.tree.structure(model) == jax.tree.structure(model_of(name))
    for one, other in zip(jax.tree.leaves(model), jax.tree.leaves(model_of(name)), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    assert metadata["seed"] == "3"
    assert metadata["remark"] == "grüße"
    assert metadata["library_version"] == version("neural-bayesian-filtering")
    assert metadata["format_version"] == str(checkpoint.FORMAT_VERSION)
    assert metadata["class"] == type(config).__name__
    assert [entry.name for entry in path.parent.iterdir()] == ["model.safetensors"]


def test_the_public_functions_do_the_same(tmp_path):
    path = tmp_path / "model.safetensors"
    save_model(path, model_of("enumerated"), CONFIGS["enumerated"](SHAPE))
    loaded = load_model(str(path))
    for one, other in zip(jax.tree.leaves(loaded), jax.tree.leaves(model_of("enumerated")), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", SHIPPED)
def test_the_shipped_models_load(name):
    model = shipped_model(name)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(model))


def test_a_model_that_is_not_shipped_is_refused_with_the_names_of_those_that_are():
    with pytest.raises(InputError, match=next(iter(SHIPPED))):
        shipped_model("9-9D-random")


def test_names_of_leaves_are_paths(tmp_path):
    names = set(load_file(saved("enumerated", tmp_path / "m")))
    assert ".encoder.network.weights[0]" in names
    assert len(names) == len(jax.tree.leaves(model_of("enumerated")))


# Files that are broken


@each_config
def test_a_truncated_file_is_refused(name, tmp_path):
    """Cut at every 64th byte."""
    path = saved(name, tmp_path / "m")
    whole = path.read_bytes()
    for length in range(0, len(whole), 64):
        path.write_bytes(whole[:length])
        refused(path)


def test_a_longer_file_is_refused(tmp_path):
    path = saved("enumerated", tmp_path / "m")
    path.write_bytes(path.read_bytes() + bytes(64))
    refused(path)


@pytest.mark.sampled
@each_config
def test_a_flipped_bit_is_refused_or_harmless(name, tmp_path):
    """No other error, no number that is not finite, and no other architecture.

    There is no checksum: a bit of a weight that stays finite, or of a note, goes unnoticed.
    """
    path = saved(name, tmp_path / "m")
    whole = path.read_bytes()
    header = 8 + struct.unpack("<Q", whole[:8])[0]
    rng = np.random.default_rng(0)
    positions = [*range(8), *rng.integers(8, header, 250), *rng.integers(header, len(whole), 60)]
    for position in positions:
        flipped = bytearray(whole)
        flipped[position] ^= 1 << rng.integers(8)
        path.write_bytes(flipped)
        try:
            model, _, _ = checkpoint.load_model(path, KNOWN)
        except InputError:
            continue
        for one, other in zip(jax.tree.leaves(model), jax.tree.leaves(model_of(name)), strict=True):
            assert one.shape == other.shape
            assert np.all(np.isfinite(one))


@pytest.mark.parametrize(
    "content",
    [b"", b"hello", bytes(8), b"\xff" * 64, struct.pack("<Q", 2) + b"{}", struct.pack("<Q", 10**15) + b"{}",
     b"\x80\x04\x95\x10\x00\x00\x00", b"PK\x03\x04" + bytes(60)],
    ids=["empty", "text", "zeros", "ones", "no leaves", "a header of a petabyte", "pickle", "zip"],
)  # fmt: skip
def test_a_file_of_another_kind_is_refused(content, tmp_path):
    path = tmp_path / "m"
    path.write_bytes(content)
    refused(path)


def test_no_file_and_a_folder_are_refused(tmp_path):
    refused(tmp_path / "nothing.safetensors", "There is no checkpoint")
    refused(tmp_path)


def test_a_foreign_safetensors_file_is_refused(tmp_path):
    path = tmp_path / "foreign.safetensors"
    save_file({"weight": np.zeros((3, 3), np.float32)}, path)
    refused(path, "not a model of this library")
    save_file({"weight": np.zeros((3, 3), np.float32)}, path, metadata={"format": "pt"})
    refused(path, "not a model of this library")


# Files that say something else than they hold


def test_a_class_that_is_not_on_the_list_is_refused(tmp_path):
    path = saved("enumerated", tmp_path / "m")
    for name in ("os.system", "FlowConfi", "", None):
        rewrite(path, **{"class": name})
        refused(path, "EnumeratedConfig, FlowConfig")


@pytest.mark.parametrize("known", ["0", "2", "one", "", None])
def test_another_format_version_is_refused(known, tmp_path):
    path = saved("enumerated", tmp_path / "m")
    rewrite(path, format_version=known)
    refused(path, "format version")


def test_a_config_of_another_class_is_refused(tmp_path):
    path = saved("enumerated", tmp_path / "m")
    rewrite(path, **{"class": "FlowConfig"})
    refused(path, "config")


@pytest.mark.parametrize(
    "text",
    [None, "", "{", "[]", "null", "3", '"EnumeratedConfig"', "{}", "[" * 100_000, '{"shape": ' * 20_000,
     "1" * 10_000, "NaN", "\u0000"],
    ids=["none", "empty", "unfinished", "list", "null", "number", "string", "no fields", "deep list", "deep object",
         "huge number", "NaN", "zero"],
)  # fmt: skip
def test_a_config_that_is_none_is_refused(text, tmp_path):
    path = saved("enumerated", tmp_path / "m")
    rewrite(path, config=text)
    refused(path)


HOSTILE = {
    "missing field": {"embedding": None},
    "unknown field": {"more": 3},
    "another size": {"embedding": 4},
    "huge": {"embedding": 10**9},
    "beyond 64 bits": {"embedding": 10**30},
    "zero": {"embedding": 0},
    "negative": {"encoder_width": -8},
    "width zero": {"encoder_width": 0},
    "text": {"embedding": "3"},
    "long text": {"embedding": "3" * 5000},
    "list": {"embedding": [3]},
    "object": {"embedding": {"a": 3}},
    "fraction": {"embedding": 3.5},
    "float of the right size": {"embedding": 3.0},
    "NaN": {"embedding": float("nan")},
    "infinite": {"embedding": float("inf")},
    "true": {"encoder_depth": True},
    "shape is a number": {"shape": 6},
    "shape is text": {"shape": "23"},
    "shape is empty": {"shape": []},
    "shape of texts": {"shape": ["2", "3"]},
    "shape of lists": {"shape": [[2, 3]]},
    "shape of fractions": {"shape": [2.5, 3]},
    "shape of zeros": {"shape": [0, 3]},
    "shape of nothing": {"shape": [None, 3]},
    "shape of another dimension": {"shape": [2, 3, 1]},
    "shape of another size": {"shape": [2, 4]},
    "shape of many axes": {"shape": [1] * 65},
    "shape beyond memory": {"shape": [10_000] * 8},
    "shape in sixty dimensions": {"shape": [1] * 60},
    "depth beyond patience": {"encoder_depth": 1000},
}


@each_config
@pytest.mark.parametrize("fields", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_config_is_refused(name, fields, tmp_path):
    """Quickly, and before any memory is taken for it. The shape says what a flow's cells are, not its leaves,
    so for a flow another size of the same dimension is another model, not an error."""
    if name == "dequantized flow" and fields == {"shape": [2, 4]}:
        pytest.skip("the leaves of a flow fit any lattice of its dimension")
    path = saved(name, tmp_path / "m")
    reconfigure(path, **fields)
    refused(path)


@pytest.mark.parametrize("quadrature", [0, 10_000, 2.0, True, "4", [4]], ids=str)
def test_hostile_quadratures_are_refused(quadrature, tmp_path):
    """No leaf depends on them, so nothing but the config's own check can find them."""
    path = saved("dequantized flow", tmp_path / "m")
    reconfigure(path, quadrature=quadrature)
    refused(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda leaf: None,
        lambda leaf: leaf[:-1],
        lambda leaf: leaf[None],
        lambda leaf: leaf.astype(np.float64),
        lambda leaf: leaf.astype(np.float16),
        lambda leaf: leaf.astype(np.int32),
        lambda leaf: np.full_like(leaf, np.nan),
        lambda leaf: np.where(np.arange(leaf.size).reshape(leaf.shape) == 0, np.inf, leaf).astype(np.float32),
    ],
    ids=["missing", "shorter", "another axis", "float64", "float16", "integers", "NaN", "one infinity"],
)
def test_leaves_that_do_not_fit_are_refused(change, tmp_path):
    path = saved("enumerated", tmp_path / "m")
    name = ".encoder.network.weights[0]"
    rewrite(path, leaves={name: change(load_file(path)[name])})
    refused(path, r"leaf \.encoder\.network\.weights\[0\]")


def test_a_leaf_too_many_is_refused(tmp_path):
    path = saved("enumerated", tmp_path / "m")
    rewrite(path, leaves={"stowaway": np.zeros(3, np.float32)})
    refused(path, "stowaway")


def test_a_type_that_numpy_does_not_know_is_refused(tmp_path):
    """bfloat16 and float8 exist in the format, but not here."""
    path = saved("enumerated", tmp_path / "m")
    whole = path.read_bytes()
    size = struct.unpack("<Q", whole[:8])[0]
    for name, width in (("BF16", 2), ("F8_E4M3", 4)):
        header = json.loads(whole[8 : 8 + size])
        entry = header[".encoder.network.weights[0]"]
        entry["dtype"], entry["shape"] = name, [*entry["shape"][:-1], entry["shape"][-1] * width]
        text = json.dumps(header).encode()
        path.write_bytes(struct.pack("<Q", len(text)) + text + whole[8 + size :])
        refused(path)


# Writing


@pytest.mark.parametrize("failing", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=repr)
def test_a_failing_write_leaves_the_old_file(failing, error, tmp_path, monkeypatch):
    path = saved("enumerated", tmp_path / "m")
    before = path.read_bytes()

    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr(os, failing, fail)
    with pytest.raises(InputError if isinstance(error, OSError) else KeyboardInterrupt):
        saved("dequantized flow", path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["m"]


@pytest.mark.parametrize("where", ["file/m", "file/deeper/m"])
def test_a_folder_that_cannot_be_is_refused(where, tmp_path):
    (tmp_path / "file").write_text("a file where a folder should be")
    with pytest.raises(InputError, match="cannot be written"):
        saved("enumerated", tmp_path / where)


def test_a_folder_in_the_way_is_refused(tmp_path):
    (tmp_path / "m").mkdir()
    with pytest.raises(InputError, match="cannot be written"):
        saved("enumerated", tmp_path / "m")
    assert [entry.name for entry in tmp_path.iterdir()] == ["m"]


def test_what_killed_writers_left_is_cleared_away(tmp_path):
    path = saved("enumerated", tmp_path / "m")
    for name in (".m.1.tmp", ".m.2.tmp", ".mm.3.tmp"):
        (tmp_path / name).touch()
    os.utime(tmp_path / ".m.1.tmp", (0, 0))
    remove_abandoned(tmp_path, "m")
    assert {entry.name for entry in tmp_path.iterdir()} == {"m", ".m.2.tmp", ".mm.3.tmp"}, "new ones may be in use"
    remove_abandoned(tmp_path, "m", seconds=0.0)
    assert {entry.name for entry in tmp_path.iterdir()} == {path.name, ".mm.3.tmp"}


def test_configs_are_plain_data():
    """What a checkpoint records of a model is JSON and back again."""
    for build in CONFIGS.values():
        config = build(SHAPE)
        again = json.loads(json.dumps(dataclasses.asdict(config)))
        assert type(config)(**{**again, "shape": tuple(again["shape"])}) == config
