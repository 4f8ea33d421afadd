"""Training: where its beliefs come from, what its loss is, and that no interruption changes its result.

`test_resume` kills whole processes; here a run is interrupted at chosen steps within one.
"""

from __future__ import annotations

import functools
import itertools
import signal
import threading
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import assert_frequencies
from constructors import CONFIGS, MODELS, all_walks, small_grid
from safetensors.numpy import load_file, save_file
from tolerances import FLOAT, monte_carlo

from nbf.contracts import BeliefModel, BeliefSource
from nbf.environments.functional import One
from nbf.environments.gridworld import RandomGridworlds
from nbf.environments.rollout import rollout
from nbf.errors import InputError
from nbf.files.checkpoint import read_file
from nbf.sources.exact import ExactPosteriors
from nbf.spaces import Lattice
from nbf.training import fit as training
from nbf.training import intervals
from nbf.training.config import FitConfig
from nbf.training.fit import TrainingStopped
from nbf.training.loss import batch_loss
from nbf.training.progress import Progress

FAMILY = RandomGridworlds(3, 2, 1, 1, temperature=0.5)
SOURCE = ExactPosteriors(FAMILY, horizon=4)
SHORT = FitConfig(steps=40, batch=4, samples=8, optimizer="adam", learning_rate=1e-2)
KEY = jax.random.key(12)


COMPILED = {}
make_chunk = training.training_chunk


def compiled_once(source, static, config, *_):
    """The same runs are trained over and over here; compiling is what takes the time."""
    what = (id(source), jax.tree.structure(static), config, intervals.CHUNK)
    return COMPILED.setdefault(what, make_chunk(source, static, config))


@pytest.fixture(autouse=True)
def short_chunks(monkeypatch):
    """Chunks of five steps, each of them saved."""
    monkeypatch.setattr(intervals, "CHUNK", 5)
    monkeypatch.setattr(intervals, "SAVE_EVERY", 0.0)
    monkeypatch.setattr(training, "training_chunk", compiled_once)


def untrained():
    return MODELS["enumerated"](jax.random.key(2), (3, 3))


def train(config=SHORT, *, model=None, source: BeliefSource = SOURCE, key=KEY, resume=None):
    return training.train(model or untrained(), source, config, key=key, resume=resume, progress=False)


# Where beliefs come from


@functools.cache
def first_step():
    """Of `small_grid`: p(y) of each first observation, and the posterior after it."""
    walks = [all_walks(*small_grid(), [symbol]) for symbol in range(5)]
    return np.array([evidence for _, evidence in walks]), np.stack([posterior for posterior, _ in walks])


def test_a_belief_is_the_start_or_a_posterior_as_often_as_it_should_be():
    """Horizon 1: p0 half of the time, else the posterior of an observation drawn from its own probability."""
    evidence, posteriors = first_step()
    environment, policy = small_grid()
    source = ExactPosteriors(One(environment, policy), horizon=1)
    probs = jax.jit(jax.vmap(lambda key: source.posterior(key).probs))(jax.random.split(KEY, 6000))
    start = np.exp(np.asarray(environment.initial_log_probs(), np.float64))
    kinds = np.concatenate([start[None], posteriors])
    distance = np.abs(np.asarray(probs, np.float64)[:, None] - kinds).max(axis=-1)
    np.testing.assert_array_less(distance.min(axis=1), np.full(6000, 1e-4))
    counts = np.bincount(distance.argmin(axis=1), minlength=6)
    assert_frequencies(counts, np.append(0.5, 0.5 * evidence), detects=0.05)


def test_at_depth_zero_every_belief_is_the_start():
    environment, policy = small_grid()
    source = ExactPosteriors(One(environment, policy), horizon=0)
    start = np.asarray(environment.free) / 8
    np.testing.assert_allclose(jax.jit(lambda key: source.posterior(key).probs)(KEY), start, **FLOAT)
    states, space = jax.jit(lambda key: source.sample(key, 20_000))(KEY)
    np.testing.assert_array_equal(space.legal, environment.free)
    cells = np.ravel_multi_index(tuple(np.asarray(states).T), (3, 3))
    assert_frequencies(np.bincount(cells, minlength=9), start, detects=0.03)


def test_samples_have_the_frequencies_of_the_posterior():
    """One sample of each of many beliefs is a draw from the mean belief; two of one belief go together."""
    evidence, posteriors = first_step()
    environment, policy = small_grid()
    source = ExactPosteriors(One(environment, policy), horizon=1)
    states = jax.jit(jax.vmap(lambda key: source.sample(key, 2)[0]))(jax.random.split(KEY, 20_000))
    cells = np.asarray(np.ravel_multi_index(tuple(np.moveaxis(np.asarray(states), -1, 0)), (3, 3)))
    kinds = np.concatenate([np.asarray(environment.free)[None] / 8, posteriors])
    shares = np.append(0.5, 0.5 * evidence)
    pairs = np.einsum("k,ka,kb->ab", shares, kinds, kinds).ravel()
    assert_frequencies(np.bincount(cells[:, 0] * 9 + cells[:, 1], minlength=81), pairs, detects=0.06)


