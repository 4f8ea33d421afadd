"""The tasks of the experiment `values`, against their definitions; what is measured; and the page of its records."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tolerances import FLOAT

import nbf
from nbf.errors import InputError
from nbf.planning.acting import act
from nbf.planning.actor import Actor
from nbf.planning.views import MomentsView, StateView
from nbf.testing import check_environment
from nbf_paper.audit.meaning import key_of
from nbf_paper.experiments.value_tasks import CHANGES, SCAN, STOP, Hunting, hunt, task, walk_to_origin
from nbf_paper.experiments.values import ValuesJob, measured
from nbf_paper.names import VALUE_CHANGES
from nbf_paper.records import ALL, Record, Run, add
from nbf_paper.report.labels import label
from nbf_paper.report.values import page

EPISODES = 64


def acted(process, view, inputs: int):
    actor = Actor.new(jax.random.key(0), inputs, process.num_actions, width=8, depth=1, recurrent=False)
    keys = jax.random.split(jax.random.key(1), EPISODES)
    return jax.jit(jax.vmap(lambda key: act(key, process, view, actor)))(keys)


@pytest.fixture(scope="module")
def walks():
    return acted(walk_to_origin(), StateView(), 6)


@pytest.fixture(scope="module")
def hunts():
    return acted(hunt(), StateView(), 9)


def test_the_return_of_a_walk_is_by_how_much_nearer_it_ended(walks):
    process = walk_to_origin()
    start = np.linalg.norm(5.0 * np.asarray(walks.inputs)[:, 0, :2], axis=1)
    found = measured("walk", walks, process)
    np.testing.assert_allclose(found["return"], start - found["distance"], rtol=1e-3, atol=1e-4)


def test_the_error_of_a_value_is_that_against_what_followed(walks):
    found = measured("walk", walks, walk_to_origin())["value_error"]
    rewards, values, alive = (np.asarray(part, np.float64) for part in (walks.rewards, walks.values, walks.alive))
    followed = np.cumsum(rewards[:, ::-1], axis=1)[:, ::-1]
    expected = [np.mean((one[on] - V[on]) ** 2) for one, V, on in zip(followed, values, alive > 0, strict=True)]
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


def test_a_walk_ends_where_it_stops_and_a_scan_does_not_move(walks):
    alive, actions, states = (np.asarray(part) for part in (walks.alive, walks.actions, walks.states))
    for one, taken, places in zip(alive, actions, states, strict=True):
        stops = np.flatnonzero(taken == STOP)
        last = stops[0] if len(stops) else len(taken) - 1
        assert one.sum() == last + 1
        for before, after in pairwise(range(last + 1)):
            moved = np.abs(places[after] - places[before]).sum()
            assert (moved == 0) if taken[after] in (SCAN, STOP) else (moved > 0)


def test_who_is_caught_is_in_the_hunters_cell_before_or_after_his_move(hunts):
    alive, hunters, states = (np.asarray(part) for part in (hunts.alive, hunts.publics.hunter, hunts.states))
    first = np.rint((np.asarray(hunts.inputs)[:, 0, :2] + 1) * 4 - 0.5).astype(int)
    states = np.concatenate([first[:, None], states], axis=1)
    same = (states[:, :-1] == hunters).all(axis=2) | (states[:, 1:] == hunters).all(axis=2)
    over = np.where(same.any(axis=1), same.argmax(axis=1), alive.shape[1] - 1)
    np.testing.assert_array_equal(alive.sum(axis=1), over + 1)
    np.testing.assert_array_equal(measured("chase", hunts, hunt())["caught"], same.any(axis=1))
    assert 2 < same.any(axis=1).sum() < EPISODES


def test_nearer_is_a_potential_that_adds_up_to_nothing(hunts):
    """Without it the return is γ^t for a catch at step t; with it, the potential of the beginning comes off."""
    process = hunt()
    caught, last = measured("chase", hunts, process)["caught"], np.asarray(hunts.alive).sum(axis=1) - 1
    first = np.rint((np.asarray(hunts.inputs)[:, 0, :4].reshape(-1, 2, 2) + 1) * 4 - 0.5)
    start = 0.1 * np.abs(first[:, 0] - first[:, 1]).sum(axis=1)
    end = 0.1 * np.abs(np.asarray(hunts.states)[:, -1] - np.asarray(hunts.publics.hunter)[:, -1]).sum(axis=1)
    plain = np.where(caught, process.discount**last, -end * process.discount ** (last + 1))
    np.testing.assert_allclose(measured("chase", hunts, process)["return"], plain + start, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("turned", [0, 1])
def test_a_chase_keeps_the_contract_and_a_turned_one_hears_other_directions(turned: int, key):
    process = hunt(turned=turned)
    public = process.start(key)
    environment, policy = process.step(public, jnp.int32(0))
    check_environment(environment, policy)
    state, after = jnp.asarray([3, 3]), jnp.asarray([2, 3])
    quiet = Hunting(public.grid, jnp.asarray([7, 7]), public.goal)
    odds = np.exp([float(process.environment(quiet).log_likelihood(jnp.int32(y), state, after)) for y in range(6)])
    np.testing.assert_allclose(odds.sum(), 1.0, **FLOAT)
    assert odds.argmax() == (0 if turned == 0 else 2)
    assert odds[5] == 0


def test_beliefs_of_a_chase_have_left_the_hunters_cell():
    """That he was not caught is heard; a filter that is told so gives that cell no mass."""
    process = hunt()

    class Here(MomentsView):
        def look(self, memory, environment: Any, state):
            return self.filter.belief(memory, environment).log_prob(environment.hunter)[None]

    found = acted(process, Here(nbf.ExactFilter()), 8)
    later = np.asarray(found.alive)[:, 1:]
    assert np.all(np.asarray(found.inputs)[:, 1:, 0][later] < np.log(1e-5))


def test_what_is_changed_is_changed():
    assert {name: tuple(changes) for name, changes in CHANGES.items()} == VALUE_CHANGES
    walk: Any = task("walk")
    mirrored: Any = task("walk", "beacons")
    np.testing.assert_allclose(mirrored.world.beacons, -np.asarray(walk.world.beacons))
    for name, changes in VALUE_CHANGES.items():
        for change in changes:
            public = task(name, change).start(jax.random.key(0))
            assert jax.tree.structure(public) == jax.tree.structure(task(name).start(jax.random.key(0)))


@pytest.mark.parametrize(("weight", "flees"), [(0.0, True), (0.5, True), (-1.0, False)])
def test_a_runner_moves_by_a_softmax_of_the_distance_to_the_hunter_or_a_goal(weight: float, flees: bool, key):
    """A move changes the distance by one: away is as much likelier than nearer as e^(2 weight)."""
    process = hunt(weight=weight, flees=flees)
    public, action = process.start(key), jnp.int32(2)
    policy = process.step(public, action)[1]
    point = process.after(public, action).hunter if flees else public.goal
    np.testing.assert_array_equal(policy.point, point)
    ends = point + 3 + jnp.asarray([[-1, 0], [1, 0]])
    nearer, away = np.exp(np.asarray(policy.log_probs(ends)))
    np.testing.assert_allclose(away / nearer, np.exp(2 * weight), **FLOAT)


def test_a_task_that_is_not_known_is_refused():
    with pytest.raises(InputError, match="no task 'run'"):
        ValuesJob("run")


def test_the_page_has_its_tables_and_labels_are_read_back(tmp_path):
    def record(config: str, filter: str, arm: str, particles: int, metric: str, value: float) -> Record:
        return Record("values", config, filter, arm, particles, particles, 0, ALL, metric, value, 0.1, 14)

    rows = [("state", "", 0), ("nbf", "embedding", 16), ("nbf", "embedding, trained again", 16), ("recurrent", "", 0)]
    records = [
        record(config, *row, metric, 0.5 + number)
        for number, row in enumerate(rows)
        for config in ("chase", "chase-goal")
        for metric in ("caught", "value_error")
    ]
    records.append(record("chase", "nbf", "search with V", 16, "search_return", 2.5))
    add(tmp_path, records, Run("chase/0", 0, "command", 1.0, {}))
    tables = page(tmp_path).tables
    assert set(tables) == {"values-chase", "values-error-chase", "values-search"}
    assert "| NBF (16), embedding" in tables["values-chase"]
    assert "1.50 ± 0.10" in tables["values-chase"]
    for row in rows:
        assert key_of(label(*row, "values", ("chase",)), "values") == row
