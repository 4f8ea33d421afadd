"""The zoo: every problem is sound, its likelihood is normalised, its reference agrees with another way to the
posterior, and the experiment records and shows what it measures."""

from __future__ import annotations

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jobs import run_twice
from tolerances import FLOAT, monte_carlo

import nbf.testing
from nbf.environments.rollout import at_step, draw_instance, rollout
from nbf.errors import InputError
from nbf.filters.exact import ExactFilter
from nbf.filters.particle import ParticleFilter
from nbf.filters.prediction import PredictionFilter
from nbf.filters.run import run
from nbf_paper import zoo
from nbf_paper.experiments.choices import Amount, Zoo
from nbf_paper.experiments.rows import FilterRow
from nbf_paper.experiments.zoo import ZooEvaluation, ZooJob, leads
from nbf_paper.experiments.zoo_scores import UNIFORM, scores, tracks
from nbf_paper.names import ZOO, ZOO_KINDS
from nbf_paper.records import ALL, Record, Run, add
from nbf_paper.report.zoo import page
from nbf_paper.zoo.mazes import MOVES, random_maze
from nbf_paper.zoo.references.grid import circular, reflecting

NETWORKS_HOME = ("many-moded", "constrained", "discrete")


def test_half_is_for_confirmation_and_every_side_has_the_networks_home():
    assert list(ZOO) == list(zoo.PROBLEMS)
    assert {entry.kind for entry in ZOO.values()} == set(ZOO_KINDS)
    for split in ("exploration", "confirmation"):
        kinds = [entry.kind for entry in ZOO.values() if entry.split == split]
        assert len(kinds) == len(ZOO) / 2
        assert sum(kind in NETWORKS_HOME for kind in kinds) >= 2
    for name, entry in ZOO.items():
        assert f"| `{name}` |" in (zoo.__doc__ or "")
        line = next(line for line in (zoo.__doc__ or "").splitlines() if line.startswith(f"| `{name}` |"))
        assert f"| {entry.kind} | {entry.split} |" in line
    with pytest.raises(InputError, match="The zoo has no problem 'bears'; choose from clutter"):
        zoo.problem("bears")


@pytest.mark.sampled
@pytest.mark.parametrize("name", ZOO)
def test_every_environment_is_sound(name, key):
    environment, policy = zoo.problem(name).family.sample(key)
    nbf.testing.check_environment(environment, policy).raise_if_failed()


# --- likelihoods ---------------------------------------------------------------------------------

READINGS = {
    "clutter": [(-40.0, 40.0, 801), (-40.0, 40.0, 801)], "terrain": [(-8.0, 8.0, 801)],
    "volatility": [(-60.0, 60.0, 4001)], "pendulum": [(-4.0, 4.0, 801)], "bearings": [(-5.0, 5.0, 1001)],
    "ring": [(-5.0, 5.0, 801)], "switching": [(-60.0, 60.0, 1201)],
}  # fmt: skip
"""Of each problem whose reading is one or two real numbers: an axis on which it is integrated."""


def likelihoods(name, key, readings):
    """Of some readings, after the first step from a random state; in one program, since many small ones take longer."""

    @jax.jit
    def found(key, readings):
        environment, policy = zoo.problem(name).family.sample(key)
        state = environment.init(key)
        after = environment.transition(key, state, policy)
        return jnp.exp(jax.vmap(lambda reading: environment.log_likelihood(reading, state, after))(readings))

    return np.asarray(found(key, readings), np.float64)


@pytest.mark.parametrize("name", READINGS)
def test_densities_of_readings_integrate_to_one(name, key):
    axes = [np.linspace(*axis) for axis in READINGS[name]]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes)).astype(np.float32)
    density = likelihoods(name, key, points if len(axes) > 1 else points[:, 0])
    cell = np.prod([axis[1] - axis[0] for axis in axes])
    # The square of false alarms ends between two points of an axis: up to a cell along each of its sides.
    slack = 0.3 * 4 * 0.1 / 24 if name == "clutter" else 0.0
    np.testing.assert_allclose(density.sum() * cell, 1.0, rtol=0, atol=1e-3 + slack)


@pytest.mark.parametrize(("name", "count"), [("search", 2), ("mazes", 16), ("epidemic", 600)])
def test_probabilities_of_symbols_sum_to_one(name, count, key):
    np.testing.assert_allclose(likelihoods(name, key, np.arange(count)).sum(), 1.0, **FLOAT)


