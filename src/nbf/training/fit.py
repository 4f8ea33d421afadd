"""Training a belief embedding model (appendix, "Training belief embedding models").

Half of each belief's samples are embedded, the other half are scored under the model that the
embedding conditions; the mean log-likelihood, or a bound of it, is maximised. Samples are generated
on the device inside the compiled loop, never twice. Step i draws all its randomness from
`fold_in(key, i)`, so a run that was stopped and resumed is bit for bit the run that was not.
"""

from __future__ import annotations

import functools
import json
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Key, PyTree

from nbf.contracts import BeliefModel, BeliefSource, State, StateSpace
from nbf.errors import InputError
from nbf.files import checkpoint
from nbf.training.progress import Progress

OPTIMIZERS: dict[str, Callable[[optax.ScalarOrSchedule], optax.GradientTransformation]] = {
    "adagrad": optax.adagrad,
    "adam": optax.adam,
    "nadam": optax.nadam,
}
SCHEDULES = ("constant", "cosine")
CHUNK = 20
"""Steps in one compiled call: enough that generating their data together pays, short enough to stop at."""
SAVE_EVERY = 30.0
"""Seconds between two saves of a run in progress."""
SMALLEST_SET = 4
"""Samples in the smallest of random sets."""
CONCENTRATIONS = (0.2, 10.0)
"""Of the random weights of a set: at the first its effective size is about a sixth of its size, at the second nearly
all of it."""
CHECK_EVERY = 1000
"""Steps between two looks at the held-out beliefs."""
HELD_OUT = 128
"""Beliefs that are held out for them."""
LARGE = 100_000
"""Numbers in an array that is too large to be a constant of a compiled function."""
ADDED_LATER = {"added later": True}
"""Marks a field of a config that runs of earlier versions do not know: see `described`."""


@dataclass(frozen=True)
class FitConfig:
    """How a model is trained; the defaults are the paper's for Gridworld."""

    steps: int = 100_000
    """Gradient steps, rounded up to a multiple of `CHUNK`."""
    batch: int = 32
    """Beliefs in a step."""
    samples: int = 64
    """Samples of each belief: the first half to embed, the second to score."""
    optimizer: str = "adagrad"
    """One of adagrad, adam, nadam."""
    learning_rate: float = 0.1
    random_sets: bool = field(default=False, metadata=ADDED_LATER)
    """Train with random set sizes and random weights, as a filter's few effective particles have them; else the
    whole half is embedded, evenly weighted, as in the paper."""

    schedule: str = field(default="constant", metadata=ADDED_LATER)
    """Of the learning rate: constant, or cosine, which lets it fall to zero by the last step."""
    patience: int = field(default=0, metadata=ADDED_LATER)
    """Stop early when this many looks at held-out beliefs, one every 1000 steps, were no better than the best before
    them; 0 never stops early, as in the paper."""

    def __post_init__(self) -> None:
        if self.patience < 0:
            raise InputError(f"patience must be 0 or more; got {self.patience}.")
        if self.schedule not in SCHEDULES:
            raise InputError(f"There is no schedule {self.schedule!r}; choose from {', '.join(SCHEDULES)}.")
        if self.optimizer not in OPTIMIZERS:
            raise InputError(f"There is no optimizer {self.optimizer!r}; choose from {', '.join(OPTIMIZERS)}.")
        if self.steps < 1 or self.batch < 1 or self.samples < 2 or not self.learning_rate > 0:
            raise InputError(
                "Training needs steps and batch of at least 1, samples of at least 2 and a learning rate above 0; "
                f"got {self.steps}, {self.batch}, {self.samples} and {self.learning_rate}."
            )


