"""The playground with its real filters: its numbers are those of the library, its script repeats them, and a change in
mid-episode leaves the belief what it should be."""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from scipy.spatial.distance import jensenshannon
from tolerances import FLOAT, monte_carlo

import nbf
from nbf.beliefs.particles import ParticleBelief
from nbf.filters.neural.state import NeuralState
from nbf.filters.particle import ParticleState
from nbf.play.animation import animation
from nbf.play.carrying import carried
from nbf.play.problems import PROBLEMS
from nbf.play.problems.problem import EXACT, NEURAL, PARTICLE
from nbf.play.programs import Programs
from nbf.play.script import script
from nbf.play.session import Session

LINE = re.compile(r"^ *(\d+) (\w+) +ESS +(\S+)  log p\(y\) +(\S+)$", re.MULTILINE)
OPEN = ["." * 8] * 8


def forward(walls: list[str], settings: dict, belief: np.ndarray, symbol: int) -> np.ndarray:
    """One step of Bayes' rule in Gridworld by hand, cell by cell."""
    temperature = {"straight": 1e-5, "roughly": 1.0, "anywhere": 1e3}[settings["walks"]]
    after, goal = np.zeros((8, 8)), settings["goal"]
    for row, column in np.argwhere(belief > 0):
        ends = []
        for down, right in ((-1, 0), (1, 0), (0, -1), (0, 1)):
            r, c = row + down, column + right
            free = 0 <= r < 8 and 0 <= c < 8 and walls[r][c] == "."
            ends.append((r, c) if free else (row, column))
        far = np.array([abs(r - goal[0]) + abs(c - goal[1]) for r, c in ends], float)
        share = np.exp(-(far - far.min()) / temperature)
        for action, (end, probability) in enumerate(zip(ends, share / share.sum(), strict=True)):
            right = symbol == (4 if end == (row, column) else action)
            seen = 1 - settings["error"] if right else settings["error"] / 4
            after[end] += belief[row, column] * probability * seen
    return after / after.sum()


def numbers(episode: Session) -> list[tuple[int, str, float, float]]:
    found = []
    for time, frame in enumerate(episode.frames[1:], 1):
        if episode.problem.silent(frame.told):
            assert all(reading.log_evidence is None for reading in frame.readings.values())
            continue
        for role, reading in frame.readings.items():
            assert reading.log_evidence is not None
            found.append((time, role, reading.ess, reading.log_evidence))
    return found


def repeated(episode: Session, folder: Path, *, apart: bool = False) -> None:
    """The exported script prints the numbers of the episode, also in a process of its own."""
    path = folder / "episode.py"
    path.write_text(script(episode), encoding="utf-8")
    code = [line for line in path.read_text().splitlines() if line.strip()]
    body = code[next(k for k, line in enumerate(code) if line.startswith("problem, beliefs")) :]
    assert len(body) <= 15
    if apart:
        done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, cwd=folder)
        assert done.returncode == 0, done.stderr
        printed = LINE.findall(done.stdout)
    else:
        with contextlib.redirect_stdout(io.StringIO()) as output:
            exec(compile(path.read_text(), str(path), "exec"), {"__name__": "__main__"})
        printed = LINE.findall(output.getvalue())
    wanted = numbers(episode)
    assert len(printed) == len(wanted)
    for (time, role, ess, evidence), (at, name, own, told) in zip(printed, wanted, strict=True):
        assert (int(time), role) == (at, name)
        np.testing.assert_allclose(float(evidence), told, rtol=0, atol=1e-4)  # of the four digits printed
        if own is not None:
            np.testing.assert_allclose(float(ess), own, rtol=0, atol=2e-3)


def test_gridworld_is_bayes_rule_through_changes_and_its_script_repeats_it(tmp_path: Path):
    episode, walls = Session(Programs(), "gridworld", 11, {"neural": 16, "walls": OPEN, "goal": [7, 7]}), list(OPEN)
    truth = np.full((8, 8), 1 / 64)
    for time, action in enumerate(["auto", "right", "auto", "up", "auto"]):
        if time == 2:  # a wall through the map, other noise, another goal, where the agent is not
            row = next(row for row in range(2, 7) if row != episode.frame.world.hidden[0])
            walls[row] = ".#######"
            episode.change({"walls": walls, "error": 0.3, "goal": [0, 0], "walks": "roughly"})
            truth[row, 1:] = 0
            truth /= truth.sum()
        episode.act(action)
        truth = forward(walls, episode.frame.used, truth, int(episode.frame.observed))
        reading = episode.frame.readings[EXACT]
        np.testing.assert_allclose(np.asarray(reading.view.probs).reshape(8, 8), truth, **FLOAT)
        for role in (PARTICLE, NEURAL):
            view = episode.frame.readings[role].view
            shown = np.asarray(view.probs).reshape(8, 8)
            np.testing.assert_allclose(shown.sum(), 1.0, **FLOAT)
            assert shown[np.array([[cell == "#" for cell in line] for line in walls])].max(initial=0) < 1e-6
            np.testing.assert_allclose(view.js, jensenshannon(truth.ravel(), shown.ravel()) ** 2, **FLOAT)
    repeated(episode, tmp_path)
    with Image.open(io.BytesIO(animation(episode))) as gif:
        assert (gif.format, gif.n_frames, gif.info["loop"]) == ("GIF", 6, 0)  # pyright: ignore
        for frame in range(6):  # the agent is there, in its colour
            gif.seek(frame)
            apart = np.abs(np.asarray(gif.convert("RGB"), int) - [0xD5, 0x5E, 0x00]).max(axis=-1)
            assert np.sum(apart < 16) > 3 * 50
    before = episode.frame.readings[EXACT].view.probs
    episode.go(2)
    episode.go(5)
    assert episode.frame.readings[EXACT].view.probs is before