# --- references ----------------------------------------------------------------------------------


@functools.cache
def episode(name, steps=3):
    problem = zoo.problem(name)
    environment, policy, changing = draw_instance(problem.family, jax.random.key(3), steps)
    states, observations = rollout(jax.random.key(4), environment, policy, steps, changing=changing)
    return environment, policy, changing, states, observations


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in ZOO if ZOO[name].kind != "discrete"])
def test_the_reference_agrees_with_a_particle_filter(name):
    """Evidence and mean after a few steps, where a plain particle filter is no worse than the reference."""
    problem = zoo.problem(name)
    environment, policy, changing, _, observations = episode(name)
    first = at_step(environment, 0, changing=changing)

    def told(filter, key):
        def mean(state):
            return filter.belief(state, first).expectation(lambda x: x)

        means, info = run(filter, key, observations, environment, policy, look=mean, changing=changing)
        return means[-1], jnp.sum(info.log_evidence)

    mean, log_evidence = jax.jit(lambda key: told(problem.reference, key))(jax.random.key(1))
    keys = jax.random.split(jax.random.key(2), 8)
    means, evidences = jax.jit(jax.vmap(lambda key: told(ParticleFilter(16_384), key)))(keys)
    factor = np.exp(np.asarray(evidences) - float(log_evidence))
    noise = monte_carlo(factor.std(ddof=1), 8) + 0.03  # the reference's own cells, hypotheses or particles
    np.testing.assert_allclose(factor.mean(), 1.0, rtol=0, atol=noise)
    scale = np.asarray(first.space.scale)
    apart = np.abs(np.asarray(means).mean(axis=0) - np.asarray(mean)) / scale
    assert np.all(apart <= monte_carlo(np.asarray(means).std(axis=0, ddof=1) / scale, 8) + 0.02)


@pytest.mark.sampled
@pytest.mark.parametrize("name", [name for name in ZOO if ZOO[name].kind != "discrete"])
def test_the_density_of_a_reference_is_that_of_its_samples(name):
    """E[u/p] over its samples is the volume of u, for the indicator u of a box around the true state."""
    problem = zoo.problem(name)
    environment, policy, changing, _, observations = episode(name)
    reference, last = problem.reference, at_step(environment, 2, changing=changing)
    if hasattr(reference, "num_particles"):
        reference = replace(reference, num_particles=8192)

    @jax.jit
    def inverse(key):
        found, _ = run(reference, key, observations, environment, policy, changing=changing)
        belief = reference.belief(jax.tree.map(lambda leaf: leaf[-1], found), last)
        drawn = belief.sample(key, 1024)
        low, high = jnp.quantile(drawn, 0.3, axis=0), jnp.quantile(drawn, 0.7, axis=0)
        inside = jnp.all((drawn >= low) & (drawn <= high), axis=1)
        volume = jnp.prod(high - low)
        return jnp.where(inside, jnp.exp(-belief.log_probs(drawn)), 0.0) / volume, jnp.isnan(belief.log_probs(drawn))

    found, broken = (np.asarray(value) for value in inverse(jax.random.key(5)))
    assert not broken.any()
    # Thin rings fill little of a box of quantiles; nothing can fill more than all of it.
    assert found.mean() <= 1.0 + monte_carlo(found.std(), len(found)) + 0.1
    if name not in ("ring", "terrain", "rooms", "switching"):
        np.testing.assert_allclose(found.mean(), 1.0, rtol=0, atol=monte_carlo(found.std(), len(found)) + 0.1)


@pytest.mark.parametrize("matrix", [reflecting, circular])
def test_moves_on_a_grid_keep_the_mass_and_the_moments(matrix):
    moves = np.asarray(jax.jit(matrix, static_argnums=0)(60, 3.25, 2.0))
    np.testing.assert_allclose(moves.sum(axis=1), 1.0, **FLOAT)
    offset = np.arange(60) - 30
    np.testing.assert_allclose(moves[30] @ offset, 3.25, rtol=0, atol=1e-3)
    # Sheppard: cells add 1/12 to the variance, the four starts within a cell 5/64.
    np.testing.assert_allclose(moves[30] @ (offset - 3.25) ** 2, 4.0 + 1 / 12 + 5 / 64, rtol=1e-3)


