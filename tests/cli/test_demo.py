"""Laws of the demo: its episode is a real one, its beliefs are the filters' own, and a terminal can show them."""

from __future__ import annotations

import io

import numpy as np
import pytest
from rich.console import Console
from tolerances import FLOAT, SEED

from nbf.cli import demonstration as demo
from nbf.cli.demonstration import DemoConfig, DemoResult, demonstrate, example_episode, furthest
from nbf.cli.tracking import Tracks
from nbf.errors import InputError
from nbf.plot.episode import Episode
from nbf.plot.terminal import AGENT, GOAL, WALL, WALL_STRIPE, Meter, frame, heat_map, layout, play

MOVES = {0: (-1, 0), 1: (1, 0), 2: (0, -1), 3: (0, 1)}
CONFIG = DemoConfig(seed=SEED, steps=4, particles=(4,), episodes=3)

TERMINAL = {"TERM": "xterm-256color"}
"""Whatever terminal the tests themselves run in."""


@pytest.fixture(scope="module")
def tracks() -> list[Tracks]:
    """What the filters of the demo carried: compiled once, for the demo and for the documentation."""
    return []


@pytest.fixture(scope="module")
def found(tracks: list[Tracks]) -> DemoResult:
    tracked = demo.track_episodes
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "PARTICLE_FILTERS", (8,))
        patch.setattr(demo, "TIMED_UPDATES", 5)
        patch.setattr(demo, "track_episodes", lambda *arguments: tracks.append(tracked(*arguments)) or tracks[0])
        return demonstrate(CONFIG, Meter())


def posteriors(episode: Episode, error: float = 0.1) -> np.ndarray:
    """The truth from the definition of the paper's Gridworld: every cell, every move, in float64."""
    free = ~episode.walls
    belief = free / free.sum()
    beliefs = [belief]
    for symbol in episode.symbols:
        following = np.zeros(free.shape)
        for cell in np.argwhere(free):
            ends = [tuple(cell + move) for move in MOVES.values()]
            ends = [end if min(end) >= 0 and max(end) < 8 and free[end] else tuple(cell) for end in ends]
            distance = np.array([np.abs(np.subtract(end, episode.goal)).sum() for end in ends])
            chosen = (distance == distance.min()) / (distance == distance.min()).sum()
            for move, (end, probability) in enumerate(zip(ends, chosen, strict=True)):
                right = symbol == (4 if end == tuple(cell) else move)
                following[end] += belief[tuple(cell)] * probability * (1 - error if right else error / 4)
        belief = following / following.sum()
        beliefs.append(belief)
    return np.stack(beliefs)


# --- what is computed ----------------------------------------------------------------------------


@pytest.mark.slow
def test_the_exact_filter_of_the_demo_is_bayes_rule_on_the_episode_that_is_drawn(found: DemoResult):
    np.testing.assert_allclose(found.episode.beliefs["Exact"], posteriors(found.episode), **FLOAT)


def test_every_belief_of_the_demo_is_a_distribution(found: DemoResult):
    for belief in found.episode.beliefs.values():
        assert belief.shape == (CONFIG.steps + 1, 8, 8)
        assert np.all(belief >= 0)
        np.testing.assert_allclose(belief.sum(axis=(1, 2)), 1, **FLOAT)


def test_the_divergences_of_the_table_and_of_the_picture_are_those_of_the_beliefs(found: DemoResult):
    truth = found.episode.beliefs["Exact"].reshape(CONFIG.steps + 1, -1).astype(np.float64)
    shown = {row.filter: row.js_episode for row in found.rows}
    assert shown["Exact"] == pytest.approx(0, abs=FLOAT["atol"])
    for name, js in found.episode.js.items():
        belief = found.episode.beliefs[name].reshape(CONFIG.steps + 1, -1).astype(np.float64)
        middle = (truth + belief) / 2
        with np.errstate(divide="ignore", invalid="ignore"):
            parts = [np.nansum(np.where(p > 0, p * np.log(p / middle), 0), axis=1) for p in (truth, belief)]
        np.testing.assert_allclose(js, sum(parts) / 2, **FLOAT)
        np.testing.assert_allclose(shown[name], js[1:].mean(), **FLOAT)


def test_the_table_has_a_row_for_every_filter_with_its_cost(found: DemoResult):
    costs = {"Exact": 256, "Prior": 256, "PF (8)": 8, "NBF (4)": 4, "Approx Beliefs": 256}
    assert {row.filter: row.calls for row in found.rows} == costs
    assert all(row.microseconds > 0 and 0 <= row.js <= np.log(2) for row in found.rows)
    for row in found.rows:
        assert (row.ess is not None) == row.filter.startswith(("PF", "NBF"))
        assert row.ess is None or 0 < row.ess <= row.calls


def test_at_equal_time_the_largest_particle_filter_that_fits_is_named():
    """By a search over all of them; a call makes each filter dearer by as much as it makes calls."""
    kinds = {"A": "exact", "P (8)": "pf", "P (32)": "pf", "P (64)": "pf", "N (16)": "nbf"}
    times, calls = {"A": 1.0, "P (8)": 2.0, "P (32)": 5.0, "P (64)": 90.0, "N (16)": 60.0}, (64, 8, 32, 64, 16)
    rows = [
        demo.DemoRow(name, 0.0, 1 / count, 0.0, None, count, times[name])
        for name, count in zip(kinds, calls, strict=True)
    ]
    found = demo.at_equal_time(rows, kinds)
    assert [each.call_cost for each in found] == list(demo.CALL_COSTS)
    for each in found:
        assert each.microseconds == 60.0 + 16 * each.call_cost
        fits = [n for n in (8, 32, 64) if times[f"P ({n})"] + n * each.call_cost <= each.microseconds]
        assert (each.other, each.other_js) == (f"P ({max(fits)})", 1 / max(fits))
    assert [each.other for each in found] == ["P (32)", "P (8)", "P (8)"]
    assert demo.at_equal_time(rows[4:], kinds)[0].other is None


