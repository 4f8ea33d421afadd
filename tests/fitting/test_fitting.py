"""`nbf.fit`: what it chooses, where its beliefs come from, when it stops, what it keeps, and that it learns."""

from __future__ import annotations

import functools
import itertools
import json
import re
import signal
from contextlib import contextmanager
from dataclasses import fields

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import assert_frequencies
from constructors import small_grid
from fits import no_calibration
from safetensors.numpy import load_file, save_file
from tolerances import FLOAT, monte_carlo
from worlds import posterior, three_rooms

import nbf
from nbf import prng
from nbf.capabilities import Scheduled
from nbf.cli.main import main
from nbf.contracts import StateSpace
from nbf.errors import InputError
from nbf.evaluation.calibration import Calibration, calibrate
from nbf.files.checkpoint import read_file
from nbf.filters.point_mass import PointMassFilter
from nbf.fitting import fit as fitting
from nbf.fitting import teacher
from nbf.fitting.fit import CALIBRATION_BELIEFS, decoder_for, encoder_for
from nbf.fitting.fitted import LONGEST_METADATA
from nbf.fitting.teacher import TEACHER_BELIEFS, belief_source, exact_work, pooled
from nbf.models.attention import AttentionConfig
from nbf.models.autoregressive import AutoregressiveConfig
from nbf.models.belief_model import BoxConfig, LatticeConfig, ModelConfig
from nbf.models.dequantization import DequantizedFlowConfig
from nbf.models.enumerated import EnumeratedDecoderConfig
from nbf.models.flow import CouplingFlowConfig
from nbf.models.mixture import MixtureConfig
from nbf.models.set_encoder import MeanConfig, OneHotConfig
from nbf.sources.exact import ExactPosteriors
from nbf.sources.filtered import FilterPosteriors
from nbf.sources.pool import BeliefPool
from nbf.spaces import Box, Lattice, Tokens
from nbf.training import fit as training
from nbf.training import intervals
from nbf.training.config import FitConfig
from nbf.training.fit import TrainingStopped
from nbf.training.progress import Progress
from nbf.training.run import TrainingRun

RESTLESS = FitConfig(steps=2000, batch=16, samples=32, optimizer="adam", learning_rate=3e-2, patience=2)
"""Steps so large that, once it has learned, some look at the held-out beliefs is soon worse than one before."""
SMALL = {"embedding": 8, "encoder": MeanConfig(width=16, depth=1), "training": RESTLESS, "trial": 0}
SOFTMAX = EnumeratedDecoderConfig(width=16, depth=1)
HORIZON = 4

COMPILED, MAKE = {}, {name: getattr(training, name) for name in ("training_chunk", "held_out_loss")}


def compiled_once(name, source, static, config, *more):
    """The same run is trained over and over here; compiling is what takes the time."""
    what = name, jax.tree.structure(static), config, str(more)
    return COMPILED.setdefault(what, MAKE[name](source, static, config, *more))


@contextmanager
def looking_often():
    """A look at every chunk, each saved."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intervals, "CHECK_EVERY", intervals.CHUNK)
        patch.setattr(intervals, "SAVE_EVERY", 0.0)
        for name in MAKE:
            patch.setattr(training, name, functools.partial(compiled_once, name))
        yield patch


def learn(*, horizon=HORIZON, progress=False, resume=None) -> nbf.FittedModel:
    return nbf.fit(small_grid(), horizon=horizon, decoder=SOFTMAX, progress=progress, resume=resume, **SMALL)


@functools.cache
def fitted() -> nbf.FittedModel:
    """A softmax on a 3 x 3 grid, from exact beliefs."""
    with looking_often():
        return learn()


class Walk(nbf.Environment):
    """On a line, stopped by its walls if it has any. The policy is the drift; what is seen is the position + noise."""

    space: Box

    def init(self, key):
        return jax.random.uniform(key, (1,), minval=-1.9, maxval=1.9)

    def transition(self, key, state, policy):
        moved = state + policy + 0.5 * jax.random.normal(key, (1,))
        return jnp.clip(moved, -2.0, 2.0) if self.space.bounded else moved

    def observe(self, key, state, next_state):
        return next_state[0] + jax.random.normal(key)

    def log_likelihood(self, observation, state, next_state):
        return jax.scipy.stats.norm.logpdf(observation, next_state[0])

    def check_observation(self, observation):
        pass


DRIFT, PARTICLES = 0.3, 32


class Drifts(Scheduled):
    """Within walls, with a drift that changes from step to step."""

    def sample(self, key):
        return Walk(Box((-2.0,), (2.0,))), jnp.asarray(DRIFT)

    def schedule(self, key, steps):
        stretch = lambda tree: jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (steps, *leaf.shape)), tree)  # noqa: E731
        return stretch(self.sample(key)[0]), DRIFT * (-1.0) ** jnp.arange(steps)


@functools.cache
def unmeasured_walker() -> nbf.FittedModel:
    """The same without its calibration, which `fitted` has."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "calibrate", lambda *_, **__: no_calibration())
        return walker.__wrapped__()