def optimizer_of(config: FitConfig) -> optax.GradientTransformation:
    """The optimizer that a config names, with its learning rate."""
    rate = config.learning_rate
    if config.schedule == "cosine":
        rate = optax.cosine_decay_schedule(rate, -(-config.steps // CHUNK) * CHUNK)
    return OPTIMIZERS[config.optimizer](rate)


def described(config: FitConfig) -> dict[str, Any]:
    """The config as plain values. A field that was added later is left out at its default, so that a run of an
    earlier version is described as it was when it was made."""
    return {
        item.name: getattr(config, item.name)
        for item in fields(config)
        if not ("added later" in item.metadata and getattr(config, item.name) == item.default)
    }


@dataclass(frozen=True)
class Fitted:
    """What a training run leaves."""

    model: PyTree
    losses: Float[np.ndarray, " chunks"]
    """Mean loss, in nats per sample, over each `CHUNK` steps."""
    seconds: float
    """Time spent training, over all sessions of the run, compilation included."""
    held_out: Float[np.ndarray, " looks"]
    """Loss on held-out beliefs, every `CHECK_EVERY` steps; empty without `patience`."""


class TrainingStopped(KeyboardInterrupt):
    """The run was asked to stop; what it had done is saved where `fit` was told to."""


def random_log_weights(key: Key[Array, ""], n: int) -> Float[Array, " n"]:
    """The weights of a random set of up to n samples; the rest is padding of weight zero.

    The size k is log-uniform between `SMALLEST_SET` (n, if that is less) and n, and the weights are gamma variables
    of a concentration that is log-uniform between `CONCENTRATIONS`. They do not depend on the samples, so the
    weighted set represents the belief without bias, however small its effective size.
    """
    size_key, concentration_key, weight_key = jax.random.split(key, 3)
    least = min(SMALLEST_SET, n)
    size = jnp.exp(jax.random.uniform(size_key, minval=math.log(least), maxval=math.log(n + 1)))
    low, high = CONCENTRATIONS
    concentration = jnp.exp(jax.random.uniform(concentration_key, minval=math.log(low), maxval=math.log(high)))
    log_weights = jax.random.loggamma(weight_key, concentration, (n,))
    # The whole part of the size; at least `least`, as exp may round log 4 to below 4.
    return jnp.where(jnp.arange(n) < jnp.maximum(jnp.floor(size), least), log_weights, -jnp.inf)


def batch_loss(
    model: BeliefModel, key: Key[Array, ""], states: State, space: StateSpace, *, random_sets: bool = False
) -> Float[Array, ""]:
    """Minus the mean objective of the second half of each belief's samples, given the first, or given a random
    weighted part of it."""
    prepared = model.prepared()
    half = jax.tree.leaves(states)[0].shape[1] // 2
    embedded = jax.tree.map(lambda leaf: leaf[:, :half], states)
    scored = jax.tree.map(lambda leaf: leaf[:, half:], states)
    if random_sets:
        key, set_key = jax.random.split(key)
        keys = jax.random.split(set_key, jax.tree.leaves(states)[0].shape[0])
        log_weights = jax.vmap(lambda key: random_log_weights(key, half))(keys)
        embeddings = jax.vmap(prepared.embed)(embedded, log_weights, space)
    else:
        embeddings = jax.vmap(lambda states, space: prepared.embed(states, jnp.zeros(half), space))(embedded, space)
    return -jnp.mean(prepared.objective(key, embeddings, scored, space))


Loss = Callable[[Any, Key[Array, ""], PyTree, PyTree], Float[Array, ""]]
"""(model, key, what a batch of draws of the source gives) -> what is minimised."""


def training_chunk(source: BeliefSource, static: PyTree, config: FitConfig, loss: Loss | None = None) -> Callable:
    """`CHUNK` steps as one compiled function of (parameters, optimizer state, key, first step)."""
    optimizer = optimizer_of(config)
    large, small = large_arrays(source)

    def data(source: BeliefSource, key: Key[Array, ""]) -> tuple[State, StateSpace]:
        return jax.vmap(lambda key: source.sample(key, config.samples))(jax.random.split(key, config.batch))

    def loss_of(parameters: PyTree, key: Key[Array, ""], states: State, space: StateSpace) -> Float[Array, ""]:
        model = eqx.combine(parameters, static)
        if loss is not None:
            return loss(model, key, states, space)
        return batch_loss(model, key, states, space, random_sets=config.random_sets)

    def step(carry: tuple[PyTree, PyTree], inputs: tuple) -> tuple[tuple[PyTree, PyTree], Float[Array, ""]]:
        parameters, state = carry
        loss, gradient = jax.value_and_grad(loss_of)(parameters, *inputs)
        updates, state = optimizer.update(gradient, state, parameters)
        return (optax.apply_updates(parameters, updates), state), loss

    def chunk(parameters: PyTree, state: PyTree, key: Key[Array, ""], first: Array, large: PyTree):
        source = eqx.combine(large, small)
        keys = jax.vmap(lambda i: jax.random.split(jax.random.fold_in(key, i)))(first + jnp.arange(CHUNK))
        # Data for the whole chunk at once: small arrays one step at a time would cost mostly overhead.
        states, space = jax.vmap(lambda key: data(source, key))(keys[:, 0])
        (parameters, state), losses = jax.lax.scan(step, (parameters, state), (keys[:, 1], states, space))
        return parameters, state, jnp.mean(losses)

    return functools.partial(jax.jit(chunk, donate_argnums=(0, 1)), large=large)


def fit(
    model: BeliefModel,
    source: BeliefSource,
    config: FitConfig,
    *,
    key: Key[Array, ""],
    resume: str | Path | None = None,
    progress: bool = True,
    title: str = "training",
    purpose: str = "",
    held_out: BeliefSource | None = None,
    loss: Loss | None = None,
) -> Fitted:
    """Train a model on a source of beliefs.

    `resume` names a file for the run in progress: it is written every half minute and when the run
    is interrupted (Ctrl-C or a termination signal), and a run that finds it goes on from there. A file
    of another `purpose`, which says what is trained on what, is refused. The beliefs of an early stop come from
    `held_out`: where the source is a pool, its own would be beliefs that were trained on. `loss` is for a model that
    is not trained by embedding one half of a belief's samples and scoring the other; such a run is not stopped early.
    """
    if loss is not None and (config.patience or config.random_sets):
        raise InputError("patience and random_sets belong to the loss of belief models; leave them out with a `loss`.")
    parameters, static = eqx.partition(model, eqx.is_inexact_array)
    parameters = jax.tree.map(jnp.copy, parameters)  # the compiled loop consumes its inputs; the model given stays
    identity = _identity(config, key, purpose)
    run = _Run(parameters, optimizer_of(config).init(parameters))
    path = Path(resume) if resume is not None else None
    chunks = -(-config.steps // CHUNK)
    if path is not None:
        checkpoint.remove_unfinished(path)
    if path is not None and path.exists():
        run.load(path, config, identity)
    elif path is not None:
        run.save(path, config, identity)  # an unwritable folder is an error now, not in half an hour
    chunk = training_chunk(source, static, config, *(() if loss is None else (loss,)))
    look = held_out_loss(source if held_out is None else held_out, static, config, key)
    with Progress(title, config.steps, run.done * CHUNK, enabled=progress) as bar, _stop_requested() as stopped:
        saved = last = time.monotonic()
        while run.done < chunks and not stopped.is_set() and not run.stalled(config.patience):
            run.parameters, run.state, mean = chunk(run.parameters, run.state, key, jnp.asarray(run.done * CHUNK))
            run.losses.append(_finite(mean, (run.done + 1) * CHUNK, config))
            now = time.monotonic()
            run.seconds, last = run.seconds + now - last, now
            if config.patience and run.done * CHUNK % CHECK_EVERY == 0:
                run.held_out.append(_finite(look(run.parameters), run.done * CHUNK, config))
            bar.update(min(run.done * CHUNK, config.steps), float(np.mean(run.losses[-50:])))
            if path is not None and now - saved > SAVE_EVERY:
                run.save(path, config, identity)
                saved = time.monotonic()
        if run.done < chunks and run.stalled(config.patience):
            bar.say(f"stopped early at step {run.done * CHUNK}, no better since step {run.best * CHECK_EVERY}")
        if path is not None:
            run.save(path, config, identity)
    if run.done < chunks and not run.stalled(config.patience):
        raise TrainingStopped(f"stopped at step {run.done * CHUNK} of {config.steps}")
    run.check_finite(config)
    losses, looks = np.asarray(run.losses, np.float32), np.asarray(run.held_out, np.float32)
    return Fitted(eqx.combine(run.parameters, static), losses, run.seconds, looks)


def held_out_loss(source: BeliefSource, static: PyTree, config: FitConfig, key: Key[Array, ""]) -> Callable:
    """The loss of parameters on beliefs that are drawn once, at the first call, and never trained on."""
    data_key, loss_key = jax.random.split(jax.random.fold_in(key, 2**32 - 1))  # a step that no run comes to

    @functools.cache
    def drawn() -> tuple[State, StateSpace]:
        keys = jax.random.split(data_key, HELD_OUT)
        return eqx.filter_jit(jax.vmap(lambda key, source: source.sample(key, config.samples), (0, None)))(keys, source)

    @jax.jit
    def loss(parameters: PyTree, states: State, space: StateSpace) -> Float[Array, ""]:
        return batch_loss(eqx.combine(parameters, static), loss_key, states, space, random_sets=config.random_sets)

    return lambda parameters: loss(parameters, *drawn())


def large_arrays(source: BeliefSource) -> tuple[PyTree, PyTree]:
    """The large arrays of a source, which are arguments of the compiled functions, and the rest of it, constants that
    the compiler may fold: it would take minutes over a pool."""
    return eqx.partition(source, lambda leaf: eqx.is_array(leaf) and leaf.size > LARGE)


def _finite(loss: Float[Array, ""], step: int, config: FitConfig) -> float:
    """The loss as a number; an error where it is none."""
    if not np.isfinite(loss):
        raise FloatingPointError(_diverged(step, float(loss), config))
    return float(loss)


def _diverged(step: int, loss: float | str, config: FitConfig) -> str:
    return (
        f"The loss became {loss} by step {step}. The last saved state is intact; "
        f"a smaller learning rate than {config.learning_rate} may help."
    )


class _Run:
    """The mutable state of one training run, and its file."""

    def __init__(self, parameters: PyTree, state: PyTree):
        self.parameters, self.state = parameters, state
        self.losses: list[float] = []
        self.held_out: list[float] = []
        self.seconds = 0.0

    def stalled(self, patience: int) -> bool:
        """Whether the last looks at the held-out beliefs, as many as `patience`, bettered none before them."""
        if patience == 0 or len(self.held_out) <= patience:
            return False
        return min(self.held_out[-patience:]) >= min(self.held_out[:-patience])

    @property
    def best(self) -> int:
        """Which look at the held-out beliefs was the best, counted from 1."""
        return int(np.argmin(self.held_out)) + 1

    @property
    def done(self) -> int:
        """Chunks finished."""
        return len(self.losses)

    def save(self, path: Path, config: FitConfig, identity: dict[str, str]) -> None:
        metadata = {**identity, "chunks": str(self.done), "seconds": repr(self.seconds)}
        leaves = checkpoint.named_leaves((self.parameters, self.state))
        self.check_finite(config)
        more = {"losses": np.asarray(self.losses)} | self._looks()
        checkpoint.write_file(path, {**leaves, **more}, metadata)

    def check_finite(self, config: FitConfig) -> None:
        """Raise if the last step left a parameter that is no number; its own loss does not show it yet."""
        if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((self.parameters, self.state))):
            raise FloatingPointError(_diverged(self.done * CHUNK, "finite, but not its parameters,", config))

    def _looks(self) -> dict[str, np.ndarray]:
        """Only where there are any: a run without `patience` keeps the file that it always had."""
        return {"held_out": np.asarray(self.held_out)} if self.held_out else {}

    def load(self, path: Path, config: FitConfig, identity: dict[str, str]) -> None:
        metadata, _ = checkpoint.read_file(path)
        for name, value in identity.items():
            if metadata.get(name) != value:
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
        looks = chunks * CHUNK // CHECK_EVERY if config.patience else 0
        more: dict[str, tuple[int, ...]] = {"losses": (chunks,)} | ({"held_out": (looks,)} if looks else {})
        _, leaves = checkpoint.read_file(path, (self.parameters, self.state), more)
        numbers = {name: leaves.pop(name) for name in more}
        self.losses, self.held_out = numbers["losses"].tolist(), numbers["held_out"].tolist() if looks else []
        if not all(values.dtype == np.float64 and np.isfinite(values).all() for values in numbers.values()):
            raise InputError(f"{path} is a damaged run: it holds a loss that is not finite. Remove it to start anew.")
        self.parameters, self.state = checkpoint.fill((self.parameters, self.state), leaves, path)


def _identity(config: FitConfig, key: Key[Array, ""], purpose: str) -> dict[str, str]:
    """What must agree for two runs to be the same run. Without a purpose it is that of earlier versions."""
    key_data = jax.random.key_data(key).tolist()
    known = {"kind": "nbf training run", "config": json.dumps(described(config)), "key": json.dumps(key_data)}
    return {**known, "purpose": purpose} if purpose else known


@contextmanager
def _stop_requested() -> Iterator[threading.Event]:
    """An event that Ctrl-C and a termination signal set, in the main thread; handlers are put back after."""
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