def test_the_documentation_shows_the_episode_of_the_demo(
    found: DemoResult, tracks: list[Tracks], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(demo, "PARTICLE_FILTERS", (8,))
    monkeypatch.setattr(demo, "track_episodes", lambda *arguments: tracks[0])
    episode = example_episode(CONFIG, Meter())
    np.testing.assert_array_equal(episode.path, found.episode.path)
    assert episode.beliefs.keys() == found.episode.beliefs.keys()
    for name, belief in found.episode.beliefs.items():
        np.testing.assert_allclose(episode.beliefs[name], belief, **FLOAT)


def test_the_episode_shown_is_the_first_of_those_with_most_moves():
    still, once, twice = [[0, 0]] * 3, [[0, 0], [0, 1], [0, 1]], [[0, 0], [0, 1], [0, 0]]
    assert furthest(np.array([still, once, twice, twice])) == 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 0}, "1 to 200"),
        ({"steps": 201}, "1 to 200"),
        ({"particles": ()}, "at least one neural filter"),
        ({"particles": (16, 0)}, "1 to 4096 particles"),
        ({"episodes": 1}, "at least 2 episodes"),
    ],
)
def test_settings_that_make_no_demo_are_refused(settings: dict, message: str):
    with pytest.raises(InputError, match=message):
        DemoConfig(**settings)


# --- what a terminal shows -----------------------------------------------------------------------


def small_episode(steps: int = 2) -> Episode:
    """The agent walks right along the top of an 8 x 8 grid; step 2 is misread."""
    walls = np.zeros((8, 8), bool)
    walls[3:5, 3:5] = True
    path = np.stack([np.zeros(steps + 1, int), np.arange(steps + 1)], axis=-1)
    symbols = np.full(steps, 3)
    symbols[1] = 0
    belief = np.broadcast_to(~walls / (~walls).sum(), (steps + 1, 8, 8))
    names = ("Exact", "PF (32)", "NBF (16)")
    js = {name: np.linspace(0, np.log(2), steps + 1) for name in names[1:]}
    return Episode(walls, np.array([7, 7]), path, symbols, dict.fromkeys(names, belief), js)


@pytest.mark.parametrize("cell", [2, 3, 4, 5])
def test_a_heat_map_marks_agent_goal_and_walls_and_nothing_else(cell: int):
    episode = small_episode()
    image = heat_map(episode, "Exact", 1, cell)
    assert image.shape == (8 * cell, 8 * cell, 3)

    def where(*colours: tuple[int, int, int]) -> set[tuple[int, int]]:
        painted = np.any([np.all(image == colour, axis=-1) for colour in colours], axis=0)
        return {(int(row) // cell, int(column) // cell) for row, column in np.argwhere(painted)}

    assert where(AGENT) == {(0, 1)}
    assert where(GOAL) == {(7, 7)}
    assert where(WALL, WALL_STRIPE) == {(int(row), int(column)) for row, column in np.argwhere(episode.walls)}


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((80, 24), (["Exact", "PF (32)", "NBF (16)"], 3)),
        ((150, 50), (["Exact", "PF (32)", "NBF (16)"], 5)),
        ((60, 24), (["Exact", "NBF (16)"], 3)),
        ((30, 24), (["Exact"], 3)),
        ((20, 24), (["Exact"], 2)),
        ((80, 12), None),
    ],
)
def test_the_live_view_fits_the_terminal(size: tuple[int, int], expected: tuple[list[str], int] | None):
    episode = small_episode()
    fit = layout(episode, *size)
    assert fit == expected
    if fit is not None:
        console = Console(
            width=size[0], height=size[1], color_system="truecolor", force_terminal=True, _environ=TERMINAL
        )
        lines = console.render_lines(frame(episode, 2, *fit), pad=False)
        assert max(sum(segment.cell_length for segment in line) for line in lines) <= size[0]
        assert len(lines) < size[1]


def test_the_live_view_tells_the_step_and_a_wrong_observation():
    screen = io.StringIO()
    console = Console(
        file=screen, width=80, height=24, color_system="truecolor", force_terminal=True, _environ=TERMINAL
    )
    assert play(small_episode(), console, seconds=0.0)
    text = screen.getvalue()
    assert all(
        part in text for part in ("the agent may be anywhere", "step  2 of 2", "(wrong)", "JS 0.693", "NBF (16)")
    )


def test_a_terminal_without_colour_is_left_alone():
    screen = io.StringIO()
    console = Console(file=screen, width=80, height=24, color_system=None)
    assert not play(small_episode(), console, seconds=0.0)
    assert screen.getvalue() == ""


def test_away_from_a_terminal_progress_is_one_line_for_each_part(capsys: pytest.CaptureFixture[str]):
    with Meter(total=10) as meter:
        for part in ("first", "second"):
            meter.describe(part)
            meter.advance(10)
    printed = capsys.readouterr()
    assert printed.err.splitlines() == ["first", "second"]
    assert printed.out == ""
