"""The crossing: what others need by hand, a problem that keeps the contract, and jobs that are recorded once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest
from extras import extra
from jobs import run_twice
from tolerances import EXACT

import nbf.testing
from nbf.errors import InputError
from nbf_paper.experiments.choices import Amount, Crossing
from nbf_paper.names import ACROBOT
from nbf_paper.records import ALL, Record, Run, add
from nbf_paper.report import crossing
from nbf_paper.report.crossing import Timed, call_cost, others_need, wins_from


def timed(filter: str, calls: int, microseconds: float, level: float) -> Timed:
    return Timed((filter, "", calls), "crossing", calls, microseconds, level, "")


NBF = timed("nbf", 32, 100.0, 2.0)
PARTICLES = [timed("pf", 100, 20.0, 3.0), timed("pf", 1600, 320.0, 1.0)]
"""Half way between their levels is half way between the logarithms of their times."""


def test_others_need_the_time_in_which_they_reach_the_level():
    ratio, sign, kind = others_need(NBF, [NBF, *PARTICLES])
    np.testing.assert_allclose(ratio, np.sqrt(20.0 * 320.0) / 100.0, **EXACT)
    assert (sign, kind) == ("", "PF")
    ratio, _, _ = others_need(NBF, PARTICLES, more=1.0)
    np.testing.assert_allclose(ratio, np.sqrt(120.0 * 1920.0) / 132.0, **EXACT)


@pytest.mark.parametrize(("level", "expected", "bound"), [(0.0, 3.2, "≥ "), (5.0, 0.2, "≤ ")])
def test_bounds_are_told(level, expected, bound):
    ratio, sign, _ = others_need(replace(NBF, level=level), PARTICLES)
    np.testing.assert_allclose(ratio, expected, **EXACT)
    assert sign == bound


def test_a_baseline_that_reaches_the_level_counts_before_a_faster_one_that_does_not():
    ratio, sign, kind = others_need(
        replace(NBF, level=0.5), [*PARTICLES, timed("pf-regularized", 500, 4000.0, 0.5)]
    )  # fmt: skip
    np.testing.assert_allclose(ratio, 40.0, **EXACT)
    assert (sign, kind) == ("", "Regularized PF")


def test_a_call_costs_what_more_particles_cost_and_a_filter_wins_from_there():
    np.testing.assert_allclose(call_cost(PARTICLES), 0.2, **EXACT)
    assert wins_from(replace(NBF, level=0.0), PARTICLES) == "here"
    assert wins_from(replace(NBF, level=5.0, calls=200), PARTICLES) == "never"
    cost = 0.2 + next(c for c in np.geomspace(1e-3, 1e6, 400) if others_need(NBF, PARTICLES, c)[0] >= 1)
    assert wins_from(NBF, PARTICLES) == f"{cost:.2g} µs"


def test_the_page_sets_scores_beside_times(tmp_path):
    folder = tmp_path / "crossing"
    rows = [("nbf", 32, 1000.0, 2.0), ("pf", 32, 500.0, 0.0), ("pf", 4096, 64000.0, 3.0)]
    records = [
        Record("crossing", ACROBOT, name, "", n, n, 0, ALL, metric, value, None, 4)
        for name, n, time, score in rows for metric, value in (("us_per_update", time), ("log_score", score))
    ]  # fmt: skip
    add(folder, records, Run("a/0", 0, "nbf-paper reproduce crossing", 1.0, {}))
    page = crossing.page(folder)
    needed = np.exp(np.interp(2.0, [0.0, 3.0], np.log([500.0, 64000.0]))) / 1000.0
    assert "Acrobot, Gymnasium" in page.tables["crossing"]
    assert f"| {needed:.2g} |" in " ".join(page.tables["crossing"].split())
    page.figures["crossing.png"]()


def test_jobs_are_scores_then_times_and_unknown_simulators_are_refused():
    extra("gymnasium", "gymnasium")
    extra("mujoco", "mujoco")
    jobs = Crossing().jobs(Amount(seeds=(0, 1)))
    assert [job.timed for job in jobs] == [False] * 2 + [True] * 4
    assert len({job.key for job in jobs}) == len(jobs)
    assert [job.timed for job in Crossing(times=False).jobs(Amount())] == [False]
    with pytest.raises(InputError, match="acrobot, touch; got 'box'"):
        Crossing(simulators=("box",)).jobs(Amount())


def test_torques_are_kept_and_starts_are_near_hanging_still(key):
    extra("gymnasium", "gymnasium")
    from nbf_paper.zoo import acrobot

    family = acrobot.Torques(acrobot.world())
    environment, torques = family.schedule(key, 6)
    found: Any = np.asarray(torques)
    assert found.shape == (6,)
    assert len(set(found[:4])) == len(set(found[4:])) == 1
    states = jax.vmap(environment.init)(jax.random.split(key, 64))
    assert np.all(np.abs(np.asarray(states)) <= acrobot.START)


@pytest.mark.slow
def test_the_acrobot_keeps_the_contract(key):
    extra("gymnasium", "gymnasium")
    from nbf_paper.zoo import acrobot

    nbf.testing.check_environment(*acrobot.Torques(acrobot.world()).sample(key)).raise_if_failed()


@pytest.mark.slow
def test_jobs_are_recorded_once(tmp_path):
    extra("gymnasium", "gymnasium")
    for job in Crossing(simulators=(ACROBOT,)).jobs(Crossing.quick):
        _, records = run_twice("crossing", job, tmp_path)
        assert all(np.isfinite(record.value) for record in records)
