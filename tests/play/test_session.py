"""The playground's episode as a state machine: steps, changes, going back, and repeating it from its recipe."""

from __future__ import annotations

import json

import numpy as np
import pytest
from playing import FakePrograms
from tolerances import FLOAT

from nbf.errors import InputError
from nbf.play.problems import PROBLEMS
from nbf.play.problems.gridworld import MOVES
from nbf.play.session import MAX_STEPS, Session
from nbf.play.telling import frame_message


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    # The states of the fakes are no filters' states.
    monkeypatch.setattr("nbf.play.session.carried", lambda key, filter, state, environment: state)


def session(problem: str = "gridworld", seed: int = 5, **settings) -> Session:
    return Session(FakePrograms(), problem, seed, settings)


def place(of: Session) -> list[int]:
    return of.frame.world.hidden.tolist()


def test_a_user_steers_and_walls_stop():
    episode = session(walls=["........", *[".######."] * 6, "........"])
    for action, (down, right) in zip(MOVES, [(-1, 0), (1, 0), (0, -1), (0, 1)], strict=True):
        row, column = place(episode)
        wanted = [row + down, column + right]
        free = all(0 <= k < 8 for k in wanted) and episode.frame.settings["walls"][wanted[0]][wanted[1]] == "."
        episode.act(action)
        assert place(episode) == (wanted if free else [row, column])


def test_going_back_changes_nothing_and_acting_there_forgets_what_came_after():
    episode = session()
    for action in ("up", "auto", "left", "auto"):
        episode.act(action)
    frames = list(episode.frames)
    episode.go(1)
    assert episode.frames == frames
    assert episode.frame is frames[1]
    episode.go(4)
    assert episode.frame is frames[4]
    episode.go(2)
    episode.act("left")
    assert episode.frames[:3] == frames[:3]
    assert (episode.steps, episode.cursor, place(episode)) == (3, 3, frames[3].world.hidden.tolist())
    assert episode.frame.observed == frames[3].observed  # the same keys, so the same noise


def test_a_change_holds_from_where_it_is_made():
    episode = session()
    for _ in range(3):
        episode.act("auto")
    episode.go(1)
    episode.change({"error": 0.4})
    assert (episode.steps, episode.frame.settings["error"], episode.frame.used["error"]) == (1, 0.4, 0.1)
    episode.act("auto")
    assert episode.frame.used["error"] == episode.frame.settings["error"] == 0.4
    episode.go(0)
    assert episode.frame.settings["error"] == 0.1
    episode.go(2)
    episode.change({"error": 0.4})  # as it is: nothing is forgotten, nothing new
    assert episode.steps == 2


def test_before_the_first_step_a_change_begins_anew_where_the_agent_stands():
    episode = session()
    before = place(episode)
    episode.change({"walls": ["." * 8] * 8, "particle": 512})
    assert (place(episode), episode.steps) == (before, 0)
    assert frame_message(episode)["filters"][1]["count"] == 512


def test_no_wall_is_drawn_on_the_agent_or_on_the_goal():
    episode = session(walls=["." * 8] * 8)
    episode.act("auto")
    row, column = place(episode)
    frame = episode.frame
    walls = ["".join("#" if (r, c) == (row, column) else "." for c in range(8)) for r in range(8)]
    with pytest.raises(InputError, match="agent stands there"):
        episode.change({"walls": walls, "goal": [(row + 4) % 8, column]})
    with pytest.raises(InputError, match="goal is in a wall"):
        episode.change({"walls": ["#" * 8] + ["." * 8] * 7})
    assert episode.frame is frame


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda episode: episode.act("fly"), "no action 'fly'"),
        (lambda episode: episode.act(3), "no action 3"),
        (lambda episode: episode.go(7), "steps 0 to 2"),
        (lambda episode: episode.go(-1), "steps 0 to 2"),
        (lambda episode: episode.go(True), "steps 0 to 2"),
        (lambda episode: episode.change({"particle": 33}), "particle is one of"),
        (lambda episode: episode.change({"error": float("nan")}), "number"),
        (lambda episode: episode.change({"speed": 3}), "no setting 'speed'"),
        (lambda episode: episode.change([]), "object"),
        (lambda episode: Session(FakePrograms(), "chess", 0), "no problem 'chess'"),
        (lambda episode: Session(FakePrograms(), "gridworld", -1), "seed"),
    ],
)
def test_what_cannot_be_done_is_an_input_error_and_changes_nothing(call, told: str):
    episode = session()
    episode.act("auto")
    episode.act("up")
    frames, cursor = list(episode.frames), episode.cursor
    with pytest.raises(InputError, match=told):
        call(episode)
    assert (episode.frames, episode.cursor) == (frames, cursor)


def test_an_episode_has_an_end():
    episode = session()
    episode.frames = [episode.frame] * (MAX_STEPS + 1)
    episode.cursor = MAX_STEPS
    with pytest.raises(InputError, match=f"up to {MAX_STEPS} steps"):
        episode.act("auto")


@pytest.mark.parametrize("name", list(PROBLEMS))
def test_an_episode_follows_from_its_recipe(name: str):
    episode = session(name)
    cards = name == "cards"
    other = {"particle": 512} | ({"plays": "random"} if cards else {"error": 0.2})
    for action in ["auto"] * 6 if cards else episode.problem.actions:
        episode.act(action)
    episode.change(other)
    episode.act("auto")
    episode.go(3)
    told = json.loads(json.dumps(episode.recipe()))
    again = Session.restored(FakePrograms(), told)
    first, second = frame_message(episode), frame_message(again)
    assert first == second
    for one, two in zip(episode.frames, again.frames, strict=True):
        np.testing.assert_allclose(one.world.hidden, two.world.hidden, **FLOAT)
        assert (one.told, one.observed, one.used, one.settings) == (two.told, two.observed, two.used, two.settings)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda recipe: recipe.pop("seed"),
        lambda recipe: recipe.update(steps=[[0, "up"]] * (MAX_STEPS + 1)),
        lambda recipe: recipe.update(steps=[[1, "up"]]),
        lambda recipe: recipe.update(steps=[["up"]]),
        lambda recipe: recipe.update(steps={}),
        lambda recipe: recipe.update(first=-1),
        lambda recipe: recipe.update(settings=[7]),
        lambda recipe: recipe.update(cursor=9),
        lambda recipe: recipe.update(problem=["gridworld"]),
    ],
)
def test_a_spoilt_recipe_is_an_input_error(spoil):
    episode = session()
    episode.act("auto")
    recipe = episode.recipe()
    spoil(recipe)
    with pytest.raises(InputError):
        Session.restored(FakePrograms(), recipe)


def test_what_the_page_is_told_is_json_and_bounded():
    episode = session("triangulation")
    for _ in range(3):
        episode.act("scan")
    text = json.dumps(frame_message(episode), allow_nan=False)
    assert len(text) < 100_000
    message = json.loads(text)
    assert [len(numbers) for each in message["history"].values() for numbers in each.values()] == [4] * 12
    assert message["filters"][0]["microseconds"] == 20.0  # the median of 10, 20, 30
