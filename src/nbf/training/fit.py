"""The training loop of a belief embedding model (appendix, "Training belief embedding models").

The mean log-likelihood of `loss.batch_loss`, or a bound of it, is maximised. Samples are generated on the device inside
the compiled loop, never twice. Step i draws all its randomness from `fold_in(key, i)`, so a run that was stopped and
resumed is bit for bit the run that was not.
"""

from __future__ import annotations

import functools
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Key, PyTree

from nbf.contracts import BeliefModel, BeliefSource, State, StateSpace
from nbf.devices import Devices, batch_sharding, check_divisible, gather, replicate, replicated_sharding
from nbf.errors import InputError
from nbf.files.atomic import remove_abandoned
from nbf.training import intervals
from nbf.training.config import FitConfig, last_step, optimizer_of
from nbf.training.log import TrainingLog
from nbf.training.loss import Loss, batch_loss
from nbf.training.pace import steps_within
from nbf.training.progress import Progress
from nbf.training.run import TrainingRun, run_identity

HELD_OUT_BELIEFS = 128
"""Beliefs held out for early stopping."""
LARGEST_CONSTANT = 100_000
"""Elements of the largest array that may be a constant of a compiled function."""


@dataclass(frozen=True)
class Fitted:
    """The result of a training run."""

    model: PyTree
    """The trained model."""
    losses: Float[np.ndarray, " chunks"]
    """Mean loss, in nats per sample, over each `intervals.CHUNK` steps."""
    seconds: float
    """Time spent training, over all sessions of the run, compilation included."""
    held_out: Float[np.ndarray, " evaluations"]
    """Loss on held-out beliefs, every `intervals.CHECK_EVERY` steps; empty without `patience`."""


class TrainingStopped(KeyboardInterrupt):
    """The run was interrupted; its progress is in the file given as `resume`, if there is one."""


def training_chunk(
    source: BeliefSource, static: PyTree, config: FitConfig, loss: Loss | None = None, devices: Devices | None = None
) -> Callable:
    """Compile `intervals.CHUNK` steps of training.

    Args:
        source: Beliefs to train on.
        static: The part of the model that is not trained, as `equinox.partition` leaves it.
        config: Settings of the run.
        loss: Loss of a batch; None is `batch_loss`.
        devices: Devices that share the beliefs of a step, each with all parameters; None is the default device.

    Returns:
        A function (parameters, optimizer state, key, first step, last step of the run) -> (parameters, optimizer state,
        mean loss) that donates its first two arguments.
    """
    if devices is not None:
        check_divisible(config.batch, devices, "The batch of training")
    large, small = large_arrays(source)
    chunk = chunk_of(small, static, config, loss, devices)
    if devices is not None:
        return _on_each(chunk, devices, large)
    return functools.partial(jax.jit(chunk, donate_argnums=(0, 1)), large=large)


def chunk_of(
    small: BeliefSource, static: PyTree, config: FitConfig, loss: Loss | None = None, devices: Devices | None = None
) -> Callable:
    """Make the function that `training_chunk` compiles.

    Args:
        small: The source of beliefs without the arrays that are an argument of the function.
        static: The part of the model that is not trained, as `equinox.partition` leaves it.
        config: Settings of the run.
        loss: Loss of a batch; None is `batch_loss`.
        devices: Devices that share the beliefs of a step; None is the default device.

    Returns:
        A function (parameters, optimizer state, key, first step, last step of the run, arrays of the source) ->
        (parameters, optimizer state, mean loss).
    """

    def data(source: BeliefSource, key: Key[Array, ""]) -> tuple[State, StateSpace]:
        return jax.vmap(lambda key: source.sample(key, config.samples))(jax.random.split(key, config.batch))

    def loss_of(parameters: PyTree, key: Key[Array, ""], states: State, space: StateSpace) -> Float[Array, ""]:
        model = eqx.combine(parameters, static)
        if loss is not None:
            return loss(model, key, states, space)
        return batch_loss(model, key, states, space, random_sets=config.random_sets)

    def chunk(parameters: PyTree, state: PyTree, key: Key[Array, ""], first: Array, last: Array, large: PyTree):
        source, optimizer = eqx.combine(large, small), optimizer_of(config, last)

        def step(carry: tuple[PyTree, PyTree], inputs: tuple) -> tuple[tuple[PyTree, PyTree], Float[Array, ""]]:
            parameters, state = carry
            loss, gradient = jax.value_and_grad(loss_of)(parameters, *inputs)
            updates, state = optimizer.update(gradient, state, parameters)
            return (optax.apply_updates(parameters, updates), state), loss

        keys = jax.vmap(lambda i: jax.random.split(jax.random.fold_in(key, i)))(first + jnp.arange(intervals.CHUNK))
        # Data for the whole chunk at once: small arrays one step at a time would cost mostly overhead.
        states, space = jax.vmap(lambda key: data(source, key))(keys[:, 0])
        if devices is not None:  # the compiler divides what comes before and after, and sums gradients over devices
            states, space = jax.lax.with_sharding_constraint((states, space), batch_sharding(devices, axis=1))
        (parameters, state), losses = jax.lax.scan(step, (parameters, state), (keys[:, 1], states, space))
        return parameters, state, jnp.mean(losses)

    return chunk