@functools.cache
def walker() -> nbf.FittedModel:
    """A mixture on a line between walls, from a particle filter, by a single chunk of training."""
    mixture = MixtureConfig(components=2, width=8, depth=1)
    return nbf.fit(Drifts(), steps=20, particles=PARTICLES, horizon=1, decoder=mixture, progress=False, **SMALL)


# What is chosen

CHOICES = {
    "a small grid": (Lattice((8, 8)), EnumeratedDecoderConfig),
    "the largest that is listed": (Lattice((64, 64)), EnumeratedDecoderConfig),
    "a large grid": (Lattice((64, 65)), DequantizedFlowConfig),
    "a large cube": (Lattice((17, 17, 17)), DequantizedFlowConfig),
    "a large lattice of six dimensions": (Lattice((5,) * 6), DequantizedFlowConfig),
    "a long line": (Lattice((5000,)), EnumeratedDecoderConfig),
    "symbols": (Tokens(4, 13), AutoregressiveConfig),
    "a line": (Box((0.0,), (1.0,)), MixtureConfig),
    "a line without ends": (Box((0.0,), (1.0,), bounded=False), MixtureConfig),
    "a plane": (Box((0.0, 0.0), (1.0, 1.0)), MixtureConfig),
    "all of space": (Box((0.0,) * 3, (1.0,) * 3, bounded=False), MixtureConfig),
    "poses": (Box((0.0,) * 3, (1.0,) * 3, circular=(2,)), MixtureConfig),
}


@pytest.mark.parametrize("name", CHOICES)
def test_the_decoder_suits_the_space(name):
    space, kind = CHOICES[name]
    decoder = decoder_for(space)
    assert type(decoder) is kind
    decoder.check(space)


def test_states_without_an_order_are_encoded_one_hot():
    """Those of tables; their space is that of models of before."""
    rooms = nbf.from_matrices(np.eye(5), np.eye(5), np.full(5, 0.2))
    assert encoder_for(rooms.space) == OneHotConfig((5,))
    assert encoder_for(Lattice((5,))) == encoder_for(Box((0.0,), (1.0,))) == MeanConfig()
    assert encoder_for(Lattice((5000,), ordered=False)) == MeanConfig()
    assert rooms.space.signature == Lattice((5,)).signature


class Circle(StateSpace):
    """A space that no decoder is known for."""

    @property
    def context(self):
        return None

    @property
    def signature(self):
        return "circle()"

    @property
    def num_features(self):
        return 1

    def encode(self, state):
        return state

    def decode(self, numbers):
        return numbers

    def contains(self, state):
        return jnp.bool_(True)


def test_where_no_decoder_is_known_one_is_asked_for():
    with pytest.raises(InputError, match=r"circle\(\).*give one"):
        decoder_for(Circle())


@pytest.mark.slow
def test_what_is_said_is_taken():
    assert fitted().config == ModelConfig(LatticeConfig((3, 3)), SOFTMAX, SMALL["encoder"], embedding=8)
    assert fitted().steps == len(fitted().losses) * intervals.CHUNK
    assert walker().config.space == BoxConfig((-2.0,), (2.0,))
    assert walker().steps == 20


# Where beliefs come from


@pytest.mark.slow
def test_beliefs_are_exact_where_states_can_be_listed():
    assert fitted().teacher == "the exact filter"
    assert fitted().teacher_ess is None
    assert fitted().on_walls == 0.0
    assert fitted().calibration.js is not None
    assert "JS from the exact belief" in str(fitted())


def taught() -> tuple[np.ndarray, np.ndarray]:
    """ESS and share on the walls of many particle filters at depth 0 or 1, in NumPy."""
    rng, reps = np.random.default_rng(2026), 4000

    def moved(size):
        return np.clip(rng.uniform(-1.9, 1.9, size) + DRIFT + 0.5 * rng.normal(size=size), -2.0, 2.0)

    particles, seen = moved((reps, PARTICLES)), moved((reps, 1)) + rng.normal(size=(reps, 1))
    weights = np.exp(-0.5 * (particles - seen) ** 2)
    weights /= weights.sum(axis=1, keepdims=True)
    after = rng.random(reps) < 0.5
    on_wall = np.sum(weights * (np.abs(particles) >= 2.0), axis=1)
    return np.where(after, 1.0 / np.sum(weights**2, axis=1), PARTICLES), np.where(after, on_wall, 0.0)


