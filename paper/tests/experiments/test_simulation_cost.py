"""Time of an update with a simulator that costs: the slow simulator, what is timed, and where curves cross."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constructors import small_grid
from tolerances import FLOAT

from nbf.environments.rollout import rollout
from nbf.environments.triangulation import TriangulationFamily
from nbf.errors import InputError
from nbf.filters.branching import BranchingFilter
from nbf.filters.neural import NeuralBayesianFilter
from nbf.filters.particle import ParticleFilter
from nbf.models.tabular import TabularModel
from nbf.spaces import Lattice
from nbf_paper.experiments import beyond, simulation_cost, slow_simulator
from nbf_paper.experiments.rows import FilterRow
from nbf_paper.experiments.simulation_cost import (
    SimulationCostJob,
    TimedFilter,
    medians,
    recorded_filters,
)
from nbf_paper.experiments.slow_simulator import busy, slow
from nbf_paper.experiments.timed_domains import Domain, Step, timed_domain
from nbf_paper.names import TIMED_CONFIGS
from nbf_paper.records import ALL, Record, Run, add, read_records
from nbf_paper.report import simulation_cost as report
from nbf_paper.report.simulation_cost import Point, baseline_js, break_even


class Bar:
    def __init__(self) -> None:
        self.done = 0

    def describe(self, text: str) -> None: ...
    def advance(self, done: int) -> None:
        self.done += done


roll_out = jax.jit(rollout, static_argnums=3)


def neural(n):
    return NeuralBayesianFilter(TabularModel(Lattice((3, 3))), n)


def steps(key) -> list[Step]:
    environment, policy = small_grid()
    _, observations = roll_out(key, environment, policy, 2)
    return [(np.asarray(symbol), environment, policy) for symbol in observations]


def filter_rows(arm, model):
    rows = [FilterRow(neural(4), "nbf", arm, 4, 4)]
    return rows + ([FilterRow(ParticleFilter(4), "pf", "", 4, 4)] if arm == "faithful" else [])


def untrained(arm, runs) -> Any:
    """No model: the filters bring their own."""
    return None, False


SMALL = Domain("gridworld", "8-3D-random", "gridworld --config 8-3D-random", untrained, filter_rows, steps)


def js(filter, arm, n, value, calls=None):
    return Record("gridworld", "8-3D-random", filter, arm, n, calls or n, 0, ALL, "js", value, 0.01, 10)


@pytest.fixture
def calls(monkeypatch):
    """What each call of a slow simulator was asked to cost; none of them takes any time here."""
    made: list[float] = []
    monkeypatch.setattr(slow_simulator, "busy", made.append)
    return made


@pytest.mark.sampled
@pytest.mark.parametrize("filter", [ParticleFilter(4), neural(4), neural(8)], ids=["pf", "nbf", "branches"])
def test_every_particle_of_an_update_is_one_call(filter, calls):
    environment, policy = small_grid()
    walk = TimedFilter(filter, [(np.asarray(0), slow(environment, 100.0), policy)], jax.random.key(0))
    for update in range(1, 4):
        walk()
        assert calls == [100.0] * (update * filter.num_particles)


def test_a_branch_of_the_successors_is_a_call(calls):
    """4 branches of each of 9 states."""
    environment, policy = small_grid()
    listed: Any = slow(environment, 7.0)
    ends, log_probs = jax.jit(jax.vmap(listed.successors, (0, None)))(listed.states(), policy)
    jax.block_until_ready(ends)
    assert calls == [7.0] * (9 * 4)
    wanted = jax.jit(jax.vmap(environment.successors, (0, None)))(environment.states(), policy)
    np.testing.assert_array_equal(ends, wanted[0])
    np.testing.assert_array_equal(log_probs, wanted[1])


def test_a_call_keeps_the_processor_busy_as_long_as_it_says():
    begin = time.perf_counter()
    busy(2000.0)
    assert time.perf_counter() - begin >= 2e-3


def test_a_slow_simulator_simulates_the_same(key, calls):
    """The same filter on the same observation, with and without: the same particles. An environment that is only
    simulated can be slow too."""
    filter = ParticleFilter(4)
    begin = eqx.filter_jit(filter.init)
    worlds = (small_grid(), np.int32(1)), (TriangulationFamily().sample(key), np.float32(0))
    for (environment, policy), seen in worlds:
        start = begin(key, environment)
        plain, _ = filter.step(key, start, seen, environment, policy)
        slowly, _ = filter.step(key, start, seen, slow(environment, 100.0), policy)
        np.testing.assert_array_equal(plain.states, slowly.states)
        np.testing.assert_allclose(plain.log_weights, slowly.log_weights, **FLOAT)
    assert calls == [100.0] * 8


def test_filters_take_turns_and_compilation_does_not_count():
    calls: list[str] = []

    def walk(name, times):
        found = iter(times)
        return lambda: calls.append(name) or next(found)

    bar = Bar()
    walks = {"a": walk("a", [1e9] + [1.0] * 20), "b": walk("b", [1e9] + [2.0] * 20)}
    assert medians(walks, 20, bar) == {"a": 1.0, "b": 2.0}
    assert calls[:6] == ["a", "b", "a", "a", "b", "b"]
    assert bar.done == 20


@pytest.fixture
def recordings(tmp_path, monkeypatch):
    """A folder with divergences of a small domain, under the name of a real one."""
    monkeypatch.setattr(simulation_cost, "timed_domain", lambda config: SMALL)
    monkeypatch.setattr(beyond, "filter_rows", lambda config, model: filter_rows("default", model))
    chosen = FilterRow(BranchingFilter(4), "branching", "branches chosen", 4, 4)
    monkeypatch.setattr(beyond, "baseline_rows", lambda config: [chosen])
    found = [js("nbf", "faithful", 4, 0.1), js("pf", "", 4, 0.2)]
    add(tmp_path / "gridworld", found, Run("a", 0, "a test", 0.0, {}))
    return tmp_path


def run(folder, job=None):
    job = job or SimulationCostJob("8-3D-random", updates=2, slow=(100,))
    return job.run(folder / "simulation-cost", folder, command="a test", bar=Bar())


def test_what_has_records_is_timed_once_and_a_new_arm_by_itself(recordings):
    assert run(recordings)
    assert not run(recordings)
    arms = ("nbf", "default"), ("nbf", "alone"), ("branching", "branches chosen"), ("branching", "")
    add(recordings / "beyond", [js(filter, arm, 4, 0.05) for filter, arm in arms], Run("b", 0, "a", 0.0, {}))
    assert run(recordings)
    assert not run(recordings)
    found = read_records(recordings / "simulation-cost")
    rows = {
        ("nbf", "faithful", 4, 4),
        ("nbf", "default", 4, 4),
        ("pf", "", 4, 4),
        ("branching", "branches chosen", 4, 4),
    }
    for metric in ("us_per_update", "us_per_update_100us"):
        assert {(e.filter, e.arm, e.particles, e.calls) for e in found if e.metric == metric} == rows
    page = report.page(recordings / "simulation-cost")
    page.figures["simulation-cost.png"]()
    assert "NBF (4), wide softmax, default update" in page.tables["simulation-cost"]
    assert "PF (4)" in page.tables["simulation-cost-check"]


def test_a_filter_that_nobody_makes_is_named(recordings):
    add(recordings / "gridworld", [js("pf", "", 7, 0.1)], Run("b", 0, "a test", 0.0, {}))
    with pytest.raises(InputError, match=r"\('pf', '', 7\).*nbf-paper reproduce gridworld --config 8-3D-random"):
        run(recordings)


def test_a_model_that_only_redraws_is_not_timed(recordings, monkeypatch):
    """Its redraws are no part of what a trained one takes."""
    monkeypatch.setattr(TimedFilter, "__call__", lambda walk: setattr(walk, "attempts", 5) or 1.0)
    with pytest.raises(InputError, match=r"\('nbf', 'faithful', 4\).*up to 5 redraws.*--arm faithful"):
        run(recordings)


def test_a_trained_model_is_timed_with_its_redraws(recordings, monkeypatch):
    monkeypatch.setattr(TimedFilter, "__call__", lambda walk: setattr(walk, "attempts", 5) or 1.0)
    monkeypatch.setattr(simulation_cost, "timed_domain", lambda config: replace(SMALL, model=lambda *_: (None, True)))
    assert run(recordings)


def test_missing_divergences_are_asked_for(tmp_path):
    for config, command in (("8-3D-random", "gridworld"), ("triangulation", "triangulation"), ("k=6", "goofspiel")):
        with pytest.raises(InputError, match=rf"nbf-paper reproduce {command}.*--config"):
            recorded_filters(tmp_path, timed_domain(config))
    with pytest.raises(InputError, match="no Gridworld configuration 'chess'"):
        SimulationCostJob("chess")
    with pytest.raises(InputError, match="updates must be at least 1; got 0"):
        SimulationCostJob(updates=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", TIMED_CONFIGS)
def test_a_domain_has_an_episode_and_every_paper_filter(name, key, tmp_path):
    domain = timed_domain(name)
    model, trained = domain.model("faithful", tmp_path)
    assert not trained
    rows = {(row.name, row.particles) for row in domain.filter_rows("faithful", model)}
    assert {filter for filter, _ in rows} >= {"nbf", "pf"}
    observation, environment, policy = domain.steps(key)[-1]
    environment.check_observation(observation)
    filter = ParticleFilter(4)
    state, info = filter.step(key, filter.init(key, environment), observation, environment, policy)
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves((state.states, info.ess)))


# --- where curves cross --------------------------------------------------------------------------

BASELINES = [Point(("pf", "", n), 1.0 / n, 0.0, 100.0 + n, n) for n in (32, 64, 128)]
"""JS 1/n, so that on both logarithms nothing is lost between the points; 100 + n µs."""


def own(js, microseconds, calls):
    return Point(("nbf", "faithful", calls), js, 0.0, microseconds, calls)


def test_break_even_is_where_both_take_the_same_time():
    """PF(100) has the same JS, 200 µs and 100 calls: 600 + 20 c = 200 + 100 c at c = 5."""
    assert break_even(own(0.01, 600.0, 20), BASELINES) == "5 µs"
    baseline = Point(("pf", "", 100), 0.01, 0.0, 200.0, 100)
    assert own(0.01, 600.0, 20).time(5.0) == baseline.time(5.0)


def test_a_filter_that_wins_without_any_cost_or_never():
    assert break_even(own(0.01, 150.0, 20), BASELINES) == "0"
    assert break_even(own(1 / 40, 600.0, 64), BASELINES) == "never"


def test_beyond_the_recorded_filters_there_are_bounds():
    """Better than PF(128), of 228 µs: 628 + 28 c < 228 + 128 c from c = 4 at the latest. Worse than PF(32), of 132 µs:
    452 + 16 c > 132 + 32 c up to c = 20 at least."""
    assert break_even(own(0.001, 628.0, 28), BASELINES) == "≤ 4 µs"
    assert break_even(own(0.9, 452.0, 16), BASELINES) == "≥ 20 µs"
    assert break_even(own(0.9, 452.0, 32), BASELINES) == "never"
    assert break_even(own(0.9, 452.0, 32), []) == "–"


def test_break_even_agrees_with_a_search_over_costs():
    """The least cost of a fine grid at which no better baseline is as fast, where baselines of every n are listed."""
    counts, costs = np.arange(32, 129), np.arange(0.0, 40.0, 0.01)[:, None]
    as_good = counts > 90
    wins = np.all((100.0 + counts + counts * costs > 900.0 + 32 * costs) | ~as_good, axis=1)
    exact, later = (900.0 - 190.0) / (90 - 32), (900.0 - 191.0) / (91 - 32)  # of the baseline that is next, and better
    assert later - 0.01 <= costs[np.argmax(wins), 0] <= exact
    assert break_even(own(1 / 90, 900.0, 32), BASELINES) == f"{exact:.3g} µs"


# --- for the same price --------------------------------------------------------------------------


def test_a_baseline_of_the_same_price_lies_between_those_on_record():
    """JS is 1/n, a straight line on both logarithms: 48 calls give 1/48. Prices beyond the record give bounds."""
    assert baseline_js(BASELINES, lambda point: point.calls, 48.0) == f"{1 / 48:.3f}"
    assert baseline_js(BASELINES, lambda point: point.microseconds, 228.0) == f"{1 / 128:.3f}"
    assert baseline_js(BASELINES, lambda point: point.microseconds, 500.0) == f"≤ {1 / 128:.3f}"
    assert baseline_js(BASELINES, lambda point: point.calls, 16.0) == f"≥ {1 / 32:.3f}"
    assert baseline_js([], lambda point: point.calls, 16.0) == "–"


def test_the_table_of_equal_prices_has_the_baselines_of_the_domain():
    smooth = [Point(("pf-kde", "", 32), 0.3, 0.0, 300.0, 32), Point(("pf-kde", "", 64), 0.2, 0.0, 400.0, 64)]
    found = {"triangulation": [own(0.1, 350.0, 32), *BASELINES, *smooth]}
    line = report.equal_table(found).splitlines()[-1]
    cells = ["32", "350", "0.100", "0.300", "0.241", "–", "–"]
    assert [cell.strip() for cell in line.split("|")[3:-1]] == cells


def test_a_baseline_that_is_exact_is_told_as_zero_and_reached_from_what_is_all_but_that():
    """From 0.05 at 10 calls down to nothing at 1000, for which 0.0004 stands."""
    exact = [Point(("branching", "branches chosen", n), js, 0.0, float(n), n) for n, js in ((10, 0.05), (1000, 0.0))]
    assert baseline_js(exact, lambda point: point.calls, 1000.0) == "0.000"
    assert baseline_js(exact, lambda point: point.calls, 100.0) == f"{(0.05 * 0.0004) ** 0.5:.3f}"
    assert break_even(own(0.0, 2010.0, 10), exact) == f"{1010 / 990:.3g} µs"
