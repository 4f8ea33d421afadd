"""The MuJoCo adapter: what a rollout makes of n states is what `mj_step` makes of each."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from extras import extra
from tolerances import EXACT

import nbf
from nbf.adapters.mujoco import MujocoSimulator, from_mujoco
from nbf.errors import InputError
from nbf.testing import check_environment

mujoco: Any = extra("mujoco", "mujoco")
SCENE = """
<mujoco>
  <option timestep="0.01"/>
  <worldbody>
    <geom type="plane" size="5 5 1"/>
    <body pos="0 0 0.1">
      <joint name="x" type="slide" axis="1 0 0" damping="0.1"/>
      <joint name="z" type="slide" axis="0 0 1"/>
      <geom name="block" type="{shape}" size="0.1 0.1 0.1" mass="1" priority="1"/>
      <site name="here"/>
    </body>
  </worldbody>
  <actuator><motor joint="x"/></actuator>
  <sensor><velocimeter site="here"/></sensor>
</mujoco>"""
SHAPES = ("box", "sphere")
STEPS, PUSH = 8, np.array([5.0], np.float32)
SPACE = nbf.Box((-2.0, -2.0, 0.0), (2.0, 2.0, 2.0), bounded=False)


def set_friction(model, value):
    model.geom_friction[1, 0] = value


def init(rng, n, parameters):
    return rng.uniform([-1.0, -1.0, 0.2], [1.0, 1.0, 1.0], (n, 3)).astype(np.float32)


def scene(models=None, **options):
    models = [SCENE.format(shape=shape) for shape in SHAPES] if models is None else models
    return MujocoSimulator(models, qpos=("x",), qvel=("x",), physics=(set_friction,), steps=STEPS, **options)


def environment(simulator=None, **options):
    options = {"noise": 0.1, "entries": (0,), "process": (0.0, 0.02, 0.0)} | options
    return from_mujoco(scene() if simulator is None else simulator, space=SPACE, init=init, **options)


def moved(simulator, states, push, model=0):
    return simulator.transition(states, push, {"model": model, "inputs": None})


def stepped(state, push, shape, steps=STEPS):
    """By `mj_step`, from a fresh start."""
    model = mujoco.MjModel.from_xml_string(SCENE.format(shape=shape))
    model.geom_friction[1, 0] = state[2]
    data = mujoco.MjData(model)
    data.qpos[0], data.qvel[0], data.ctrl[:] = state[0], state[1], push
    for _ in range(steps):
        mujoco.mj_step(model, data)
    return np.array([data.qpos[0], data.qvel[0], state[2]]), np.array(data.sensordata)


@pytest.mark.parametrize("threads", [0, 2])
def test_a_step_is_that_of_mj_step_bit_for_bit(threads):
    """For each model, 70 states of which each has its own friction: more than one rollout has copies for."""
    world = scene(threads=threads)
    states = init(np.random.default_rng(0), 70, None).astype(np.float64)
    for number, shape in enumerate(SHAPES):
        truth = np.array([stepped(state, PUSH, shape)[0] for state in states])
        np.testing.assert_array_equal(moved(world, states, PUSH, number), truth)
    assert not np.array_equal(moved(world, states, PUSH, 0), moved(world, states, PUSH, 1))


def test_the_model_is_an_input_of_every_step(key):
    """One compiled filter serves all models, and the model that is named is the one that moves."""
    world = environment(process=None)
    filter, seen = nbf.ParticleFilter(8, threshold=0.0, max_attempts=1), np.array([0.5], np.float32)
    start = filter.init(key, world)
    found = []
    for number, shape in enumerate(SHAPES):
        now = replace(world, parameters={"model": jnp.int32(number), "inputs": None})
        state, _ = filter.step(key, start, seen, now, PUSH)
        truth = [stepped(one, PUSH, shape)[0] for one in np.asarray(start.states, np.float64)]
        np.testing.assert_allclose(state.states, np.array(truth), rtol=1e-6)
        found.append(np.asarray(state.states))
    assert not np.array_equal(*found)


def test_sensors_are_those_of_the_state_and_controls_may_differ_by_the_step():
    mover = scene()
    states = init(np.random.default_rng(1), 3, None).astype(np.float64)
    readings = mover.sensors(states, {"model": 0, "inputs": None})
    np.testing.assert_allclose(readings[:, 0], states[:, 1], **EXACT)
    several = np.repeat(np.array([[1.0], [-3.0]], np.float32), STEPS // 2, axis=0)
    truth = []
    for state in states:
        model = mujoco.MjModel.from_xml_string(SCENE.format(shape="sphere"))
        set_friction(model, state[2])
        data = mujoco.MjData(model)
        data.qpos[0], data.qvel[0] = state[:2]
        for control in several:
            data.ctrl[:] = control
            mujoco.mj_step(model, data)
        truth.append([data.qpos[0], data.qvel[0], state[2]])
    np.testing.assert_array_equal(moved(mover, states, several, 1), np.array(truth))


def test_known_coordinates_begin_where_they_are_said_to():
    """A block in the air keeps its speed, whatever the friction; on the ground it loses some."""
    mover = scene(known=lambda policy, parameters: ([0.0, parameters["inputs"]], np.zeros(2)))
    state, push = np.array([[0.0, 1.0, 1.0]]), np.array([0.0], np.float32)
    high, low = (mover.transition(state, push, {"model": 1, "inputs": height}) for height in (1.0, 0.0))
    np.testing.assert_allclose(high[0, 1], np.exp(-0.1 * STEPS * 0.01), rtol=1e-3)
    assert low[0, 1] < 0.9 * high[0, 1]


def test_a_nan_stays_and_an_unstable_state_becomes_one(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)  # MuJoCo writes MUJOCO_LOG.TXT
    mover = scene()
    states = np.array([[0.0, 0.0, 0.5], [np.nan, 0.0, 0.5], [0.0, 1e12, 0.5], [0.1, 0.0, 0.5]])
    after = moved(mover, states, PUSH)
    assert np.isnan(after).any(axis=1).tolist() == [False, True, True, False]
    np.testing.assert_array_equal(after[[0, 3]], moved(mover, states[[0, 3]], PUSH))
    weights = environment(mover).simulator.functions["log_likelihood"](
        np.array([0.0], np.float32), states, after, {"model": np.int32(0), "inputs": None}
    )
    assert (weights == -np.inf).tolist() == [False, True, True, False]


def test_it_can_be_sent_to_another_process_and_passes_the_checks():
    def bit(states):
        return 1 / (1 + np.exp(-4.0 * states[:, 1].astype(np.float64)))

    world = environment(
        noise=None, entries=None, emission="state", symbols=2,
        observe=lambda rng, states, after, parameters: (rng.random(len(after)) < bit(after)).astype(np.int32),
        log_likelihood=lambda seen, states, after, parameters: np.log(np.where(seen, bit(after), 1 - bit(after))),
    )  # fmt: skip
    assert check_environment(world, PUSH).passed
    mover = MujocoSimulator(SCENE.format(shape="box"), qpos=(0, 1), qvel=(0,), threads=2)
    parameters = {"model": 0, "inputs": None}
    states = init(np.random.default_rng(0), 2, None)
    before = mover.transition(states, PUSH, parameters)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(mover)).transition(states, PUSH, parameters), before)


def test_errors_say_what_is_wrong():
    with pytest.raises(InputError, match="Model 0 cannot be compiled"):
        scene("<mujoco><nothing/></mujoco>")
    with pytest.raises(InputError, match="XML text or a path; got a int"):
        scene(3)
    with pytest.raises(InputError, match=r"nsensordata=\[3, 0\]"):
        scene([SCENE.format(shape="box"), SCENE.format(shape="box").replace('<velocimeter site="here"/>', "")])
    with pytest.raises(InputError, match=r"no joint 'y'; its joints are \['x', 'z'\]"):
        MujocoSimulator(SCENE.format(shape="box"), qpos=("y",))
    with pytest.raises(InputError, match="Nothing is hidden"):
        MujocoSimulator(SCENE.format(shape="box"))
    with pytest.raises(InputError, match="pass `noise`"):
        environment(noise=None)
    mover, states = scene(), np.zeros((1, 3))
    with pytest.raises(InputError, match=r"models 0\.\.1"):
        moved(mover, states, PUSH, 2)
    for wrong in (None, np.zeros(2), np.array([np.nan], np.float32)):
        with pytest.raises(InputError, match="control"):
            moved(mover, states, wrong)