@pytest.mark.slow
def test_elsewhere_they_are_a_particle_filters_and_its_quality_is_told():
    """Of a family that changes at every step."""
    result, (ess, on_wall) = walker(), taught()
    assert result.teacher == "a particle filter of 32"
    assert result.calibration.js is None
    assert result.teacher_ess is not None
    np.testing.assert_allclose(result.teacher_ess, ess.mean(), rtol=0, atol=monte_carlo(ess.std(), TEACHER_BELIEFS))
    # A share is found by 64 draws of each belief, which adds at most p(1 - p)/64 <= p/64 to its variance.
    sigma = np.sqrt(on_wall.var() + on_wall.mean() / TEACHER_BELIEFS)
    np.testing.assert_allclose(result.on_walls, on_wall.mean(), rtol=0, atol=monte_carlo(sigma, TEACHER_BELIEFS))
    assert "lie on a wall of the box" in str(result)
    assert result.on_walls > 0


STAYING = (0.2, 0.7)


class Rooms(Scheduled):
    """Three rooms under a policy that changes from step to step."""

    def sample(self, key):
        return three_rooms(), jnp.asarray(STAYING[0])

    def schedule(self, key, steps):
        world = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (steps, *leaf.shape)), three_rooms())
        return world, jnp.asarray(STAYING)[jnp.arange(steps) % 2]


def test_exact_beliefs_of_a_family_that_changes_are_those_of_all_trajectories(key):
    """p0, or the posterior of one or of two observations, each as often as it should be."""
    sequences = [seen for depth in range(3) for seen in itertools.product(range(3), repeat=depth)]
    truth = [posterior(three_rooms(), seen, STAYING[: len(seen)]) for seen in sequences]
    source = ExactPosteriors(Rooms(), horizon=2)
    probs = jax.jit(jax.vmap(lambda key: source.posterior(key).probs))(jax.random.split(key, 8000))
    distance = np.abs(np.asarray(probs, np.float64)[:, None] - np.stack([belief for belief, _ in truth])).max(axis=-1)
    np.testing.assert_allclose(distance.min(axis=1), np.zeros(8000), **FLOAT)
    counts = np.bincount(distance.argmin(axis=1), minlength=len(truth))
    assert_frequencies(counts, [evidence / 3 for _, evidence in truth], detects=0.05)


def test_a_teacher_may_be_named():
    source, name = belief_source(
        nbf.One(*small_grid()), small_grid()[0], horizon=3, particles=64, teacher=nbf.ExactFilter(), wall_band=0.0
    )
    assert isinstance(source, FilterPosteriors)
    assert isinstance(source.filter, nbf.ExactFilter)
    assert name == "ExactFilter"


def test_beliefs_are_exact_where_that_is_affordable(monkeypatch):
    """A world of 3 states with 3 branches each: for every step anew, from a pool, or from a particle filter."""
    family = nbf.One(three_rooms(), jnp.asarray(0.3))
    settings, space = FitConfig(steps=2, batch=3, samples=4), three_rooms().space
    assert exact_work(family) == 9
    assert exact_work(nbf.One(*small_grid())) == 9 * 4  # four actions
    chosen = functools.partial(
        belief_source, family, three_rooms(), horizon=2, particles=8, teacher=None, wall_band=0.0
    )
    source, name = chosen()
    assert name == "the exact filter"
    assert pooled(jax.random.key(0), source, settings, space, progress=False) is source
    monkeypatch.setattr(teacher, "EXACT_ANEW", 8)
    pool = pooled(jax.random.key(0), source, settings, space, progress=False)
    assert isinstance(pool, BeliefPool)
    assert pool.states.shape == (6, 8, 1)
    monkeypatch.setattr(teacher, "LARGEST_EXACT", 8)
    assert chosen()[1] == "a particle filter of 8"


# When training stops


def test_a_run_stalls_when_its_best_look_is_too_long_ago():
    """Against the definition, for all beginnings of random sequences with many ties."""
    rng = np.random.default_rng(2026)
    for _ in range(200):
        patience = int(rng.integers(1, 5))
        run, patient = (TrainingRun({}, {}, FitConfig(patience=each), {}) for each in (patience, 0))
        patient.held_out = run.held_out
        for loss in rng.integers(0, 6, 12):
            run.held_out.append(float(loss))
            assert run.stalled == (len(run.held_out) - 1 - int(np.argmin(run.held_out)) >= patience)
            assert not patient.stalled


