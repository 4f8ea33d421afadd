"""The recordings of Plaza: tables of a drive that is known become episodes that lead from truth to truth, the simulator
is what the grid of the reference predicts, and files that are not recordings are refused."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.io
from tolerances import FLOAT, monte_carlo

import nbf.testing
from nbf.environments.rollout import rollout
from nbf.errors import InputError, MissingExtraError
from nbf_paper.audit.meaning import key_of
from nbf_paper.experiments.choices import Amount, Plaza
from nbf_paper.experiments.plaza import PlazaJob
from nbf_paper.names import SITES
from nbf_paper.records import ALL, Record, Run, add
from nbf_paper.report.labels import label
from nbf_paper.report.plaza import page
from nbf_paper.zoo import plaza
from nbf_paper.zoo.plaza_recordings import SECONDS, episodes, read_tables, recordings

BEACONS = np.array([[3, 60.0, 20.0], [5, 10.0, 50.0], [6, 30.0, 80.0], [9, 20.0, 30.0]])
"""Their middle is (30, 45)."""


def drive(*, reversed_heading=False, gap=None, seconds=100.0):
    """Tables of a robot on a circle of 10 m around the beacons' middle, whose readings are exact."""
    times = np.arange(0.0, seconds, 0.1)
    turned = 0.1 * times
    place = np.array([30.0, 45.0]) + 10 * np.column_stack([np.cos(turned), np.sin(turned)])
    heading = turned + np.pi / 2
    wheels = np.column_stack([times[1:], np.full(len(times) - 1, 0.1), np.full(len(times) - 1, 0.01)])
    heard = np.arange(0.05, seconds - 0.2, 0.4)
    if gap is not None:
        heard = heard[(heard < gap) | (heard > gap + 5)]
    beacon = BEACONS[np.arange(len(heard)) % 4]
    at = np.column_stack([np.interp(heard, times, place[:, axis]) for axis in (0, 1)])
    reading = np.hypot(*(at - beacon[:, 1:]).T)
    truth = np.column_stack([times, place, heading + (np.pi if reversed_heading else 0.0)])
    tables = {"GT": truth, "DR": wheels, "TL": BEACONS}
    return tables | {"TD": np.column_stack([heard, np.ones(len(heard)), beacon[:, 0], reading])}


@pytest.mark.parametrize("reversed_heading", [False, True])
def test_every_step_leads_from_truth_to_truth(reversed_heading):
    found = episodes(drive(reversed_heading=reversed_heading))
    states, drives = np.asarray(found.states), np.asarray(found.drives)
    assert len(states) == 3  # 100 s, a step of 1.2 s, 25 steps
    # On a circle of 10 m: a drive of 1.2 m along the heading of its middle ends 0.7 mm from the arc.
    heading = states[:, :-1, 2] + drives[:, 1:, 1]
    moved = states[:, :-1, :2] + drives[:, 1:, :1] * np.stack([np.cos(heading), np.sin(heading)], axis=-1)
    np.testing.assert_allclose(moved, states[:, 1:, :2], rtol=0, atol=0.01)
    np.testing.assert_allclose(np.cos(heading - states[:, 1:, 2]), 1.0, **FLOAT)
    np.testing.assert_allclose(np.hypot(*np.moveaxis(states[..., :2], -1, 0)), 10.0, rtol=0, atol=0.01)


def test_readings_are_distances_to_the_beacon_of_the_step_and_a_second_apart():
    found = episodes(drive())
    states, where = np.asarray(found.states), np.asarray(found.environment.parameters)
    distance = np.hypot(*np.moveaxis(states[..., :2] - where, -1, 0))
    np.testing.assert_allclose(np.asarray(found.readings), distance, rtol=0, atol=0.01)
    np.testing.assert_allclose(np.asarray(found.drives)[..., 0], 1.2, rtol=0, atol=1e-3)
    assert SECONDS <= 1.2


def test_no_episode_has_a_gap():
    gap = 40.0
    found = episodes(drive(gap=gap))
    assert len(found.states) == 2
    assert np.max(np.asarray(found.drives)[..., 0]) < 2.0
    with pytest.raises(InputError, match="25 readings in a row"):
        episodes(drive(seconds=20.0))
    far = drive()
    far["GT"][:, 1] += 60.0
    with pytest.raises(InputError, match="within 48 m"):
        episodes(far)


def test_files_that_are_no_recordings_are_refused(tmp_path):
    good = tmp_path / "good.mat"
    scipy.io.savemat(good, drive())
    np.testing.assert_array_equal(read_tables(good)["TL"], BEACONS)
    for name, content in {
        "text.mat": b"not a table" * 40,
        "empty.mat": b"",
        "cut.mat": good.read_bytes()[:200],
    }.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match="is not a recording of Plaza"):
            read_tables(tmp_path / name)
    wrong = drive()
    wrong["TD"] = wrong["TD"][:, :3]
    scipy.io.savemat(tmp_path / "short.mat", wrong)
    with pytest.raises(InputError, match="no table TD of 4 columns"):
        read_tables(tmp_path / "short.mat")
    with pytest.raises(InputError, match="There is no file"):
        read_tables(tmp_path / "none.mat")


def test_without_the_package_its_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'nbf-paper\[plaza\]'"):
        PlazaJob("plaza-1").check(tmp_path)
    with pytest.raises(InputError, match="The recordings are of plaza-1 and plaza-2; got 'plaza-3'"):
        PlazaJob("plaza-3")