def _on_each(chunk: Callable, devices: Devices, large: PyTree) -> Callable:
    """A compiled chunk whose arguments and results each of the devices has."""
    compiled = jax.jit(chunk, donate_argnums=(0, 1), out_shardings=replicated_sharding(devices))
    large = replicate(large, devices)
    # What begins, or comes from a file, is on the default device; what a chunk gave is left where it is.
    return lambda *arguments: compiled(*replicate(arguments, devices), large=large)


def train(
    model: BeliefModel | PyTree, source: BeliefSource, config: FitConfig, *, key: Key[Array, ""],
    resume: str | Path | None = None, progress: bool = True, title: str = "training", purpose: str = "",
    held_out: BeliefSource | None = None, loss: Loss | None = None, seconds: float | None = None,
    devices: Devices | None = None, log: TrainingLog | None = None,
) -> Fitted:  # fmt: skip
    """Train a model on a source of beliefs.

    Args:
        model: Model with its initial parameters; with a `loss` of your own, whatever that one takes.
        source: Beliefs to train on.
        config: Settings of the run.
        key: Random key of the run.
        resume: File of the run in progress, written every half minute and on interruption (Ctrl-C or a termination
            signal). If it exists, the run continues from it, at a constant learning rate also to more `steps` than
            it was to have.
        progress: Whether to show a progress bar.
        title: Title of the progress bar.
        purpose: What is trained on what; a `resume` file with another purpose is refused.
        held_out: Source of the beliefs for early stopping, other than a pool that is trained on; None is `source`.
        loss: Loss of a batch; None is `batch_loss`. A run with another loss cannot use `patience` or `random_sets`.
        seconds: Time for compilation and training, which bounds the steps; a resumed run keeps its number of them.
        devices: Devices that share the beliefs of each step; others may resume the run. None is the default device.
        log: Told the losses as they are measured, such as `nbf.TensorBoard(folder)`; None for nobody.

    Returns:
        The trained model, with its losses and the time taken.
    """
    _check_loss(loss, config)
    if log is not None and not callable(log):
        raise InputError(f"log is a function, such as nbf.TensorBoard('logs/first'); got {log!r}.")
    parameters, static = eqx.partition(model, eqx.is_inexact_array)
    parameters = jax.tree.map(jnp.copy, parameters)  # the compiled loop consumes its inputs; the model given stays
    path, state = None if resume is None else Path(resume), optimizer_of(config).init(parameters)
    chunk = training_chunk(source, static, config, loss, devices)
    if seconds is not None:
        start = parameters, state
        config = replace(config, steps=steps_within(seconds, path, chunk, start, config, key, progress=progress))
    run = TrainingRun(parameters, state, config, run_identity(config, key, purpose))
    begin_or_resume(run, path)
    check = held_out_loss(source if held_out is None else held_out, static, config, key, devices)
    with Progress(title, config.steps, run.steps, enabled=progress) as bar:
        optimize(run, chunk, check, key, path, bar, log)
    return finished(run, static, devices)


def _check_loss(loss: Loss | None, config: FitConfig) -> None:
    if loss is not None and (config.patience or config.random_sets):
        raise InputError("patience and random_sets belong to the loss of belief models; leave them out with a `loss`.")


def finished(run: TrainingRun, static: PyTree, devices: Devices | None) -> Fitted:
    """Make the result of a run that has ended.

    Args:
        run: The run.
        static: The part of the model that is not trained.
        devices: Devices that its parameters are on; None is the default device.

    Returns:
        The result; raises `TrainingStopped` if the run was interrupted.
    """
    if run.steps < run.config.steps and not run.stalled:
        raise TrainingStopped(f"stopped at step {run.steps} of {run.config.steps}")
    run.check_finite()
    losses, checks = np.asarray(run.losses, np.float32), np.asarray(run.held_out, np.float32)
    parameters = run.parameters if devices is None else gather(run.parameters)
    return Fitted(eqx.combine(parameters, static), losses, run.seconds, checks)


