"""Checkpoints: one `.safetensors` file, leaves by tree path, never any code.

The metadata hold the format version, the name of the config class, the config as JSON and the library's version. A
loader names the classes it accepts. The model is rebuilt from its config as an abstract skeleton, and the file must
match that skeleton leaf by leaf before memory is allocated.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_args, get_type_hints

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from nbf.errors import InputError
from nbf.files.atomic import write_atomically
from nbf.files.regular import check_regular

FORMAT_VERSION = 1
"""Version of the file format."""
LARGEST_SIZE = 10_000
"""Largest size, width or count in a config: a hostile file must not exhaust memory."""
LARGEST_DEPTH = 100
"""Largest depth in a config: each layer is traced separately, and a hostile file must not take minutes."""


def named_leaves(tree: PyTree) -> dict[str, np.ndarray]:
    """Collect the array leaves of a tree.

    Args:
        tree: Any tree.

    Returns:
        Arrays by their tree path.
    """
    leaves = jax.tree_util.tree_leaves_with_path(eqx.filter(tree, eqx.is_array_like))
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def write_file(path: Path, leaves: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> None:
    """Write a file whole or not at all.

    Args:
        path: File to replace.
        leaves: Arrays by name.
        metadata: Strings by name.
    """
    # `save_file` writes in place; of its bytes the one atomic writer makes a file.
    write_atomically(path, save(dict(leaves), metadata=dict(metadata)))


def read_file(
    path: Path,
    skeleton: PyTree | None = None,
    more: Mapping[str, tuple[int, ...]] | None = None,
    *,
    wanted_by: str = "its own config",
) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """Read a file, and check its arrays against a skeleton.

    Args:
        path: File to read.
        skeleton: Tree whose leaves have the expected shapes; None reads the metadata alone.
        more: Expected shapes of further arrays by name.
        wanted_by: What the arrays must fit, for error messages.

    Returns:
        Metadata, and arrays by name (none without a skeleton).
    """
    try:
        check_regular(path)
        with safe_open(str(path), framework="numpy") as file:
            metadata = file.metadata() or {}
            if skeleton is None:
                return metadata, {}
            wanted = jax.tree_util.tree_leaves_with_path(skeleton)
            shapes = {jax.tree_util.keystr(where): leaf.shape for where, leaf in wanted} | dict(more or {})
            names = set(file.keys())
            if names != set(shapes):
                odd = sorted(names.symmetric_difference(shapes))[0]
                raise InputError(f"{path} does not fit {wanted_by}: leaf {odd} is missing or unexpected.")
            for name, shape in shapes.items():
                if tuple(file.get_slice(name).get_shape()) != tuple(shape):
                    raise InputError(f"{path} does not fit {wanted_by}: leaf {name} should have shape {shape}.")
            return metadata, {name: file.get_tensor(name) for name in shapes}
    except FileNotFoundError as error:
        raise InputError(f"There is no checkpoint at {path}.") from error
    except (OSError, SafetensorError, TypeError, KeyError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path} is not a readable checkpoint ({error}): it is truncated or of another kind."
        ) from error


def read_note(text: str) -> Any:
    """Read a note of a file's metadata, which is JSON without NaN and infinity.

    Args:
        text: The note.

    Returns:
        Its value; raises `ValueError` for text that is none.
    """

    def finite(text: str) -> float:
        number = float(text)
        if not math.isfinite(number):
            raise ValueError(f"{text} is no finite number")
        return number

    try:
        return json.loads(text, parse_constant=finite, parse_float=finite)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def fill(skeleton: PyTree, leaves: Mapping[str, np.ndarray], path: Path, *, finite: bool = True) -> PyTree:
    """Put the arrays of a file into a skeleton, and check their types.

    Args:
        skeleton: Tree whose leaves have the expected types.
        leaves: Arrays by tree path.
        path: The file, for error messages.
        finite: Whether to refuse NaN and infinity.

    Returns:
        The tree with arrays as leaves.
    """

    def leaf(where: Any, wanted: Any) -> Any:
        value = leaves[jax.tree_util.keystr(where)]
        if value.dtype != wanted.dtype:
            raise InputError(f"{path}: leaf {jax.tree_util.keystr(where)} has type {value.dtype}, not {wanted.dtype}.")
        if finite and np.issubdtype(value.dtype, np.floating) and not np.isfinite(value).all():
            raise InputError(f"{path}: leaf {jax.tree_util.keystr(where)} holds NaN or infinity.")
        # `jnp.asarray` would compile a program for each shape. A copy, since JAX keeps the memory that it is given.
        return jax.device_put(value.copy())

    return jax.tree_util.tree_map_with_path(leaf, skeleton)


def save_model(path: str | Path, model: PyTree, config: Any, **notes: str) -> None:
    """Save a model with the config that builds it.

    Args:
        path: File to replace.
        model: Model to save.
        config: Config whose `build` makes such a model.
        **notes: Further strings to keep as metadata.
    """
    metadata = {
        "format_version": str(FORMAT_VERSION),
        "class": type(config).__name__,
        "config": json.dumps(_plain(config)),
        "library_version": version("neural-bayesian-filtering"),
        **notes,
    }
    write_file(Path(path), named_leaves(model), metadata)


def load_model(path: str | Path, classes: Mapping[str, type]) -> tuple[PyTree, Any, dict[str, str]]:
    """Load a model, its config and its metadata. Nothing in the file is ever executed.

    Args:
        path: File that `save_model` wrote.
        classes: Config classes to accept, by name.

    Returns:
        The model, its config and all metadata.
    """
    path = Path(path)
    metadata, _ = read_file(path)
    config = _config(path, metadata, classes)
    skeleton = eqx.filter_eval_shape(config.build, jax.random.key(0))
    _, leaves = read_file(path, skeleton)
    return fill(skeleton, leaves, path), config, metadata


def _config(path: Path, metadata: Mapping[str, str], classes: Mapping[str, type]) -> Any:
    if metadata.get("format_version") != str(FORMAT_VERSION):
        raise InputError(
            f"{path} is not a model of this library: format version {metadata.get('format_version')!r}, "
            f"expected {FORMAT_VERSION!r}."
        )
    if metadata.get("class") not in classes:
        raise InputError(f"{path} holds a {metadata.get('class')!r}; this loader knows {', '.join(sorted(classes))}.")
    kind = classes[metadata["class"]]
    try:
        values = read_note(metadata["config"])
        return _built(kind, values)
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise InputError(f"The config in {path} cannot be read: {error}.") from error


def _plain(config: Any) -> dict[str, Any]:
    """A config as plain values; a config within it also names its class."""
    values = {field.name: getattr(config, field.name) for field in fields(config)}
    return {
        name: {"kind": type(value).__name__, **_plain(value)} if is_dataclass(value) else value
        for name, value in values.items()
    }


def _built(kind: Any, values: Any) -> Any:
    """The config of a class from plain values, checked against the class's annotations."""
    known = get_type_hints(kind)
    later = {each.name for each in fields(kind) if "added later" in each.metadata}  # unknown to files of before
    if not isinstance(values, dict) or not set(known) - later <= set(values) <= set(known):
        raise ValueError(f"expected the fields {', '.join(sorted(known))}")
    built = {name: _typed(known[name], value) for name, value in values.items()}
    for name, value in built.items():
        if name.endswith("depth") and value > LARGEST_DEPTH:
            raise ValueError(f"a {name} of {value} is beyond {LARGEST_DEPTH}")
    return kind(**built)


def _typed(annotation: Any, value: Any) -> Any:
    """A value of a config, checked against its field's annotation; sizes are bounded."""
    choices: tuple[Any, ...] = get_args(annotation) or (annotation,)
    kinds: dict[str, Any] = {getattr(kind, "__name__", ""): kind for kind in choices if is_dataclass(kind)}
    if kinds and type(value) is dict and value.get("kind") in kinds:
        return _built(kinds[value["kind"]], {name: item for name, item in value.items() if name != "kind"})
    if annotation is bool and type(value) is bool:
        return value
    if annotation is int and type(value) is int and 0 <= value <= LARGEST_SIZE:
        return value
    if annotation is float and isinstance(value, int | float) and type(value) is not bool and math.isfinite(value):
        return float(value)
    if annotation is str and type(value) is str and len(value) < 1000:
        return value
    if annotation in (tuple[int, ...], tuple[float, ...]) and type(value) is list and len(value) <= 16:
        return tuple(_typed(get_args(annotation)[0], item) for item in value)
    wanted = " or ".join(kinds) or getattr(annotation, "__name__", str(annotation))
    raise ValueError(f"{str(value)[:40]!r} is no {wanted}, or beyond {LARGEST_SIZE}")
