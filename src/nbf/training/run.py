"""A training run in progress and its file."""

from __future__ import annotations

import json
import math
from pathlib import Path

import jax
import numpy as np
from jaxtyping import Array, Float, Key, PyTree

from nbf.errors import InputError
from nbf.files import checkpoint
from nbf.training import intervals
from nbf.training.config import FitConfig, described, last_step


class TrainingRun:
    """The mutable state of one training run."""

    def __init__(self, parameters: PyTree, state: PyTree, config: FitConfig, identity: dict[str, str]):
        """Start a run.

        Args:
            parameters: Initial parameters.
            state: Initial optimizer state.
            config: Settings of the run.
            identity: What a file must agree with to be loaded: see `run_identity`.
        """
        self.parameters, self.state, self.config, self.identity = parameters, state, config, identity
        self.losses: list[float] = []
        self.held_out: list[float] = []
        self.seconds = 0.0

    @property
    def stalled(self) -> bool:
        """Whether the last `patience` evaluations on held-out beliefs brought no improvement."""
        patience = self.config.patience
        if patience == 0 or len(self.held_out) <= patience:
            return False
        return min(self.held_out[-patience:]) >= min(self.held_out[:-patience])

    @property
    def best(self) -> int:
        """The number, from 1, of the best evaluation on held-out beliefs."""
        return int(np.argmin(self.held_out)) + 1

    @property
    def done(self) -> int:
        """Chunks finished."""
        return len(self.losses)

    @property
    def steps(self) -> int:
        """Gradient steps finished."""
        return self.done * intervals.CHUNK

    def add(self, loss: Float[Array, ""]) -> None:
        """Record the mean loss of one more chunk; raise if it is not finite.

        Args:
            loss: In nats per sample.
        """
        self.losses.append(self._finite(loss, self.steps + intervals.CHUNK))

    def add_held_out(self, loss: Float[Array, ""]) -> None:
        """Record one more loss on held-out beliefs; raise if it is not finite.

        Args:
            loss: In nats per sample.
        """
        self.held_out.append(self._finite(loss, self.steps))

    def check_finite(self) -> None:
        """Raise if a parameter is not finite: the loss of the step that broke it does not show it yet."""
        if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((self.parameters, self.state))):
            raise FloatingPointError(_diverged(self.steps, "finite, but not its parameters,", self.config))

    def save(self, path: Path) -> None:
        """Write the run to a file.

        Args:
            path: File to replace.
        """
        metadata = {**self.identity, "chunks": str(self.done), "seconds": repr(self.seconds)}
        leaves = checkpoint.named_leaves((self.parameters, self.state))
        self.check_finite()
        more = {"losses": np.asarray(self.losses)}
        if self.held_out:  # a run without `patience` keeps the file format of earlier versions
            more["held_out"] = np.asarray(self.held_out)
        checkpoint.write_file(path, {**leaves, **more}, metadata)

    def load(self, path: Path) -> None:
        """Continue from a file; raise `InputError` if it is damaged or belongs to another run.

        At a constant learning rate, without `patience`, a run of another length is the same run as far as it has come.

        Args:
            path: File that `save` wrote.
        """
        metadata, _ = checkpoint.read_file(path)
        for name, value in self.identity.items():
            if metadata.get(name) != value and not (name == "config" and self._differs_in_length(metadata.get(name))):
                raise InputError(
                    f"{path} is a run with another {name} ({metadata.get(name)}, now {value}). "
                    "Resume it with its own settings, or remove the file to start anew."
                )
        try:
            chunks, self.seconds = int(metadata["chunks"]), float(metadata["seconds"])
            if not 0.0 <= self.seconds < math.inf:
                raise ValueError(f"it took {self.seconds} seconds")
        except (KeyError, ValueError) as error:
            raise InputError(f"{path} is a damaged run ({error}). Remove it to start anew.") from error
        if (come := chunks * intervals.CHUNK) > last_step(self.config):
            raise InputError(
                f"{path} has come to step {come} already, beyond the {self.config.steps} of the config. "
                "Ask for at least as many steps, or remove the file to start anew."
            )
        checks = chunks * intervals.CHUNK // intervals.CHECK_EVERY if self.config.patience else 0
        more: dict[str, tuple[int, ...]] = {"losses": (chunks,)} | ({"held_out": (checks,)} if checks else {})
        _, leaves = checkpoint.read_file(path, (self.parameters, self.state), more)
        numbers = {name: leaves.pop(name) for name in more}
        self.losses, self.held_out = numbers["losses"].tolist(), numbers["held_out"].tolist() if checks else []
        if not all(values.dtype == np.float64 and np.isfinite(values).all() for values in numbers.values()):
            raise InputError(f"{path} is a damaged run: it holds a loss that is not finite. Remove it to start anew.")
        self.parameters, self.state = checkpoint.fill((self.parameters, self.state), leaves, path)

    def _differs_in_length(self, found: str | None) -> bool:
        """Whether a file's config differs in its number of steps alone, which a constant rate does not see."""
        if self.config.schedule != "constant" or self.config.patience or found is None:
            return False
        try:
            known = checkpoint.read_note(found)
            return {**known, "steps": self.config.steps} == described(self.config)
        except (TypeError, ValueError, RecursionError):
            return False

    def _finite(self, loss: Float[Array, ""], step: int) -> float:
        if not np.isfinite(loss):
            raise FloatingPointError(_diverged(step, float(loss), self.config))
        return float(loss)


def run_identity(config: FitConfig, key: Key[Array, ""], purpose: str) -> dict[str, str]:
    """Collect what must agree for two runs to be the same run.

    Args:
        config: Settings of the run.
        key: Random key of the run.
        purpose: What is trained on what; left out if empty, as in files of earlier versions.

    Returns:
        Metadata of the run's file.
    """
    key_data = jax.random.key_data(key).tolist()
    known = {"kind": "nbf training run", "config": json.dumps(described(config)), "key": json.dumps(key_data)}
    return {**known, "purpose": purpose} if purpose else known


def recorded_steps(path: Path) -> int:
    """Read how many steps a run is to have; raise `InputError` if the file is damaged.

    Args:
        path: File of the run.

    Returns:
        The number of steps of its config.
    """
    metadata, _ = checkpoint.read_file(path)
    try:
        steps = checkpoint.read_note(metadata["config"])["steps"]
        if type(steps) is not int or steps < 1:
            raise ValueError(f"{str(steps)[:40]} steps")
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is a damaged run ({error}). Remove it to start anew.") from error
    return steps


def _diverged(step: int, loss: float | str, config: FitConfig) -> str:
    return (
        f"The loss became {loss} by step {step}. The last saved state is intact; "
        f"a smaller learning rate than {config.learning_rate} may help."
    )