def test_a_maze_is_connected_and_its_walls_have_two_sides(key):
    sides = np.asarray(jax.jit(random_maze)(key)).reshape(8, 8, 4)
    np.testing.assert_array_equal(sides[1:, :, 0], sides[:-1, :, 1])
    np.testing.assert_array_equal(sides[:, 1:, 2], sides[:, :-1, 3])
    assert not any(outside.any() for outside in (sides[0, :, 0], sides[-1, :, 1], sides[:, 0, 2], sides[:, -1, 3]))
    reached, todo = {(0, 0)}, [(0, 0)]
    while todo:
        cell = todo.pop()
        ends = {tuple(cell + move) for move, opened in zip(MOVES, sides[cell], strict=True) if opened}
        todo += ends - reached
        reached |= ends
    assert len(reached) == 64


# --- the experiment ------------------------------------------------------------------------------


def test_the_exact_filter_has_no_distance_and_the_prior_knows_no_more_than_chance(key):
    problem = zoo.problem("search")
    keys = jax.random.split(key, 3)
    found = tracks(problem.family, problem.reference, 4, 8, keys)
    exact = scores(ExactFilter(), 8, keys, found)
    prior = scores(PredictionFilter(ExactFilter()), 8, keys, found)
    assert exact["js"].shape == exact["log_score"].shape == (3, 4)
    assert np.max(exact["js"]) < 1e-6
    np.testing.assert_allclose(prior["log_score"], -np.log(576), **FLOAT)
    # A filter of one wrong particle has only what is mixed in.
    worst = np.asarray(scores(ParticleFilter(1), 8, keys, found)["log_score"])
    np.testing.assert_allclose(worst.min(), np.log(UNIFORM / 576), **FLOAT)


def test_options_and_settings_have_stable_names():
    jobs = Zoo(problems=("search", "ring")).jobs(Amount(seeds=(0, 1), steps=7, episodes=5))
    assert [job.label for job in jobs] == ["search/0", "search/1", "ring/0", "ring/1"]
    assert jobs[0].settings["training"] == {"fit": "defaults", "steps": 7}
    assert jobs[0].settings["evaluation"]["episodes"] == 5
    assert jobs[0].settings["problem"] == "search"
    assert [job.label for job in Zoo().jobs(Zoo.quick)] == ["search/0", "volatility/0"]
    assert [job.label for job in Zoo().jobs(Amount())] == [f"{name}/0" for name in ZOO]
    with pytest.raises(InputError, match="no problem 'bears'"):
        Zoo(problems=("bears",)).jobs(Amount())
    with pytest.raises(InputError, match=r"episodes and samples must be at least 2; got episodes=1"):
        ZooEvaluation(episodes=1)


def test_the_page_has_two_tables_for_each_kind_that_was_measured(tmp_path):
    for config, seed in (("search", 0), ("search", 1), ("terrain", 0), ("rooms", 0)):
        distance = "js" if config == "search" else "energy"
        rows = [("prior", "", 0), ("approx", "", 0), ("nbf", "", 32), ("nbf", "untrained", 32), ("reference", "", 0)]
        found = [
            Record("zoo", config, *row[:2], row[2], row[2], seed, ALL, metric, value, 0.1, 10)
            for row in rows
            for metric, value in (("log_score", -3.0), (distance, 0.25))
        ]
        add(tmp_path, found, Run(f"{config}/{seed}", seed, "nbf-paper reproduce zoo", 1.0, {}))
    shown = page(tmp_path)
    assert list(shown.tables) == [
        "zoo-summary", "zoo-many-moded", "zoo-many-moded-distance", "zoo-discrete", "zoo-discrete-distance",
    ]  # fmt: skip
    assert set(shown.tables) == shown.captions.keys()
    assert "terrain for exploration; rooms for confirmation" in shown.captions["zoo-many-moded"]
    labels = [line.split("|")[1].strip() for line in shown.tables["zoo-discrete"].splitlines()[2:7]]
    assert labels == ["Reference", "Approx Beliefs, fitted", "NBF (32), fitted", "NBF (32), untrained", "Prior"]
    assert "-3.00 ± 0.07" in shown.tables["zoo-discrete"]


