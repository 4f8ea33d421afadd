"""Find an object by touch: distances are MuJoCo's, what is not touched stays, and a plan is a path."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from extras import extra
from tolerances import FLOAT

import nbf.testing
from nbf.filters.particle import ParticleFilter
from nbf_paper.audit.meaning import key_of
from nbf_paper.experiments.choices import Amount, Touch
from nbf_paper.experiments.injected import InjectedParticleFilter
from nbf_paper.experiments.rows import FilterRow
from nbf_paper.names import TOUCH
from nbf_paper.records import ALL, Record, Run, add
from nbf_paper.report.labels import label
from nbf_paper.report.touch import page

mujoco: Any = extra("mujoco", "mujoco")


@pytest.fixture(scope="module")
def touch():
    from nbf_paper.zoo import touch

    return touch


@pytest.fixture(scope="module")
def plans(touch):
    return touch.Plans(touch.world())


def test_the_finger_is_as_far_as_mujoco_says(touch):
    from nbf_paper.zoo.touch_scene import SHAPES, gap, scene

    rng = np.random.default_rng(0)
    models = scene().models
    assert len(models) == len(SHAPES)
    for number, model in enumerate(models):
        states = touch.init(rng, 12, None).astype(np.float64)
        finger = np.array([0.14, -0.05])
        truth = []
        for state in states:
            data = mujoco.MjData(model)
            data.qpos[:] = [*state[:3], *finger]
            mujoco.mj_kinematics(model, data)
            truth.append(min(mujoco.mj_geomDistance(model, data, 2, block, 1.0, None) for block in (0, 1)))
        distance, direction = gap(states, finger, number)
        outside = np.array(truth) > 1e-6
        assert outside.sum() > 3
        np.testing.assert_allclose(distance[outside], np.array(truth)[outside], rtol=0, atol=1e-5)
        # A step in the direction of the object is a step towards it.
        nearer = [
            gap(states[[k]], finger + 1e-4 * np.array([np.cos(direction[k]), np.sin(direction[k])]), number)[0][0]
            for k in np.flatnonzero(outside)
        ]
        np.testing.assert_allclose(distance[outside] - nearer, 1e-4, rtol=0.02)


def test_what_is_not_touched_stays_and_what_is_touched_is_pushed_on():
    from nbf_paper.zoo.touch_scene import gap, scene

    table, square = scene(), {"model": 1, "inputs": None}
    states = np.array([[0.0, 0.0, 0.0, np.log(0.5)], [0.0, 0.3, 0.0, np.log(0.5)]])
    after = table.transition(states, np.array([-0.09, 0.0, 0.06, 0.0]), square)
    np.testing.assert_array_equal(after[1], states[1])
    # The finger ends at -0.03 with its front at -0.015: the face of the square, which was at -0.06, is there.
    distance, direction = gap(after[:1], np.array([-0.03, 0.0]), 1)
    assert abs(distance[0]) < 0.008
    np.testing.assert_allclose(after[0, :3], [0.045, 0.0, 0.0], rtol=0, atol=0.008)
    np.testing.assert_allclose(direction, 0.0, **FLOAT)


def test_a_plan_is_a_path_and_names_one_shape(plans, touch, key):
    environment, pushes = plans.schedule(key, touch.HORIZON)
    pushes, ends = np.asarray(pushes), np.asarray(environment.parameters["inputs"])
    np.testing.assert_allclose(pushes[:, :2] + pushes[:, 2:], ends, **FLOAT)
    np.testing.assert_allclose(pushes[1:, :2], ends[:-1], **FLOAT)
    np.testing.assert_allclose(np.hypot(*pushes[:, 2:].T), touch.PUSH, **FLOAT)
    assert len(set(np.asarray(environment.parameters["model"]).tolist())) == 1


def test_it_passes_the_checks(plans, key):
    nbf.testing.check_environment(*plans.sample(key)).raise_if_failed()


def test_injection_replaces_the_lightest_particles_by_new_ones(key):
    space = nbf.Box((-1.0,), (1.0,), bounded=False)
    world = nbf.environment(
        init=lambda key: jax.random.uniform(key, (1,), minval=0.5), transition=lambda key, state, policy: state,
        observe=lambda key, state, after: after[0], log_likelihood=lambda seen, state, after: -jnp.abs(seen - after[0]),
        space=space,
    )  # fmt: skip
    filter = InjectedParticleFilter(ParticleFilter(20, threshold=0.0), 0.1)
    start = filter.init(key, world)
    weights = jnp.log(jnp.arange(1.0, 21.0) / 210.0)
    state, _ = filter.update(key, start._replace(states=jnp.zeros((20, 1)), log_weights=weights), None, world, None)
    assert (np.asarray(state.states)[:, 0] > 0).tolist() == [True] * 2 + [False] * 18
    expected = np.append([1 / 20] * 2, np.arange(3.0, 21.0) / 210)
    np.testing.assert_allclose(np.exp(state.log_weights), expected / expected.sum(), **FLOAT)


def test_an_episode_is_lost_where_a_uniform_guess_is_better():
    from nbf_paper.experiments.simulator_job import lost
    from nbf_paper.experiments.touch import TouchJob

    row = FilterRow(ParticleFilter(32), "pf", "", 32, 32)
    found = lost(TouchJob(), row, np.array([-3.0, -1.0, 2.0, -9.0]), -2.0)
    assert (found.metric, found.value, found.episodes, found.experiment) == ("lost", 0.5, 4, "touch")


@pytest.mark.slow
def test_every_row_is_scored(tmp_path, monkeypatch):
    from nbf_paper.experiments import simulator_job
    from nbf_paper.experiments.touch import TouchJob
    from nbf_paper.experiments.zoo import ZooEvaluation

    sizes = ZooEvaluation(
        episodes=2, samples=8, particle_filters=(8,), regularized_filters=(), branching_filters=(), neural_filters=()
    )
    monkeypatch.setattr(simulator_job, "model_rows", lambda *given: ())
    monkeypatch.setattr(simulator_job, "PRIOR", 16)
    monkeypatch.setattr(TouchJob, "training_run", lambda self, runs: SimpleNamespace(load=lambda: None))
    bar: Any = SimpleNamespace(describe=lambda text: None, advance=lambda done: None)
    records = TouchJob(evaluation=sizes, reference=64).measure(tmp_path, tmp_path, bar)
    found = {(record.filter, record.metric) for record in records if record.step == ALL}
    metrics = ("log_score", "energy", "lost")
    assert found == {(row, metric) for row in ("reference", "prior", "pf") for metric in metrics}
    assert all(np.isfinite(record.value) for record in records)


def test_jobs_have_their_size_in_their_keys():
    usual, few = (Touch().jobs(Amount(seeds=(0,), few=few))[0].settings for few in (False, True))
    assert (usual["reference"], usual["teacher"]) == (20_000, 512)
    assert (few["reference"], few["teacher"]) == (512, 64)


def test_its_page_has_every_table(tmp_path):
    def record(metric, value, filter="nbf"):
        return Record("touch", TOUCH, filter, "", 32, 32, 0, ALL, metric, value, 0.1, 14)

    values = {"log_score": -3.5, "energy": 0.25, "lost": 0.125, "lead_over_equal_calls": 0.75}
    records = [*(record(*pair) for pair in values.items()), record("log_score", -4.0, "pf-injected")]
    add(tmp_path, records, Run("touch/0", 0, "command", 1.0, {}))
    made = page(tmp_path)
    tables = made.tables
    assert set(made.captions) == {*tables, *made.figures}
    made.figures["touch.png"]()
    assert "-3.50 ± 0.10" in tables["touch"]
    assert "PF with injection (32)" in tables["touch"]
    assert "0.250 ± 0.100" in tables["touch-distance"]
    assert "0.12 ± 0.10" in tables["touch-lost"]
    assert "0.75 ± 0.10" in tables["touch-leads"]
    for filter in ("nbf", "pf-injected"):
        assert key_of(label(filter, "", 32, "touch", (TOUCH,)), "touch") == (filter, "", 32)