def begin_or_resume(run: TrainingRun, path: Path | None) -> None:
    """Continue from the file if it exists, else begin it: an unwritable folder is an error now, not in half an hour.

    Args:
        run: The run.
        path: Its file; None for none.
    """
    if path is None:
        return
    remove_abandoned(path.parent, path.name, seconds=0.0)
    if path.exists():
        run.load(path)
    else:
        run.save(path)


def optimize(
    run: TrainingRun,
    chunk: Callable,
    check: Callable[[PyTree], Float[Array, ""]] | None,
    key: Key[Array, ""],
    path: Path | None,
    bar: Progress,
    log: TrainingLog | None = None,
) -> None:
    """Train until the run is finished, stalls, or is asked to stop, and save it.

    Args:
        run: The run.
        chunk: As `training_chunk` makes it.
        check: The loss of parameters on held-out beliefs; None for a run without `patience`.
        key: Random key of the run.
        path: Its file; None for none.
        bar: Where progress is shown.
        log: Told the losses as they are measured; None for nobody.
    """
    config, end = run.config, jnp.asarray(last_step(run.config))
    with _stop_requested() as stopped:
        saved = last = time.monotonic()
        while run.steps < config.steps and not stopped.is_set() and not run.stalled:
            first = jnp.asarray(run.steps)
            run.parameters, run.state, mean = chunk(run.parameters, run.state, key, first, end)
            run.add(mean)
            now = time.monotonic()
            run.seconds, last = run.seconds + now - last, now
            values = {"loss": run.losses[-1], "seconds": run.seconds}
            if check is not None and config.patience and run.steps % intervals.CHECK_EVERY == 0:
                run.add_held_out(check(run.parameters))
                values["held_out"] = run.held_out[-1]
            if log is not None:
                log(min(run.steps, config.steps), values)
            bar.update(min(run.steps, config.steps), float(np.mean(run.losses[-50:])))
            if path is not None and now - saved > intervals.SAVE_EVERY:
                run.save(path)
                saved = time.monotonic()
        if run.steps < config.steps and run.stalled:
            bar.say(f"stopped early at step {run.steps}, no better since step {run.best * intervals.CHECK_EVERY}")
        if path is not None:
            run.save(path)


def held_out_loss(
    source: BeliefSource, static: PyTree, config: FitConfig, key: Key[Array, ""], devices: Devices | None = None
) -> Callable[[PyTree], Float[Array, ""]]:
    """Make a function that evaluates parameters on held-out beliefs.

    Args:
        source: Where the beliefs are drawn from, once, at the first call.
        static: The part of the model that is not trained.
        config: Settings of the run.
        key: Random key of the run.
        devices: Devices that the parameters will be on; None is the default device.

    Returns:
        A function from parameters to their loss.
    """
    data_key, loss_key = jax.random.split(jax.random.fold_in(key, 2**32 - 1))  # a step that no run comes to

    @functools.cache
    def drawn() -> tuple[State, StateSpace]:
        keys = jax.random.split(data_key, HELD_OUT_BELIEFS)
        drawn = eqx.filter_jit(jax.vmap(lambda key, source: source.sample(key, config.samples), (0, None)))(
            keys, source
        )
        return replicate(drawn, devices)

    @jax.jit
    def loss(parameters: PyTree, states: State, space: StateSpace) -> Float[Array, ""]:
        return batch_loss(eqx.combine(parameters, static), loss_key, states, space, random_sets=config.random_sets)

    return lambda parameters: loss(parameters, *drawn())


def large_arrays(source: BeliefSource) -> tuple[PyTree, PyTree]:
    """Split off the large arrays of a source, to be arguments of a compiled function.

    The rest are constants that the compiler may fold; folding a pool of beliefs would take minutes.

    Args:
        source: Source of beliefs.

    Returns:
        The large arrays, and the rest of the source.
    """
    return eqx.partition(source, lambda leaf: eqx.is_array(leaf) and leaf.size > LARGEST_CONSTANT)


@contextmanager
def _stop_requested() -> Iterator[threading.Event]:
    """An event that Ctrl-C and a termination signal set, in the main thread; handlers are restored at the end."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return
    previous = {sig: signal.signal(sig, lambda *_: event.set()) for sig in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield event
    finally:
        for sig, handler in previous.items():
            signal.signal(sig, handler)
