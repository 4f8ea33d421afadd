"""Goofspiel compared over lumped states: beliefs as tables, the prior, the jobs end to end, and the page."""

from __future__ import annotations

import collections
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from card_games import SMALL, episodes, network_pool, tracked
from jobs import drawn, run_twice
from tolerances import FLOAT

from nbf.beliefs.lumped import LumpedState, place
from nbf.beliefs.particles import ParticleBelief
from nbf.environments.goofspiel_family import GoofspielFamily
from nbf.environments.goofspiel_game import UniformPolicy
from nbf.errors import InputError
from nbf.filters.lumped import LumpedFilter
from nbf.filters.prediction import PredictionFilter
from nbf_paper.experiments.choices import Amount, Goofspiel, GoofspielLarge
from nbf_paper.experiments.goofspiel_large import LargeEvaluation, LargeGoofspielJob
from nbf_paper.experiments.goofspiel_lumped import LumpedJob
from nbf_paper.experiments.lumped_games import lumped_masses
from nbf_paper.experiments.selfplay import SelfPlayConfig
from nbf_paper.records import ALL, Record, Run, add
from nbf_paper.report.goofspiel_large import page

TINY = SelfPlayConfig(cards=4, runs=2, checkpoints=2, timesteps=64, epochs=1, width=8, depth=1)


@functools.cache
def games():
    return episodes(GoofspielFamily(network_pool(4), SMALL), jax.random.split(jax.random.key(2), 5))


def test_particles_count_as_their_histogram_whatever_the_order_of_bids():
    rng = np.random.default_rng(3)
    states = np.asarray([[*rng.permutation(4)[:3], 4] for _ in range(50)], np.int32)
    weights = rng.exponential(size=50)
    counts = collections.Counter()
    for (missing, *bids, _), weight in zip(states.tolist(), weights / weights.sum(), strict=True):
        counts[missing, frozenset(bids)] += weight
    environment = jax.tree.map(lambda leaf: leaf[0, 0], games()[0])
    found = jax.jit(lumped_masses)(ParticleBelief(jnp.asarray(states), jnp.log(weights)), environment)
    assert len(counts) < len({tuple(state) for state in states.tolist()})
    for (missing, bids), weight in counts.items():
        lumped = LumpedState(jnp.int32(missing), jnp.asarray(np.isin(np.arange(4), list(bids))))
        np.testing.assert_allclose(found[place(lumped, first=True)], weight, **FLOAT)
    np.testing.assert_allclose(np.sum(found), 1.0, **FLOAT)


def test_the_prior_sees_no_outcome():
    """Of an opponent that bids anything with the same probability, every missing card and set of bids is as likely as
    any other, whatever the outcomes were."""
    environments, _, observations, _ = games()
    found, info = tracked(PredictionFilter(LumpedFilter()), environments, UniformPolicy(), observations)
    assert not np.any(info.recovered)
    for time, count in enumerate((4 * 3, 4 * 3, 4 * 1)):
        masses = np.asarray(found.masses)[:, time]
        assert np.all(np.sum(masses > 0, axis=(1, 2)) == count)
        np.testing.assert_allclose(masses[masses > 0], 1 / count, **FLOAT)


@pytest.mark.slow
def test_particle_filters_against_the_lumped_filter(tmp_path):
    job = LargeGoofspielJob(TINY, evaluation=LargeEvaluation(episodes=4, particle_filters=(8, 64)))
    folder, records = run_twice("goofspiel-large", job, tmp_path)
    means = [record for record in records if record.step == ALL]
    js = {(record.filter, record.particles): record.value for record in means if record.metric == "js"}
    assert js["exact-lumped", 0] < 1e-6
    assert js["pf", 64] < js["pf", 8]
    assert js["prior", 0] > js["pf", 64]
    assert {record.calls for record in records if record.filter == "exact-lumped"} == {6}
    assert sum(record.metric == "js" for record in records) == 4 * (1 + 3)
    assert sum(record.metric == "us_per_update" for record in records) == 4
    assert not drawn("goofspiel-large", folder).figures


@pytest.mark.slow
def test_the_arm_without_a_model(tmp_path):
    """The lumped filter is the exact posterior over sequences, summed over the orders of bids."""
    folder, records = run_twice("goofspiel", LumpedJob(4, episodes=4, selfplay=TINY), tmp_path)
    assert {(record.config, record.filter, record.calls) for record in records} == {
        ("k=4", "exact-lumped", 6), ("k=4-run", "exact-lumped", 6),
    }  # fmt: skip
    assert max(record.value for record in records if record.metric == "js") < 1e-6
    page = drawn("goofspiel", folder)
    assert "Exact, lumped" in page.tables["goofspiel"]
    assert "Exact, lumped" in page.tables["goofspiel-time"]


def test_the_page_has_calls_and_times_in_the_order_of_cards(tmp_path):
    for cards, seed in ((10, 0), (10, 1), (9, 0)):
        head = ("goofspiel-large", f"k={cards}")
        exact, particles = (*head, "exact-lumped", "", 0, 126 * (cards - 8), seed), (*head, "pf", "", 64, 64, seed)
        numbers = ((exact, "js", 0.0), (exact, "us_per_update", 500.0), (particles, "js", 0.25))
        found = [Record(*series, ALL, metric, number, None, 100) for series, metric, number in numbers]
        add(tmp_path, found, Run(f"k={cards}/{seed}", seed, "nbf-paper reproduce goofspiel-large", 1.0, {}))
    shown = page(tmp_path)
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in shown.tables["goofspiel-large"].splitlines()]
    assert lines[0] == ["Filter", "Calls", "k=9", "k=10"]
    assert lines[2] == ["Exact, lumped", "126–252", "0.000", "0.000 ± 0.000"]
    assert lines[3] == ["PF (64)", "64", "0.250", "0.250 ± 0.000"]
    assert "500" in shown.tables["goofspiel-large-time"]
    assert set(shown.tables) <= shown.captions.keys()


def test_options_are_in_the_settings_and_bad_ones_refused():
    (job,) = GoofspielLarge(cards=(9,), checkpoints=5).jobs(Amount(episodes=7))
    assert job.settings["policies"]["checkpoints"] == 5
    assert job.settings["environment"]["cards"] == 9
    assert job.settings["evaluation"]["episodes"] == 7
    with pytest.raises(InputError, match=r"cards must be 3 to 13, for lumped states that are listed; got 14"):
        GoofspielLarge(cards=(14,)).jobs(Amount())
    with pytest.raises(InputError, match=r"--checkpoints must be at least 1; got 0"):
        GoofspielLarge(checkpoints=0).jobs(Amount())
    with pytest.raises(InputError, match=r"cards must be 3 to 8.*got 9"):
        Goofspiel(cards=(9,), arm=("lumped",)).jobs(Amount())
    with pytest.raises(InputError, match=r"policies are for 5 cards, the game has 4"):
        LumpedJob(4, selfplay=SelfPlayConfig(cards=5))
    with pytest.raises(InputError, match=r"episodes must be at least 2; got 1"):
        LargeEvaluation(episodes=1)