def particle_state(key, n: int) -> ParticleState:
    states = jax.random.randint(key, (n, 2), 0, 8)
    return ParticleState(states, jax.nn.log_softmax(jax.random.normal(key, (n,))))


def test_a_larger_count_is_the_same_belief_and_a_smaller_one_is_unbiased(key):
    environment, _ = PROBLEMS["gridworld"].at(PROBLEMS["gridworld"].checked({"walls": OPEN}), None)
    state = particle_state(key, 32)

    def mean(of: ParticleState):
        return ParticleBelief(of.states, of.log_weights).expectation(lambda cell: cell.astype(jnp.float32))

    more = carried(key, nbf.ParticleFilter(128), state, environment)
    assert more.log_weights.shape == (128,)
    np.testing.assert_allclose(mean(more), mean(state), **FLOAT)
    keys = jax.random.split(key, 400)
    fewer = jax.jit(jax.vmap(lambda each: mean(carried(each, nbf.ParticleFilter(8), state, environment))))(keys)
    error = monte_carlo(np.std(fewer, axis=0), len(fewer))
    assert np.all(np.abs(np.mean(fewer, axis=0) - mean(state)) < error)


def test_a_wall_takes_the_particles_that_it_covers_unless_it_covers_all(key):
    problem = PROBLEMS["gridworld"]
    environment, _ = problem.at(problem.checked({"walls": ["####...."] * 8, "goal": [0, 7]}), None)
    state = particle_state(key, 32)
    after = carried(key, nbf.ParticleFilter(32), state, environment)
    free = np.asarray(state.states)[:, 1] >= 4
    wanted = np.where(free, np.exp(state.log_weights), 0)
    np.testing.assert_allclose(np.exp(after.log_weights), wanted / wanted.sum(), **FLOAT)
    covered = state._replace(states=state.states.at[:, 1].set(0))
    kept = carried(key, nbf.ParticleFilter(32), covered, environment)
    np.testing.assert_allclose(kept.log_weights, covered.log_weights, **FLOAT)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(PROBLEMS))
def test_every_problem_with_changes_of_everything(name: str, tmp_path: Path):
    problem, episode = PROBLEMS[name], Session(Programs(), name, 3)
    other = {
        "gridworld": {"walks": "anywhere", "error": 0.3}, "triangulation": {"beacons": [[0, 0], [4, 4], [-4, 4]]},
        "lake": {"reach": 2.5, "error": 0.2}, "cards": {"plays": "contrary", "believed": "rule"},
    }[name]  # fmt: skip
    changes = {3: {"particle": 2048}, 5: {"neural": 128}, 7: other, 9: {"particle": 32, "neural": 16}}
    for time in range(12):
        episode.change(changes.get(time, {}))
        episode.act("auto" if name == "cards" else problem.actions[time % len(problem.actions)])
        neural = episode.frame.states[NEURAL]
        assert isinstance(neural, NeuralState)
        for role, reading in episode.frame.readings.items():
            assert np.isfinite(reading.view.probs).all()
            assert 0 <= reading.view.js <= np.log(2) + 1e-6
            assert (reading.view.js == 0) == (role == EXACT)
    repeated(episode, tmp_path, apart=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(PROBLEMS))
def test_the_neural_filter_is_worth_its_panel(name: str):
    """With as many calls it is nearer to the exact belief than the particle filter beside it, over some episodes."""
    problem, programs, js = PROBLEMS[name], Programs(), []
    for seed in range(12):
        episode = Session(programs, name, seed, {"particle": 32, "neural": 32})
        for time in range(14):
            episode.act("scan" if name == "triangulation" and time % 2 == 0 else "auto")
        js.append(
            [np.mean([float(f.readings[role].view.js) for f in episode.frames[1:]]) for role in (PARTICLE, NEURAL)]
        )
    particle, neural = np.mean(js, axis=0)
    print(f"{problem.title}: mean JS {particle:.3f} of the particle filter, {neural:.3f} of the neural filter")
    difference = np.diff(js, axis=1)[:, 0]
    assert np.mean(difference) < -np.std(difference, ddof=1) / np.sqrt(len(js)) * 2
