"""Trainings of one model, one after another, on sources of one structure: they share one compiled program."""

from __future__ import annotations

import functools
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from nbf.contracts import BeliefModel, BeliefSource
from nbf.errors import InputError
from nbf.training.config import FitConfig, optimizer_of
from nbf.training.fit import Fitted, begin_or_resume, chunk_of, finished, optimize
from nbf.training.progress import Progress
from nbf.training.run import TrainingRun, run_identity


class Rounds:
    """The training loop of `nbf.train`, for sources that differ in their numbers alone. Every round begins with a new
    optimizer, and has the whole schedule of the learning rate."""

    def __init__(self, model: BeliefModel, source: BeliefSource, config: FitConfig):
        """Prepare rounds; the program is compiled in the first.

        Args:
            model: A model like all that will be trained.
            source: A source like all that will be trained on.
            config: Settings of every round.
        """
        if config.patience:
            raise InputError("A round has no held-out beliefs to stop early by; leave patience at 0.")
        self.config = config
        self.static = eqx.partition(model, eqx.is_inexact_array)[1]
        # All arrays are arguments: the source of the next round has others.
        small = eqx.partition(source, eqx.is_array)[1]
        self.program = jax.jit(chunk_of(small, self.static, config), donate_argnums=(0, 1))

    def train(
        self,
        model: BeliefModel,
        source: BeliefSource,
        *,
        key: Key[Array, ""],
        resume: Path | None = None,
        purpose: str = "",
    ) -> Fitted:
        """Train for one round.

        Args:
            model: With the parameters to go on from.
            source: Beliefs to train on.
            key: Random key of the round.
            resume: File of the round in progress, as that of `nbf.train`; None for none.
            purpose: What is trained on what; a file with another purpose is refused.

        Returns:
            The trained model, with its losses and the time taken.
        """
        parameters = jax.tree.map(jnp.copy, eqx.filter(model, eqx.is_inexact_array))  # the program consumes its inputs
        state = optimizer_of(self.config).init(parameters)
        run = TrainingRun(parameters, state, self.config, run_identity(self.config, key, purpose))
        begin_or_resume(run, resume)
        chunk = functools.partial(self.program, large=eqx.filter(source, eqx.is_array))
        with Progress("round", self.config.steps, run.steps, enabled=False) as bar:
            optimize(run, chunk, None, key, resume, bar)
        return finished(run, self.static, None)