def test_recordings_are_read_from_the_packages_folder(monkeypatch, tmp_path):
    (tmp_path / "Data").mkdir()
    scipy.io.savemat(tmp_path / "Data" / "Plaza2_.mat", drive())
    installed = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: installed)
    assert recordings("plaza-2").states.shape == (3, 25, 3)
    job = PlazaJob("plaza-2")
    seen = []
    monkeypatch.setattr("nbf_paper.experiments.plaza.with_truth", lambda *given: seen.append(given) or given[-1])
    found = job.episodes_of(job.asked, 8, 25)
    assert len(found.keys) == 3
    assert found.environment.space == plaza.world().space


def test_sites_share_the_model_of_a_seed(tmp_path):
    jobs = [job for job in Plaza().jobs(Amount(seeds=(0, 1))) if isinstance(job, PlazaJob)]
    assert [(job.problem, job.seed) for job in jobs] == [(site, seed) for seed in (0, 1) for site in SITES]
    paths = [job.training_run(tmp_path).path for job in jobs]
    assert paths[0] == paths[1] != paths[2] == paths[3]


# --- the simulator -------------------------------------------------------------------------------


def test_the_environment_is_sound(key):
    environment, drive = plaza.problem().family.sample(key)
    nbf.testing.check_environment(environment, drive).raise_if_failed()
    readings = np.linspace(-20, 160, 3601)
    state = environment.init(key)
    density = np.exp(jax.vmap(lambda reading: environment.log_likelihood(reading, state, state))(readings))
    np.testing.assert_allclose(density.sum() * 0.05, 1.0, rtol=0, atol=1e-3)


def test_schedules_have_four_beacons_around_the_middle_and_stay_in_the_square(key):
    environment, drives = plaza.Drives(plaza.world()).schedule(key, 400)
    states, _ = rollout(key, environment, drives, 400, changing=True)
    assert float(jnp.max(jnp.abs(states[:, :2]))) <= plaza.HALF
    assert float(jnp.max(jnp.abs(states[:, 2]))) <= np.pi + 1e-5
    beacons = np.unique(np.asarray(environment.parameters), axis=0)
    assert len(beacons) == 4
    np.testing.assert_allclose(beacons.mean(axis=0), 0.0, rtol=0, atol=1e-3)
    assert drives.shape == (400, 2)
    assert 0.0 < float(drives[:, 0].min()) <= float(drives[:, 0].max()) <= 6.0


def test_the_grid_predicts_what_the_simulator_does(key):
    """Mean and covariance of the place after three moves from one cell, one of them near a wall."""
    count, reference = 4000, plaza.reference()
    drives = jnp.asarray([[3.0, 0.4], [2.0, -1.0], [4.0, 0.2]])
    start = jnp.asarray([44.4, -20.4, 0.065])  # the middle of a cell, up to a hundredth of a radian
    cells = reference.grid.centres().reshape(*reference.grid.shape, 3)
    masses = (jnp.max(jnp.abs((cells - start) / jnp.asarray([0.8, 0.8, 0.13])), axis=-1) < 0.5).astype(jnp.float32)
    assert float(masses.sum()) == 1.0
    for each in drives:
        masses = plaza.predict(masses, each)
    np.testing.assert_allclose(float(masses.sum()), 1.0, **FLOAT)
    environment = plaza.world()

    def simulated(key):
        first, *keys = jax.random.split(key, 4)
        within = jax.random.uniform(first, (3,), minval=-0.5, maxval=0.5)
        state = start + within * jnp.asarray(reference.grid.side, jnp.float32)
        for each, key in zip(drives, keys, strict=True):
            state = environment.transition(key, state, each)
        return state[:2]

    drawn = np.asarray(jax.jit(jax.vmap(simulated))(jax.random.split(key, count)))
    mean = np.tensordot(np.asarray(masses), np.asarray(cells)[..., :2], 3)
    variance = np.tensordot(np.asarray(masses), (np.asarray(cells)[..., :2] - mean) ** 2, 3) + 0.8**2 / 12
    np.testing.assert_allclose(
        mean, drawn.mean(axis=0), rtol=0, atol=monte_carlo(drawn.std(axis=0), count).max() + 0.05
    )
    np.testing.assert_allclose(np.sqrt(variance), drawn.std(axis=0), rtol=0.1)  # headings of 7.5 degrees


def test_the_page_shows_scores_distances_and_leads(tmp_path):
    def record(metric, value):
        return Record("plaza", "plaza-2", "nbf", "", 32, 32, 0, ALL, metric, value, 0.1, 14)

    values = {"log_score": -3.5, "energy": 0.25, "lead_over_equal_calls": 0.75}
    add(tmp_path, [record(*pair) for pair in values.items()], Run("plaza-2/0", 0, "command", 1.0, {}))
    tables = page(tmp_path).tables
    assert "-3.50 ± 0.10" in tables["plaza"]
    assert "0.250 ± 0.100" in tables["plaza-distance"]
    assert "| plaza-2 |" in tables["plaza-leads"]
    assert "0.75 ± 0.10" in tables["plaza-leads"]
    assert key_of(label("nbf", "", 32, "plaza", ("plaza-2",)), "plaza") == ("nbf", "", 32)
