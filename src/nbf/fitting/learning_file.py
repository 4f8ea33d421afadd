"""The file of a run of `nbf.learn`: what a round leaves to the next."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from nbf.errors import InputError
from nbf.files import checkpoint
from nbf.fitting.history import Round, checked
from nbf.fitting.learning import LearningState
from nbf.sources.met import MetBeliefs

KIND = "nbf learning run"
MOST_ROUNDS = 1_000_000
"""Rounds that a file may tell of: a hostile one must not exhaust memory."""


def save(path: Path, state: LearningState, identity: str) -> None:
    """Write a run to a file, whole or not at all.

    Args:
        path: File to replace.
        state: After a round.
        identity: What a file must agree with to be read again.
    """
    filled = int(state.beliefs.filled)
    note = {
        "rung": state.rung, "first": state.first, "measured": state.measured, "seconds": state.seconds,
        "met": int(state.beliefs.met), "rounds": [asdict(each) for each in state.rounds],
    }  # fmt: skip
    arrays = _Arrays(state, filled)
    leaves = {**checkpoint.named_leaves(arrays.tree), "trust": state.trust, "losses": np.asarray(state.losses)}
    checkpoint.write_file(path, leaves, {"kind": KIND, "run": identity, "state": json.dumps(note)})


def load(path: Path, fresh: LearningState, identity: str, chunks: int) -> LearningState:
    """Read a run.

    Args:
        path: File that `save` wrote.
        fresh: The state before the first round.
        identity: That of the run that is to go on.
        chunks: Losses of each round.

    Returns:
        The state; raises `InputError` if the file is damaged or of another run.
    """
    metadata, _ = checkpoint.read_file(path)
    if metadata.get("kind") != KIND:
        raise InputError(f"{path} is no run of nbf.learn. Name another file as resume.")
    if metadata.get("run") != identity:
        raise InputError(
            f"{path} is a run with other settings ({metadata.get('run')}, now {identity}). Go on with its own, "
            "or remove the file to begin anew; `rounds` and the family may be others."
        )
    try:
        note = checkpoint.read_note(metadata["state"])
        rounds = [Round(**checked(Round, each)) for each in note["rounds"]]
        rung, first, met, seconds, tried = (note[name] for name in ("rung", "first", "met", "seconds", "measured"))
        sound = (
            type(first) is int and first in (0, 1) and type(rung) is int and 0 <= rung < len(fresh.measured)
            and type(met) is int and 0 <= met <= 2**31 - 1
            and type(seconds) in (int, float) and seconds >= 0 and len(rounds) <= MOST_ROUNDS
            and len(tried) == len(fresh.measured) and all(type(each) is bool for each in tried)
        )  # fmt: skip
        if not sound:
            raise ValueError("its state makes no sense")
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} is a damaged run of nbf.learn ({error}). Remove it to begin anew.") from error
    arrays = _Arrays(fresh, min(met, fresh.beliefs.places))
    _, header = checkpoint.read_file(path, arrays.tree, {"trust": fresh.trust.shape, "losses": (chunks * len(rounds),)})
    trust, losses = header.pop("trust"), header.pop("losses")
    if trust.dtype != np.float32 or losses.dtype != np.float64 or not np.isfinite(trust).all():
        raise InputError(f"{path} is a damaged run of nbf.learn. Remove it to begin anew.")
    filled = checkpoint.fill(arrays.tree, header, path)
    model, beliefs = arrays.restored(filled, fresh, met)
    return LearningState(model, beliefs, trust, list(tried), rung, first, rounds, losses.tolist(), float(seconds))


class _Arrays:
    """The arrays of a state that are written: of the ring, the part that is filled."""

    def __init__(self, state: LearningState, filled: int):
        self.filled = filled
        self.parameters, self.static = eqx.partition(state.model, eqx.is_inexact_array)
        beliefs = state.beliefs
        self.rooms = beliefs.states, beliefs.truths, beliefs.known, eqx.filter(beliefs.spaces, eqx.is_array)
        self.tree: Any = {
            "model": self.parameters,
            "beliefs": jax.tree.map(lambda leaf: leaf[:filled], self.rooms),
        }

    def restored(self, tree: Any, fresh: LearningState, met: int) -> tuple[Any, MetBeliefs]:
        """The model and the ring from what was read."""
        padded = jax.tree.map(
            lambda room, part: jnp.concatenate([part, jnp.zeros_like(room)[self.filled :]]), self.rooms, tree["beliefs"]
        )
        states, truths, known, arrays = padded
        spaces = eqx.combine(arrays, eqx.partition(fresh.beliefs.spaces, eqx.is_array)[1])
        beliefs = replace(fresh.beliefs, states=states, truths=truths, known=known, spaces=spaces, met=jnp.int32(met))
        return eqx.combine(tree["model"], self.static), beliefs
