"""A model that learns from what its filter meets: against brute force, and against itself without a stop."""

from __future__ import annotations

import dataclasses
import itertools
import os
import signal
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from fits import untrained_on_a_line
from scipy import stats
from tolerances import FLOAT
from worlds import HiddenMarkov, hidden_markov, posterior, three_rooms

import nbf
from nbf.contracts import Family
from nbf.environments.functional import as_family
from nbf.environments.rollout import rollout
from nbf.errors import InputError
from nbf.fitting import learn as facade
from nbf.fitting import learning_file
from nbf.fitting.episodes import draw_episodes, instance
from nbf.fitting.history import History, Round
from nbf.fitting.learn import LearningStopped, Recorded, SimulatedEpisodes, begin, learn
from nbf.fitting.learning import LearnConfig
from nbf.fitting.rungs import Met, is_doubted, is_lower_sound, meet, without_model
from nbf.fitting.trust import log_floor
from nbf.training.config import FitConfig
from nbf.training.run import TrainingRun

STAY = jnp.float32(0.3)
TRAINING = FitConfig(steps=40, batch=2, samples=4, optimizer="adam", learning_rate=1e-2, schedule="cosine")
FEW = LearnConfig(episodes=3, particles=(9, 4), training=TRAINING)
SMALL: dict[str, Any] = {
    "horizon": 4, "embedding": 3, "decoder": nbf.EnumeratedDecoderConfig(width=4, depth=1),
    "encoder": nbf.MeanConfig(width=4, depth=1),
}  # fmt: skip
QUIET: dict[str, Any] = SMALL | {"progress": False}
RECORDED: dict[str, Any] = {name: value for name, value in QUIET.items() if name != "horizon"}
ROOMS = three_rooms(), STAY


