"""The pool of policies that self-play makes: one file, split into policies to train on and to test on."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Int

from nbf.errors import InputError
from nbf.files.atomic import remove_abandoned
from nbf.files.checkpoint import fill, named_leaves, read_file, read_note, write_file
from nbf.training.progress import Progress
from nbf_paper.experiments.ppo import PoolConfig, SelfPlayRun, advance, start
from nbf_paper.records import alone

Config = TypeVar("Config", bound=PoolConfig)
SAVE_EVERY = 20.0
"""Seconds between two saves of a pool in progress."""


class PolicySplit(eqx.Module):
    """The parts of a pool."""

    training: Any
    """To train on."""
    random: Any
    """To test on, from the runs of the training policies."""
    run: Any
    """To test on, from a run of their own."""


SPLITS = ("random", "run")
"""The parts to test on; the first is the paper's."""


class PolicyPool(eqx.Module, Generic[Config]):
    """The policies of all runs, in their order, with a leading axis on every leaf."""

    policies: Any
    config: Config = eqx.field(static=True)
    seconds: float = eqx.field(static=True)

    @property
    def size(self) -> int:
        """How many policies there are."""
        return jax.tree.leaves(self.policies)[0].shape[0]

    def run_of(self) -> Int[np.ndarray, " size"]:
        """Which run each policy comes from."""
        return np.arange(self.size) // self.config.checkpoints

    def split(self) -> PolicySplit:
        """Policies to train on, and two sets to test on.

        The whole last run is held out. Of the other runs a random quarter is held out, as in the paper; for each of
        these policies a similar one, of a neighbouring checkpoint, is in the training set.
        """
        if self.config.runs < 2 or self.size < 4:
            raise InputError(f"A split needs 4 policies, of 2 runs; got {self.size} of {self.config.runs}.")
        last = self.run_of() == self.config.runs - 1
        seen = np.random.default_rng(self.config.seed).permutation(np.flatnonzero(~last))
        quarter = max(1, len(seen) // 4)
        return PolicySplit(
            self.some(np.sort(seen[quarter:])), self.some(np.sort(seen[:quarter])), self.some(np.flatnonzero(last))
        )

    def some(self, numbers: Int[np.ndarray, " n"]) -> Any:
        """Only these policies."""
        return jax.tree.map(lambda leaf: leaf[numbers], self.policies)


def pool_path(runs: Path, config: PoolConfig) -> Path:
    """The file of the policies of a config, in a folder of trainings."""
    return runs / config.file


@dataclass
class _UnfinishedPool:
    """A pool in the making."""

    config: PoolConfig
    policies: list[Any] = field(default_factory=list)
    run: SelfPlayRun | None = None
    seconds: float = 0.0

    def save(self, path: Path) -> None:
        """Write the policies so far and the state of the run."""
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *self.policies)
        notes = {"done": str(len(self.policies)), "seconds": repr(self.seconds)}
        write_file(path, named_leaves((stacked, self.run)), {**_identity(self.config), **notes})


def _identity(config: PoolConfig) -> dict[str, str]:
    return {"kind": config.kind, "config": json.dumps(config.settings)}


def _abstract(config: PoolConfig, count: int) -> tuple[Any, SelfPlayRun]:
    """The shapes of a file's leaves."""
    last = eqx.filter_eval_shape(start, config, 0)
    stacked = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((count, *leaf.shape), leaf.dtype), last.opponent)
    return stacked, last


def read_pool(path: Path, wanted: Config | type[Config]) -> tuple[PolicyPool[Config], SelfPlayRun]:
    """A pool from its file, finished or not, and its last run; raises if it was made with another config than the
    wanted one, or, given a class, with one of another class."""
    metadata, _ = read_file(path)
    kind = wanted if isinstance(wanted, type) else type(wanted)
    if metadata.get("kind") != kind.kind:
        raise InputError(f"{path} holds no {kind.kind.removeprefix('nbf ')}: make one with `nbf-paper selfplay`.")
    try:
        found = kind(**read_note(metadata["config"]))
        done, seconds = int(metadata["done"]), float(read_note(metadata["seconds"]))
    except (KeyError, ValueError, TypeError, OverflowError) as error:
        raise InputError(f"{path} is a damaged pool ({error}). Remove it to make it anew.") from error
    if not 1 <= done <= found.runs * found.checkpoints:
        raise InputError(f"{path} is a damaged pool: {done} policies of {found}. Remove it to make it anew.")
    if found != (found if isinstance(wanted, type) else wanted):
        raise InputError(f"{path} was made with other settings ({found}, now {wanted}). Ask for its own, or remove it.")
    skeleton = _abstract(found, done)
    _, leaves = read_file(path, eqx.filter(skeleton, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct)))
    policies, last = fill(skeleton, leaves, path)
    return PolicyPool(policies, found, seconds), last


def make_pool(config: Config, path: Path, *, progress: bool = True) -> PolicyPool[Config]:
    """Make the pool of a file, or resume one that was stopped with Ctrl-C; one that another process makes is waited
    for."""
    with alone(path.parent):
        return _made(config, path, progress)


def _made(config: Config, path: Path, progress: bool) -> PolicyPool[Config]:
    total, made = config.runs * config.checkpoints, _UnfinishedPool(config)
    remove_abandoned(path.parent, path.name, seconds=0.0)
    if path.exists():
        pool, made.run = read_pool(path, config)
        made.policies = [jax.tree.map(lambda leaf: np.asarray(leaf[i]), pool.policies) for i in range(pool.size)]  # noqa: B023
        made.seconds = pool.seconds
        if pool.size == total:
            return pool
    with Progress(config.title, total, len(made.policies), enabled=progress, unit="policy") as bar:
        saved = last = time.monotonic()
        try:
            while len(made.policies) < total:
                loop, number = divmod(len(made.policies), config.checkpoints)
                before = start(config, loop) if number == 0 or made.run is None else made.run
                after = made.run = jax.block_until_ready(advance(config, config.stream("play", loop, number), before))
                made.policies.append(jax.device_get(after.opponent))
                now = time.monotonic()
                made.seconds, last = made.seconds + now - last, now
                bar.update(len(made.policies))
                if now - saved > SAVE_EVERY and len(made.policies) < total:
                    made.save(path)
                    saved = time.monotonic()
        finally:
            if made.policies:
                made.save(path)
    return read_pool(path, config)[0]