@pytest.mark.parametrize(
    ("prior", "without", "untrained", "ours", "said"),
    [
        (-6.0, -5.0, -5.5, -4.0, ("+2.00", "50%")),  # of two nats over the prior, one is over the best without
        (-6.0, -3.0, -5.5, -4.0, ("+2.00", "0%")),
        (-6.0, -9.0, -8.0, -4.0, ("+2.00", "100%")),  # what is below the prior is no help
        (-4.0, -9.0, -8.0, -5.0, ("-1.00", "–")),
    ],
)
def test_the_networks_share_of_the_gain(prior, without, untrained, ours, said, tmp_path):
    scores = {
        ("prior", "", 0): prior, ("branching", "", 32): without, ("nbf", "untrained", 32): untrained,
        ("nbf", "", 32): ours,
    }  # fmt: skip
    found = [
        Record("zoo", "search", *row[:2], row[2], row[2], 0, ALL, metric, value, 0.1, 10)
        for row, value in scores.items()
        for metric in ("log_score", "js")
    ]
    add(tmp_path, found, Run("search/0", 0, "nbf-paper reproduce zoo", 1.0, {}))
    line = page(tmp_path).tables["zoo-summary"].splitlines()[2]
    assert tuple(cell.strip() for cell in line.split("|")[-3:-1]) == said


def test_a_lead_is_a_mean_of_differences_with_their_error():
    """Two filters that fail on the same episodes differ by little, however far the episodes are apart."""
    episodes, job = np.arange(10.0), ZooJob("search", 0, 20, ZooEvaluation(episodes=10))
    told = {
        ("nbf", "", 16): episodes + np.tile([1.0, 2.0], 5), ("branching", "", 16): episodes, ("prior", "", 0): -episodes
    }  # fmt: skip
    row = FilterRow(PredictionFilter(ExactFilter()), "nbf", "", 16, 16)
    found = {record.metric: record for record in leads(job, row, told)}
    assert set(found) == {"lead_over_equal_calls", "lead_over_prior"}
    equal = found["lead_over_equal_calls"]
    assert (equal.value, equal.se) == pytest.approx((1.5, np.std([1.0, 2.0] * 5, ddof=1) / np.sqrt(10)))
    assert found["lead_over_prior"].value == pytest.approx(np.mean(2 * episodes) + 1.5)
    assert not list(leads(job, replace(row, arm="untrained"), told))


def test_leads_have_a_table(tmp_path):
    for seed, value in ((0, 0.5), (1, 1.0)):
        found = [
            Record("zoo", "search", "nbf", "", n, n, seed, ALL, metric, value, 0.2, 10)
            for n in (16, 32)
            for metric in ("log_score", "js", "lead_over_equal_calls", "lead_over_prior")
        ]
        add(tmp_path / "zoo", found, Run(f"search/{seed}", seed, "nbf-paper reproduce zoo", 1.0, {}))
    shown = page(tmp_path / "zoo").tables["zoo-leads"]
    heads, line = (shown.splitlines()[place].split("|") for place in (0, 2))
    cells = {head.strip(): cell.strip() for head, cell in zip(heads, line, strict=True)}
    assert cells["NBF (16), fitted, over no network"] == cells["NBF (32), fitted, over the prior"] == "0.75 ± 0.25"
    assert cells["NBF (512), fitted, over no network"] == cells["NBF (32), fitted, over PF (1024)"] == "–"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["search", "volatility"])
def test_a_job_end_to_end(name, tmp_path):
    few = ZooEvaluation(
        episodes=2, samples=8, particle_filters=(32,), regularized_filters=(16,), branching_filters=(16,),
        neural_filters=(16,), untrained_filters=(16,), approx_samples=8,
    )  # fmt: skip
    _, records = run_twice("zoo", ZooJob(name, 0, 20, few), tmp_path)
    baseline = "pf-regularized" if name == "volatility" else "branching"
    assert {record.row for record in records} == {
        ("reference", "", 0), ("prior", "", 0), ("pf", "", 32), (baseline, "", 16), ("nbf", "", 16),
        ("nbf", "untrained", 16), ("approx", "", 0),
    }  # fmt: skip
    assert {record.step for record in records} == {ALL, 40}
    assert {record.metric for record in records if record.metric.startswith("lead_")} == {
        "lead_over_equal_calls", "lead_over_prior", "lead_over_ceiling",
    }  # fmt: skip
