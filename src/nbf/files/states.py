"""A filter's state in a file: saved after any step, the filter continues elsewhere bit for bit.

One `.safetensors` file, leaves by tree path, never any code. The file does not say what its leaves mean: the loader
is given a state of the same filter, and the file must match it leaf by leaf before memory is allocated.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from nbf.contracts import FilterState
from nbf.errors import InputError
from nbf.files.checkpoint import FORMAT_VERSION, fill, named_leaves, read_file, write_file

KIND = "nbf filter state"
"""Marks the file, in its metadata."""


def save_state(path: str | Path, state: FilterState) -> None:
    """Save a filter's state, or a batch of states. A file at the path is replaced whole or not at all.

    Args:
        path: File to write, usually `.safetensors`.
        state: State of a filter.
    """
    _skeleton(state, "state")
    metadata = {
        "kind": KIND,
        "format_version": str(FORMAT_VERSION),
        "library_version": version("neural-bayesian-filtering"),
    }
    write_file(Path(path), named_leaves(state), metadata)


def load_state(path: str | Path, like: FilterState) -> FilterState:
    """Load a filter's state. Nothing in the file is ever executed.

    Numbers need not be finite: a particle without weight has a log weight of -inf.

    Args:
        path: File that `save_state` wrote.
        like: Any state of the same filter on the same kind of environment, for example `filter.init(key, environment)`.

    Returns:
        The state.
    """
    path, skeleton = Path(path), _skeleton(like, "like")
    metadata, leaves = read_file(path, skeleton, wanted_by="the state given as `like`")
    if (metadata.get("kind"), metadata.get("format_version")) != (KIND, str(FORMAT_VERSION)):
        raise InputError(
            f"{path} is not a filter state of this library: it holds {metadata.get('kind')!r} of format version "
            f"{metadata.get('format_version')!r}, expected {KIND!r} of {str(FORMAT_VERSION)!r}. "
            "A model is read with nbf.load_model."
        )
    return fill(skeleton, leaves, path, finite=False)


def _skeleton(state: FilterState, name: str) -> PyTree:
    """Shapes and types of a state."""
    try:
        skeleton = jax.eval_shape(lambda state: state, state)
    except TypeError as error:
        raise InputError(f"`{name}` must be a filter's state, a tree of arrays; {error}") from error
    for where, leaf in jax.tree_util.tree_leaves_with_path(skeleton):
        if jnp.issubdtype(leaf.dtype, jax.dtypes.extended):
            raise InputError(
                f"`{name}` holds a random key at {jax.tree_util.keystr(where)}: keys belong to steps, not to states. "
                "Keep the seed and the number of the step instead."
            )
    return skeleton