def assert_same(one: nbf.FittedModel, other: nbf.FittedModel) -> None:
    """Bit for bit."""
    for ours, theirs in zip(jax.tree.leaves(one.model), jax.tree.leaves(other.model), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(one.losses, other.losses)
    assert one.history == other.history
    assert one.trust == other.trust
    assert str(one.calibration) == str(other.calibration)


def rounds_of(learned: nbf.FittedModel, measure: str = "log score") -> tuple[Round, ...]:
    assert learned.history is not None
    assert learned.history.measure == measure
    return learned.history.rounds


def test_learning_that_was_stopped_goes_on_to_the_same_result(tmp_path, monkeypatch):
    """Stopped between rounds, and in the middle of the training of one."""
    path = tmp_path / "run.safetensors"
    whole = learn(ROOMS, FEW, rounds=3, **QUIET)
    between = learn(ROOMS, FEW, rounds=1, resume=path, **QUIET)
    assert len(rounds_of(between)) == 1

    added, add = [], TrainingRun.add

    def interrupted(run, loss):
        add(run, loss)
        added.append(loss)
        if len(added) == 3:  # after the first of two chunks of the third round
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(TrainingRun, "add", interrupted)
    with pytest.raises(LearningStopped, match="stopped after 2 rounds") as stopped:
        learn(ROOMS, FEW, rounds=3, resume=path, **QUIET)
    monkeypatch.undo()
    assert stopped.value.learning.done == 2
    assert rounds_of(stopped.value.learning.result()) == rounds_of(whole)[:2]
    assert len(list(tmp_path.iterdir())) == 2, "the training in progress was not kept"
    assert_same(learn(ROOMS, FEW, rounds=3, resume=path, **QUIET), whole)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_scores_are_those_of_brute_force(key):
    """As many calls as there are branches: the filter without a model is exact, and so is what is said of it."""
    world = ROOMS[0]
    episodes = draw_episodes(as_family(ROOMS), key, 3, 4)
    (filter,) = without_model(world, 9)
    met = meet(filter, 9, key, episodes, 8)
    unknown = meet(filter, 9, key, eqx.tree_at(lambda e: e.states, episodes, None), 8)
    assert met.calls == unknown.calls == 3 * 4 * 9
    for place, step in itertools.product(range(3), range(4)):
        seen = np.asarray(episodes.observations)[place, : step + 1]
        probs, evidence = posterior(world, seen, [0.3] * (step + 1))
        before = posterior(world, seen[:-1], [0.3] * step)[1] if step else 1.0
        truth = int(episodes.states[place, step + 1, 0])
        floor = np.exp(log_floor(world.space))
        np.testing.assert_allclose(met.scores[place, step], np.log(probs[truth] + floor), **FLOAT)
        np.testing.assert_allclose(unknown.scores[place, step], np.log(evidence / before), **FLOAT)
        impossible = probs == 0
        assert not impossible[met.samples[place, step + 1, :, 0]].any()
    np.testing.assert_array_equal(met.truths, episodes.states)
    assert unknown.truths is None


def counted_walk(counts: list[int]):
    """A walk on a line that is seen with noise, and counts its moves."""

    def move(key, state, policy):
        jax.debug.callback(lambda _: counts.append(1), state)
        return state + 0.3 * jax.random.normal(key, (1,))

    return nbf.environment(
        init=lambda key: jax.random.normal(key, (1,)),
        transition=move,
        observe=lambda key, state, next_state: next_state[0] + 0.1 * jax.random.normal(key),
        log_likelihood=lambda seen, state, next_state: jax.scipy.stats.norm.logpdf(seen, next_state[0], 0.1),
        space=nbf.Box((-4.0,), (4.0,)),
    )


@pytest.mark.slow
def test_calls_are_counted():
    """Against the moves that the environment itself counts, by both kinds of filters."""
    counts: list[int] = []
    decoder = nbf.MixtureConfig(components=2, width=4, depth=1)
    config = dataclasses.replace(FEW, particles=(6, 3))
    run = begin((counted_walk(counts), None), config, horizon=4, decoder=decoder)
    episodes = run.episodes(0)
    environment = instance(episodes, 0)[0]
    for rung in (0, 1):
        jax.effects_barrier()
        counts.clear()
        met = run._run(run.state, 0, rung, episodes, environment)
        jax.effects_barrier()
        assert met.calls == len(counts) >= 3 * 4 * config.particles[rung]


def test_samples_on_walls_are_spread_beyond_them():
    """Within the band, and nothing else is moved."""
    walk = counted_walk([])
    run = begin((walk, None), dataclasses.replace(FEW, wall_band=0.5), horizon=4)
    samples = np.tile(np.array([-4.0, 0.0, 4.0, 1.5], np.float32), 2).reshape(1, 1, 8, 1)
    met = Met(samples, None, eqx.filter(walk.space, eqx.is_array), np.zeros((1, 1)), 0, None)
    kept = np.asarray(run._added(run.state.beliefs, met, 0).states)[0, :, 0].reshape(2, 4)
    np.testing.assert_array_equal(kept[:, [1, 3]], [[0.0, 1.5]] * 2)
    beyond = np.abs(kept[:, [0, 2]]) - 4.0
    assert ((beyond >= 0) & (beyond <= 0.5)).all()
    assert (np.sign(kept[:, 0]) < np.sign(kept[:, 2])).all()
    assert len(np.unique(beyond)) == 4


def told() -> HiddenMarkov:
    """All moves are alike, and a symbol tells the new state, nearly."""
    return hidden_markov([0.5, 0.3, 0.2], np.full((3, 3), 1 / 3), 0.02 + 0.94 * np.tile(np.eye(3), (3, 1, 1)))


class Rooms(Family):
    """One world, which may be exchanged without compiling again."""

    world: HiddenMarkov

    def sample(self, key):
        return self.world, STAY


def test_a_change_of_the_world_is_doubted():
    """Where symbols tell the state, few particles take over; when they tell nothing any more, many do, at once."""
    silent = hidden_markov([0.5, 0.3, 0.2], np.full((3, 3), 1 / 3), np.full((3, 3, 3), 1 / 3))
    run = begin(Rooms(told()), dataclasses.replace(FEW, tolerance=1.0), **SMALL)
    for _ in range(4):
        run.advance()
    assert [each.particles for each in run.state.rounds] == [9, 9, 4, 4]
    assert [each.fewer for each in run.state.rounds] == [None, 4, None, None]
    run.episodes = SimulatedEpisodes(Rooms(silent), 0, 3, 4)
    before = run.state.rounds[-1]
    run.advance()
    last = run.state.rounds[-1]
    assert last.doubted
    assert last.particles == 4
    assert last.calls - before.calls == 3 * 4 * (4 + 9)  # met by few, then by many
    run.advance()
    assert (run.state.rounds[-1].particles, run.state.rounds[-1].with_model) == (9, False)
    assert int(run.state.beliefs.met) == 6 * 3 * 5


def test_beliefs_that_were_met_are_learned():
    """Where a symbol tells all there is to know, every belief but p0 has one entropy: no model's loss is lower."""
    training = dataclasses.replace(TRAINING, steps=400, batch=16, samples=16)
    learned = learn((told(), STAY), LearnConfig(6, (9, 4), training=training), rounds=2, **QUIET)
    entropies = [stats.entropy([0.5, 0.3, 0.2]), *[stats.entropy([0.96, 0.02, 0.02])] * 4]
    assert -0.05 < learned.calibration.nll - np.mean(entropies) < 0.15
    first, second = rounds_of(learned)
    assert first.loss > second.loss


def recorded(key, count: int, steps: int = 4) -> list[Recorded]:
    found = []
    for each in jax.random.split(key, count):
        _, observations = rollout(each, *ROOMS, steps)
        found.append(Recorded(*ROOMS, observations))
    return found


def test_recorded_episodes_are_learned_from(key):
    """Without their hidden states, and each once."""
    given = recorded(key, 9)
    whole = learn(given, FEW, rounds=2, **RECORDED)
    evidence = [np.log(posterior(ROOMS[0], np.asarray(e.observations), [0.3] * 4)[1]) / 4 for e in given]
    first, second = rounds_of(whole, "log evidence")
    np.testing.assert_allclose([first.score, second.score], np.reshape(evidence[:6], (2, 3)).mean(axis=1), **FLOAT)


def test_a_learned_model_is_a_fitted_model(tmp_path):
    learned = learn(ROOMS, dataclasses.replace(FEW, truth_share=0.5), rounds=2, **QUIET)
    path = tmp_path / "model.safetensors"
    learned.save(path)
    loaded = nbf.FittedModel.load(path)
    assert_same(loaded, learned)
    assert "| 6 | " in str(loaded)
    assert loaded.filter(5).num_particles == 5
    again = learn(ROOMS, FEW, rounds=1, start=loaded, horizon=4, progress=False)
    assert rounds_of(again)[0].fewer == 4, "a model to begin with is tried at once"
    assert again.steps == 40


@pytest.mark.parametrize(
    ("difference", "sound"), [([0.0, 0.0], True), ([-0.2, 0.1], True), ([-0.2, 0.09], False), ([1.0, 1.0], True)]
)
def test_fewer_particles_may_lose_the_tolerance_in_the_mean(difference, sound):
    assert is_lower_sound(np.asarray(difference), 0.05) == sound


def test_doubt_is_a_fall_beyond_chance():
    scores = np.array([-1.0, -2.0, -3.0, -2.0])  # mean -2, standard error √(2/3)/2
    error = np.sqrt(2 / 3) / 2
    assert not is_doubted(scores, [])
    assert not is_doubted(scores, [(-2.0 + 2.9 * error, 0.0)])
    assert is_doubted(scores, [(-2.0 + 3.1 * error, 0.0)])
    # The earlier rounds have errors too, of their mean half as large as that of each of four.
    earlier = [(-2.0 + 3.1 * error, error)] * 4
    assert not is_doubted(scores, earlier)
    assert is_doubted(scores, [(-2.0 + 3.1 * error * np.sqrt(1.25), error)] * 4)
    assert not is_doubted(scores, [(-5.0, 0.1)])


BAD = {
    "episodes": ({"episodes": 1}, "episodes of at least 2"),
    "one rung": ({"particles": (32,)}, "fewer and fewer"),
    "rising": ({"particles": (32, 128)}, "fewer and fewer"),
    "one number": ({"particles": 512}, "fewer and fewer"),
    "no training": ({"training": None}, "training is an nbf.FitConfig"),
    "no particles": ({"particles": (32, 0)}, "at least 1"),
    "tolerance": ({"tolerance": float("nan")}, "tolerance"),
    "beliefs": ({"beliefs": 0}, "beliefs of at least 1"),
    "share": ({"truth_share": 2.0}, "between 0 and 1"),
}


@pytest.mark.parametrize(("options", "wrong"), BAD.values(), ids=BAD)
def test_bad_settings_are_refused(options: dict[str, Any], wrong: str, unchecked: None):
    with pytest.raises(InputError, match=wrong):
        LearnConfig(**options)


UNFIT = {
    "rounds": (FEW, {"rounds": 0}, "rounds of at least 1"),
    "walls of a lattice": (dataclasses.replace(FEW, wall_band=0.1), {}, "Only a bounded Box has walls"),
    "start and decoder": (FEW, {"start": untrained_on_a_line(3)}, "leave these out"),
    "another space": (FEW, {"start": untrained_on_a_line(5), "decoder": None, "encoder": None}, "was trained for"),
    "patience": (dataclasses.replace(FEW, training=FitConfig(patience=1)), {}, "leave patience at 0"),
}


@pytest.mark.parametrize(("config", "options", "wrong"), UNFIT.values(), ids=UNFIT)
def test_what_does_not_fit_is_refused(config: LearnConfig, options: dict[str, Any], wrong: str):
    asked: dict[str, Any] = {**QUIET, "rounds": 1, **options}
    with pytest.raises(InputError, match=wrong):
        learn(ROOMS, config, **asked)


def test_bad_recordings_are_refused(key):
    given, pairs = recorded(key, 4), dataclasses.replace(FEW, episodes=2)
    with pytest.raises(InputError, match="need 6 recorded episodes; got 4"):
        learn(given, pairs, rounds=2, **RECORDED)
    with pytest.raises(InputError, match="one length"):
        learn([*given[:3], *recorded(key, 1, steps=3)], pairs, rounds=1, **RECORDED)
    walks = [Recorded(counted_walk([]), None, jnp.zeros(4)) for _ in range(4)]
    with pytest.raises(InputError, match="same functions"):
        learn(walks, pairs, rounds=1, **RECORDED)
    wrong: Any = [given[0], 7, *given]
    jaxtyping.config.update("jaxtyping_disable", True)  # a user has no type checks
    try:
        with pytest.raises(InputError, match="entry 1 is 7"):
            learn(wrong, pairs, rounds=1, **RECORDED)
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)
    with pytest.raises(InputError, match="length of their own"):
        learn(given, pairs, rounds=1, **QUIET)
    with pytest.raises(InputError, match="true states of recorded episodes are not known"):
        learn(given, dataclasses.replace(pairs, truth_share=0.5), rounds=1, **RECORDED)


def test_a_file_of_another_run_is_refused(tmp_path):
    path = tmp_path / "run.safetensors"
    run = begin(ROOMS, FEW, **SMALL)
    learning_file.save(path, run.state, facade._identity(run))
    for other in ({"seed": 1}, {"horizon": 5}, {"embedding": 4}):
        asked: dict[str, Any] = QUIET | other
        with pytest.raises(InputError, match="a run with other settings"):
            learn(ROOMS, FEW, rounds=1, resume=path, **asked)
    untrained_on_a_line().save(path)
    with pytest.raises(InputError, match=r"is no run of nbf\.learn"):
        learn(ROOMS, FEW, rounds=1, resume=path, **QUIET)


def test_a_history_from_a_file_is_checked():
    each = Round(3, 100, 9, False, -1.0, 0.1, 4, 0.02, False, 1.5)
    found = History("log score", (each, each), 4, True, -0.9, 0.1)
    assert History.from_dict(found.to_dict()) == found
    for wrong in ({"measure": "luck"}, {"score": float("nan")}, {"rounds": [{}]}, {"particles": 4.5}):
        with pytest.raises(ValueError, match=r"measure|score|expected|particles"):
            History.from_dict(found.to_dict() | wrong)