def test_an_episode_has_the_probability_of_its_observations():
    """All 25 sequences of two observations, against the evidence of each by enumeration."""
    environment, policy = small_grid()
    episodes = jax.jit(jax.vmap(lambda key: rollout(key, environment, policy, 2)))
    states, observations = episodes(jax.random.split(KEY, 20_000))
    assert states.shape == (20_000, 3, 2)
    sequences = list(itertools.product(range(5), repeat=2))
    evidence = [all_walks(environment, policy, list(sequence))[1] for sequence in sequences]
    counts = np.bincount(np.asarray(observations) @ [5, 1], minlength=25)
    assert_frequencies(counts, evidence, detects=0.05)


# The loss


@pytest.mark.sampled
@pytest.mark.parametrize("name", MODELS)
def test_half_of_the_samples_are_embedded_and_the_other_half_scored(name, key):
    """Belief by belief and without the table: minus the mean objective of the second half, given the first.
    Of an odd number, the larger part is scored."""
    model, samples = MODELS[name](key, (3, 3)), 7
    legal = jnp.asarray([[True] * 9, [True] * 8 + [False]])
    cells = np.random.default_rng(0).integers(0, 8, (2, samples))
    states = jnp.asarray(Lattice((3, 3)).points()[cells])
    if name == "tabular":  # gives no probability to what it was not shown
        states = states.at[:, samples // 2 :].set(states[:, :1])
    spaces = jax.vmap(lambda legal: Lattice((3, 3), legal))(legal)
    loss = eqx.filter_jit(batch_loss)(model, key, states, spaces)

    @eqx.filter_jit
    def by_hand(model, states):
        uniform = jax.random.uniform(key, (2, 2, samples - samples // 2))
        values = []
        for belief in range(2):
            half, rest = states[belief, : samples // 2], states[belief, samples // 2 :]
            theta = model.embed(half, jnp.zeros(samples // 2))
            if name == "dequantized flow":
                values.append(model.decoder.log_ratio(theta[:, None], rest.T, uniform[:, belief]))
            else:
                values.append(model.log_prob(theta, rest, Lattice((3, 3), legal[belief])))
        return values

    values = by_hand(model, states)
    np.testing.assert_allclose(loss, -np.mean(np.asarray(values, np.float64)), **FLOAT)


@pytest.mark.parametrize(
    "name", [name if name == "enumerated" else pytest.param(name, marks=pytest.mark.slow) for name in CONFIGS]
)
def test_the_loss_falls_towards_the_entropy(name):
    """But never below it: that is what the beliefs themselves leave open."""
    config = FitConfig(steps=300, batch=16, samples=32, optimizer="adam", learning_rate=1e-2)
    fitted = train(config, model=MODELS[name](jax.random.key(2), (3, 3)))
    first, last = fitted.losses[:4].mean(), fitted.losses[-12:].mean()
    assert last < first - 0.15
    probs = np.asarray(jax.jit(jax.vmap(lambda key: SOURCE.posterior(key).probs))(jax.random.split(KEY, 2000)))
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -np.nansum(np.where(probs > 0, probs * np.log(probs), 0.0), axis=1)
    assert last > entropy.mean() - monte_carlo(entropy.std(), 2000) - 0.02
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(fitted.model))


# Interruptions


@functools.cache
def whole_run():
    return train()


@pytest.fixture
def uninterrupted(short_chunks):
    return whole_run()


def assert_same(fitted, reference):
    """Bit for bit."""
    np.testing.assert_array_equal(fitted.losses, reference.losses)
    for one, other in zip(jax.tree.leaves(fitted.model), jax.tree.leaves(reference.model), strict=True):
        np.testing.assert_array_equal(one, other)


def stop_at(monkeypatch, step, sent):
    """The signal arrives while the progress bar shows that step."""
    monkeypatch.setattr(
        Progress, "update", lambda self, done, loss: signal.raise_signal(sent) if done == step else None
    )


STOPPED: list[bytes] = []


@pytest.fixture
def stopped(short_chunks, tmp_path, monkeypatch):
    """The file of a run that was stopped after its first chunk."""
    path = tmp_path / "run.safetensors"
    if STOPPED:
        path.write_bytes(STOPPED[0])
        return path
    with monkeypatch.context() as patch:
        stop_at(patch, 5, signal.SIGINT)
        with pytest.raises(TrainingStopped):
            train(resume=path)
    STOPPED.append(path.read_bytes())
    return path


def test_the_run_does_something(uninterrupted):
    assert uninterrupted.losses.shape == (8,)
    assert len(np.unique(uninterrupted.losses)) == 8
    moved = [np.abs(np.asarray(a) - np.asarray(b)).max() for a, b in
             zip(jax.tree.leaves(uninterrupted.model), jax.tree.leaves(untrained()), strict=True)]  # fmt: skip
    assert min(moved) > 1e-3


def test_the_model_that_was_given_is_left_alone(uninterrupted):
    """It can be used, and trained again, although the compiled loop reuses the memory of its own parameters."""
    model = untrained()
    before = [np.array(leaf) for leaf in jax.tree.leaves(model)]
    assert_same(train(model=model), uninterrupted)
    for one, other in zip(jax.tree.leaves(model), before, strict=True):
        np.testing.assert_array_equal(one, other)
    assert_same(train(model=model), uninterrupted)


def earlier_loss(model, key, states, space, *, random_sets=False):
    """The loss before there were random sets."""
    prepared = model.prepared()
    half = states.shape[1] // 2
    embedded, scored = states[:, :half], states[:, half:]
    embeddings = jax.vmap(lambda states, space: prepared.embed(states, jnp.zeros(half), space))(embedded, space)
    return -jnp.mean(prepared.objective(key, embeddings, scored, space))


@pytest.mark.slow
def test_without_random_sets_training_is_what_it_was(uninterrupted, monkeypatch):
    """Bit for bit; and with them it is another, which learns as well."""
    with monkeypatch.context() as patch:
        patch.setattr(training, "training_chunk", make_chunk)
        patch.setattr(training, "batch_loss", earlier_loss)
        assert_same(train(), uninterrupted)
    fitted = train(replace(SHORT, random_sets=True, steps=200))
    assert np.abs(fitted.losses[:8] - uninterrupted.losses).max() > 1e-3
    assert fitted.losses[-10:].mean() < fitted.losses[:5].mean() - 0.1


EARLIER = '{"steps": 40, "batch": 4, "samples": 8, "optimizer": "adam", "learning_rate": 0.01}'
"""`SHORT` as runs before `random_sets` recorded it."""


def test_a_run_of_an_earlier_version_is_resumed(stopped, uninterrupted):
    assert read_file(stopped)[0]["config"] == EARLIER
    assert_same(train(resume=stopped), uninterrupted)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_stopped_again_and_again_ends_the_same(sent, uninterrupted, tmp_path, monkeypatch):
    path = tmp_path / "run.safetensors"
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    for step in (5, 20, 35):
        with monkeypatch.context() as patch:
            stop_at(patch, step, sent)
            with pytest.raises(TrainingStopped, match=f"step {step} of 40"):
                train(resume=path)
        assert read_file(path)[0]["chunks"] == str(step // 5)
        assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers
    assert_same(train(resume=path), uninterrupted)
    # And a finished run is read, not trained.
    monkeypatch.setattr(training, "training_chunk", lambda *_: pytest.fail)
    assert_same(train(resume=path), uninterrupted)


def test_a_file_makes_no_difference_nor_does_a_thread(uninterrupted, tmp_path):
    results = []
    thread = threading.Thread(target=lambda: results.append(train(resume=tmp_path / "run.safetensors")))
    thread.start()
    thread.join()
    assert_same(results[0], uninterrupted)


def test_every_step_has_its_own_randomness(uninterrupted, monkeypatch):
    """Chunks of ten instead of five: the same steps, up to rounding. And another key is another run."""
    monkeypatch.setattr(intervals, "CHUNK", 10)
    fitted = train()
    np.testing.assert_allclose(fitted.losses, uninterrupted.losses.reshape(4, 2).mean(axis=1), **FLOAT)
    other = train(key=jax.random.key(13))
    assert np.abs(other.losses - fitted.losses).max() > 1e-3


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"config": replace(SHORT, steps=60, schedule="cosine")}, "config"),
        ({"config": replace(SHORT, steps=60, patience=1)}, "config"),
        ({"config": replace(SHORT, batch=5)}, "config"),
        ({"config": replace(SHORT, samples=10)}, "config"),
        ({"config": replace(SHORT, optimizer="nadam")}, "config"),
        ({"config": replace(SHORT, learning_rate=0.02)}, "config"),
        ({"config": replace(SHORT, random_sets=True)}, "config"),
        ({"key": jax.random.key(99)}, "key"),
        ({"model": MODELS["enumerated"](jax.random.key(2), (3, 4))}, "leaf"),
        ({"model": MODELS["dequantized flow"](jax.random.key(2), (3, 3))}, "leaf"),
    ],
    ids=lambda value: value if isinstance(value, str) else next(iter(value)),
)
def test_a_run_with_other_settings_is_not_resumed(change, what, stopped):
    before = stopped.read_bytes()
    with pytest.raises(InputError, match=what):
        train(**{"config": SHORT, "resume": stopped, **change})
    assert stopped.read_bytes() == before


def test_a_run_of_a_constant_rate_can_be_lengthened(uninterrupted, tmp_path):
    """It ends as the run that was to be longer from the beginning, bit for bit; and it cannot go back."""
    path = tmp_path / "run.safetensors"
    train(replace(SHORT, steps=25), resume=path)
    assert_same(train(resume=path), uninterrupted)
    before = path.read_bytes()
    with pytest.raises(InputError, match="has come to step 40 already, beyond the 25"):
        train(replace(SHORT, steps=25), resume=path)
    assert path.read_bytes() == before


def damaged(path, **metadata):
    """The same leaves with other metadata."""
    known, _ = read_file(path)
    kept = {name: value for name, value in {**known, **metadata}.items() if value is not None}
    save_file(load_file(path), path, metadata=kept)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-20]),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"not a checkpoint at all"),
        lambda path: save_file({"x": np.zeros(3)}, path),
        lambda path: damaged(path, chunks="7"),
        lambda path: damaged(path, chunks="-1"),
        lambda path: damaged(path, chunks="many"),
        lambda path: damaged(path, chunks=None),
        lambda path: damaged(path, seconds="nan?"),
        lambda path: damaged(path, seconds=None),
        lambda path: damaged(path, kind="another"),
        lambda path: save_file({**load_file(path), "losses": np.array([np.nan])}, path, metadata=read_file(path)[0]),
    ],
    ids=["truncated", "empty", "text", "foreign", "more chunks", "negative chunks", "no number", "no chunks",
         "seconds", "no seconds", "kind", "loss NaN"],
)  # fmt: skip
def test_a_damaged_run_is_refused(damage, stopped):
    damage(stopped)
    with pytest.raises(InputError):
        train(resume=stopped)