@pytest.mark.slow
def test_a_loss_that_does_not_fall_stops_the_run(capsys):
    with looking_often() as patch:
        patch.setattr(training, "held_out_loss", lambda *_: lambda parameters: jnp.ones(()))
        result = learn(progress=True)
    assert result.steps == 3 * intervals.CHUNK
    np.testing.assert_array_equal(result.held_out, np.ones(3))
    said = capsys.readouterr().err
    assert "stopped early at step 60, no better since step 20" in said
    assert "calibration: belief 200 of 200" in said


@pytest.mark.slow
def test_a_run_that_is_stopped_and_resumed_stops_early_at_the_same_step(tmp_path):
    whole, path = fitted(), tmp_path / "run.safetensors"
    assert 60 < whole.steps < RESTLESS.steps
    for step in (20, whole.steps - 20):
        with looking_often() as patch:
            patch.setattr(Progress, "update", lambda _, done, loss, at=step: at == done and interrupt())
            with pytest.raises(TrainingStopped):
                learn(resume=path)
        assert load_file(path)["held_out"].shape == (step // 20,)
    for _ in range(2):  # the second time there is nothing left to do
        with looking_often():
            result = learn(resume=path)
        np.testing.assert_array_equal(result.losses, whole.losses)
        np.testing.assert_array_equal(result.held_out, whole.held_out)
        same_leaves(result.model, whole.model)
        assert result.calibration.summary() == whole.calibration.summary()
    with pytest.raises(InputError, match="another purpose"):
        learn(resume=path, horizon=3)
    damaged = {**load_file(path), "held_out": np.full(whole.held_out.shape, np.nan)}
    save_file(damaged, path, metadata=read_file(path)[0])
    with looking_often(), pytest.raises(InputError, match="not finite"):
        learn(resume=path)


def interrupt():
    signal.raise_signal(signal.SIGINT)


def same_leaves(one, other):
    for mine, theirs in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(mine, theirs)


# What is kept


@pytest.mark.parametrize(
    "build", [pytest.param(fitted, id="exact"), pytest.param(walker, id="particles", marks=pytest.mark.slow)]
)
def test_what_is_saved_is_loaded(build, tmp_path, key):
    original = build()
    original.save(tmp_path / "model.safetensors")
    loaded = nbf.FittedModel.load(tmp_path / "model.safetensors")
    assert str(loaded) == str(original)
    for each in fields(nbf.FittedModel):
        if each.name not in ("model", "calibration"):
            np.testing.assert_array_equal(getattr(loaded, each.name), getattr(original, each.name))
    for each in fields(Calibration):
        found, kept = getattr(loaded.calibration, each.name), getattr(original.calibration, each.name)
        assert type(found) is type(kept)
        np.testing.assert_array_equal(found, kept)
    same_leaves(loaded.model, original.model)
    same_leaves(nbf.load_model(tmp_path / "model.safetensors"), original.model)


def test_info_tells_what_is_known_of_a_fitted_model(tmp_path, capsys):
    path = tmp_path / "model.safetensors"
    unmeasured_walker().save(path)
    assert main(["info", str(path)]) == 0
    printed = capsys.readouterr().out
    assert str(unmeasured_walker()) in printed
    assert "unknown" not in printed


def test_a_filter_has_particles():
    with pytest.raises(InputError, match="num_particles"):
        fitted().filter(0)


@pytest.mark.slow
def test_a_loaded_model_filters_the_same(tmp_path, key):
    environment, policy = small_grid()
    fitted().save(tmp_path / "model.safetensors")
    states = []
    for result in (fitted(), nbf.FittedModel.load(tmp_path / "model.safetensors")):
        tracker = result.filter(num_particles=8)
        state, _ = tracker.step(key, tracker.init(key, environment), 1, environment, policy)
        states.append(state)
        assert tracker.num_particles == 8
    same_leaves(*states)


def rewritten(path, change):
    """The same model with another note."""
    metadata, _ = read_file(path)
    note = json.loads(metadata["fitted"])
    after = change(note)
    metadata["fitted"] = after if isinstance(after, str) else json.dumps(note)
    save_file(load_file(path), path, metadata=metadata)


@pytest.mark.parametrize(
    "change",
    [
        lambda note: "no JSON",
        lambda note: "[]",
        lambda note: "null",
        lambda note: "[" * 100_000,
        lambda note: "1" * (LONGEST_METADATA + 1),
        lambda note: note.pop("calibration") and None,
        lambda note: note.update(calibration=3),
        lambda note: note.update(more=1),
        lambda note: note.update(seconds="long"),
        lambda note: note.update(steps=1.5),
        lambda note: note.update(losses=["a"]),
        lambda note: note.update(losses=[[1.0], []]),
        lambda note: note.update(teacher=None),
        lambda note: note["calibration"].update(pit=[[]]),
        lambda note: note["calibration"].update(pit=[1.0]),
        lambda note: note["calibration"].update(levels=[0.5, 0.6]),
        lambda note: note["calibration"].update(nll=None),
    ],
)
def test_a_note_that_makes_no_sense_is_refused_and_the_model_still_loads(change, tmp_path):
    path = tmp_path / "model.safetensors"
    unmeasured_walker().save(path)
    assert str(nbf.FittedModel.load(path)) == str(unmeasured_walker())
    rewritten(path, change)
    with pytest.raises(InputError, match="known of the model"):
        nbf.FittedModel.load(path)
    same_leaves(nbf.load_model(path), unmeasured_walker().model)


def test_a_model_without_a_note_is_for_load_model(tmp_path):
    nbf.save_model(tmp_path / "model.safetensors", unmeasured_walker().model, unmeasured_walker().config)
    with pytest.raises(InputError, match=r"nbf\.load_model"):
        nbf.FittedModel.load(tmp_path / "model.safetensors")


# How good it is


def band(found: Calibration) -> tuple[float, float]:
    """The divergence from exact beliefs, less and plus four of its errors."""
    assert found.js is not None
    assert found.js_error is not None
    return found.js - 4 * found.js_error, found.js + 4 * found.js_error


def test_it_is_better_than_an_untrained_model():
    """By far more than the errors of both, and by the exact beliefs' own measure."""
    result = fitted()
    untrained = result.config.build(prng.stream(0, "fit", "parameters"))
    source = ExactPosteriors(nbf.One(*small_grid()), HORIZON)
    before = calibrate(prng.stream(0, "fit", "calibration"), untrained, source, beliefs=CALIBRATION_BELIEFS)
    after = result.calibration
    assert band(after)[1] < band(before)[0]
    assert after.nll + 4 * after.nll_error < before.nll - 4 * before.nll_error
    assert result.losses[-1] < result.losses[0]


def test_printed_it_says_what_it_is():
    head, _, *table = str(unmeasured_walker()).splitlines()
    assert head.startswith("MixtureConfig for box((-2.0, 2.0),): 20 steps on beliefs of a particle filter of 32 (ESS ")
    assert re.search(r"; \d+ s in all", head)
    assert any("held-out NLL" in line for line in table)
    assert any("verdict" in line for line in table)


# What cannot be done


class Crooked(Walk):
    """Its states have two numbers, its space one."""

    def init(self, key):
        return jnp.zeros(2)


GRID, LINE = small_grid(), (Walk(Box((-2.0,), (2.0,))), jnp.asarray(0.1))


@pytest.mark.parametrize(
    ("family", "arguments", "said"),
    [
        (GRID, {"horizon": -1}, "horizon.*-1"),
        (LINE, {"particles": 1}, "particles.*1"),
        (LINE, {"wall_band": -0.5}, r"wall_band.*-0\.5"),
        (LINE, {"wall_band": float("nan")}, "wall_band.*nan"),
        (GRID, {"wall_band": 0.5}, "bounded Box.*lattice"),
        (GRID, {"steps": 0}, "steps"),
        (GRID, {"trial": 1}, "2 episodes at least"),
        (GRID, {"trial": -1}, "trial of at least 0"),
        (GRID, {"embedding": 0}, "embedding.*0"),
        (GRID, {"decoder": MixtureConfig()}, "mixture.*lattice"),
        (LINE, {"decoder": CouplingFlowConfig()}, "2 dimensions"),
        (GRID, {"encoder": AttentionConfig(width=0)}, "width.*0"),
        (Crooked(Box((-2.0,), (2.0,))), {}, r"`init` of Crooked.*does not fit box"),
        (LINE, {"teacher": PointMassFilter(4)}, "point-mass filter needs"),
    ],
    ids=lambda value: ", ".join(value) if isinstance(value, dict) else None,
)
def test_what_cannot_be_done_is_refused_before_training(family, arguments, said, monkeypatch):
    monkeypatch.setattr(intervals, "CHUNK", 10**9)  # a chunk would never end
    with pytest.raises(InputError, match=said):
        nbf.fit(family, progress=False, **{**SMALL, **arguments})