# Runs that fail


class Broken(BeliefSource):
    """Must never be asked."""

    def sample(self, key, n):
        raise AssertionError("training started")


@pytest.mark.parametrize("inside", ["run.safetensors", "deeper/run.safetensors"])
def test_a_path_that_cannot_be_written_is_refused_at_once(inside, tmp_path):
    (tmp_path / "file").write_text("a file where a folder should be")
    with pytest.raises(InputError, match="cannot be written"):
        train(source=Broken(), resume=tmp_path / "file" / inside)


def test_a_loss_that_is_not_finite_ends_the_run_and_keeps_the_last_good_file(tmp_path):
    """A step of 1e30 leaves finite parameters with which the next loss is not."""
    path = tmp_path / "run.safetensors"
    config = replace(SHORT, learning_rate=1e30)
    with pytest.raises(FloatingPointError, match=r"learning rate than 1e\+30"):
        train(config, resume=path)
    assert read_file(path)[0]["chunks"] == "0"
    assert all(np.all(np.isfinite(leaf)) for leaf in load_file(path).values())
    with pytest.raises(FloatingPointError, match="loss became"):
        train(config)


class Poisoned(BeliefModel):
    """A loss that is finite with a gradient that is not."""

    space: Lattice
    weight: jax.Array

    def embed(self, states, log_weights, space=None):
        return jnp.zeros(1)

    def sample(self, key, embedding, n, space):
        raise NotImplementedError

    def log_prob(self, embedding, states, space):
        raise NotImplementedError

    def objective(self, key, embeddings, states, space):
        return jnp.broadcast_to(jnp.sqrt(0.0 * self.weight), states.shape[:2])

    def prepared(self):
        return self


def test_parameters_that_are_not_finite_are_never_saved(tmp_path, monkeypatch):
    monkeypatch.setattr(intervals, "CHUNK", 1)
    path = tmp_path / "run.safetensors"
    with pytest.raises(FloatingPointError):
        train(replace(SHORT, steps=1), model=Poisoned(Lattice((3, 3)), jnp.ones(())), resume=path)
    assert all(np.all(np.isfinite(leaf)) for leaf in load_file(path).values())


def test_parameters_that_are_not_finite_are_never_returned(monkeypatch):
    monkeypatch.setattr(intervals, "CHUNK", 1)
    with pytest.raises(FloatingPointError):
        train(replace(SHORT, steps=1), model=Poisoned(Lattice((3, 3)), jnp.ones(())))


@pytest.mark.parametrize(
    "arguments",
    [{"steps": 0}, {"batch": 0}, {"samples": 1}, {"learning_rate": 0.0}, {"learning_rate": float("nan")},
     {"optimizer": "sgd?"}, {"steps": -5}],
    ids=str,
)  # fmt: skip
def test_settings_that_cannot_train_are_refused(arguments):
    with pytest.raises(InputError):
        FitConfig(**arguments)
