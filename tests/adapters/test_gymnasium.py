"""The Gymnasium adapter: a state that is set and stepped is what Gymnasium's own step makes of it."""

from __future__ import annotations

import pickle
from typing import Any

import jax
import numpy as np
import pytest
import scipy.stats
from extras import extra
from tolerances import FLOAT, monte_carlo

import nbf
from nbf.adapters.gymnasium import GymnasiumSimulator, from_gymnasium
from nbf.errors import HostError, InputError
from nbf.testing import check_environment

gymnasium: Any = extra("gymnasium", "gymnasium")
PLANE = nbf.Box((-4.0, -8.0), (4.0, 8.0), bounded=False)
PUSH = np.array([0.7], np.float32)


def moved(world, states, policy, seed=0):
    """What the user's side of an environment makes of n states."""
    return world.simulator.functions["transition"](np.random.default_rng(seed), np.asarray(states), policy)


def box(size):
    return nbf.Box((-5.0,) * size, (5.0,) * size, bounded=False)


CLASSIC = {
    "CartPole-v1": (4, 1), "MountainCar-v0": (2, 2), "Acrobot-v1": (4, 0), "Pendulum-v1": (2, PUSH),
    "MountainCarContinuous-v0": (2, PUSH),
}  # fmt: skip


@pytest.mark.parametrize("name", CLASSIC)
def test_classic_control_steps_bit_for_bit(name):
    """Along an episode of Gymnasium's own: each state, set anew and in any order, goes where the episode went."""
    size, action = CLASSIC[name]
    world = from_gymnasium(name, space=box(size), noise=0.1)
    env = gymnasium.make(name)
    seen, _ = env.reset(seed=3)
    states, observations = [np.array(env.unwrapped.state)], [seen]
    for _ in range(6):
        observations.append(env.step(action)[0])
        states.append(np.array(env.unwrapped.state))
    order = np.array([4, 0, 5, 2, 1, 3])
    np.testing.assert_array_equal(moved(world, np.array(states)[order], action), np.array(states)[order + 1])
    emit: Any = world.simulator.functions["observe"]
    readings = emit.__self__.clean(np.array(states)[order], ())
    np.testing.assert_allclose(readings, np.array(observations)[order], **FLOAT)


def test_a_pole_that_fell_goes_on_falling_and_no_limit_ends_an_episode():
    world = from_gymnasium("CartPole-v1", space=box(4), noise=0.1)
    last = state = np.array([[0.0, 0.0, 1.0, 0.0]])
    for _ in range(600):
        last, state = state, moved(world, state, 0)
    assert abs(state[0, 2]) > 1.0
    assert not np.array_equal(last, state)
    fallen = GymnasiumSimulator("CartPole-v1", absorbing=lambda states: np.abs(states[:, 2]) > 0.2)
    kept = from_gymnasium(fallen, space=box(4), noise=0.1)
    both = np.array([[0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.1, 0.0]])
    after = moved(kept, both, 0)
    np.testing.assert_array_equal(after[0], both[0])
    np.testing.assert_array_equal(after[1], moved(world, both, 0)[1])


def test_toy_text_moves_by_its_own_table():
    def observe(rng, states, after):
        return after[:, 0] // 4

    def log_likelihood(observation, states, after):
        return np.where(after[:, 0] // 4 == observation, 0.0, -np.inf).astype(np.float32)

    lake = from_gymnasium(
        "FrozenLake-v1", space=nbf.Lattice((16,)), observe=observe, log_likelihood=log_likelihood, symbols=4,
        emission="state",
    )  # fmt: skip
    n, start, action = 4000, 6, 2
    found = moved(lake, np.full((n, 1), start, np.int32), action)[:, 0]
    truth = np.zeros(16)
    for chance, after, *_ in gymnasium.make("FrozenLake-v1").unwrapped.P[start][action]:
        truth[after] += chance
    np.testing.assert_allclose(np.bincount(found, minlength=16) / n, truth, rtol=0, atol=monte_carlo(0.5, n))
    assert check_environment(lake, np.int32(action)).passed


def test_observations_have_the_noise_that_was_asked_for():
    world = from_gymnasium("Pendulum-v1", space=PLANE, entries=(1,), noise=0.3, process=(0.0, 0.2))
    n, state = 4000, np.array([[0.6, 1.0]])
    states = np.repeat(state, n, axis=0)
    seen = world.simulator.functions["observe"](np.random.default_rng(0), states, states)
    np.testing.assert_allclose(seen.mean(), np.sin(0.6), rtol=0, atol=monte_carlo(0.3, n))
    np.testing.assert_allclose(seen.std(), 0.3, rtol=0, atol=monte_carlo(0.3, n))
    found = world.simulator.functions["log_likelihood"](np.array([0.1], np.float32), state, state)
    np.testing.assert_allclose(found, scipy.stats.norm.logpdf([0.1], np.sin(0.6), 0.3), **FLOAT)
    quiet = from_gymnasium("Pendulum-v1", space=PLANE, entries=(1,), noise=0.3)
    noise = moved(world, states, PUSH) - moved(quiet, states, PUSH)
    np.testing.assert_array_equal(noise[:, 0], 0.0)
    np.testing.assert_allclose(noise[:, 1].std(), 0.2, rtol=0, atol=monte_carlo(0.2, n))


@pytest.mark.slow
def test_the_pendulum_passes_the_checks():
    world = from_gymnasium("Pendulum-v1", space=PLANE, entries=(0, 1), noise=0.1, process=(0.01, 0.05))
    assert check_environment(world, PUSH).passed


def test_a_filter_runs_on_it_and_a_nan_has_no_weight(key):
    world = from_gymnasium("Pendulum-v1", space=PLANE, entries=(0, 1), noise=0.1, process=(0.01, 0.05))
    filter = nbf.ParticleFilter(16)
    state, info = filter.step(key, filter.init(key, world), np.array([1.0, 0.0], np.float32), world, PUSH)
    again, _ = filter.step(key, filter.init(key, world), np.array([1.0, 0.0], np.float32), world, PUSH)
    assert np.isfinite(info.log_evidence)
    assert all(np.array_equal(one, other) for one, other in zip(*map(jax.tree.leaves, (state, again)), strict=True))
    broken = np.array([[0.1, np.nan], [0.1, 0.0]])
    after = moved(world, broken, PUSH)
    assert np.isnan(after[0]).any()
    weights = world.simulator.functions["log_likelihood"](np.array([1.0, 0.0], np.float32), broken, after)
    assert weights[0] == -np.inf
    assert np.isfinite(weights[1])


def test_it_can_be_sent_to_another_process():
    world = from_gymnasium("Acrobot-v1", space=box(4), noise=0.1)
    states = np.array([[0.1, 0.2, 0.3, 0.4]])
    sent = pickle.loads(pickle.dumps(world.simulator.functions["transition"]))
    np.testing.assert_array_equal(sent(np.random.default_rng(0), states, 2), moved(world, states, 2))


def test_mujoco_environments_agree_with_the_mujoco_adapter():
    extra("mujoco", "mujoco")
    extra("imageio", "gymnasium[mujoco]")
    from nbf.adapters.mujoco import MujocoSimulator

    name = "InvertedPendulum-v5"
    env = gymnasium.make(name)
    world = from_gymnasium(name, space=box(4), noise=0.1)
    rng = np.random.default_rng(0)
    states, action = 0.1 * rng.standard_normal((5, 4)), np.array([0.4], np.float32)
    model: Any = env.unwrapped.model
    other = MujocoSimulator(model, qpos=(0, 1), qvel=(0, 1), steps=env.unwrapped.frame_skip)
    theirs = other.transition(states, action, {"model": 0, "inputs": None})
    np.testing.assert_array_equal(moved(world, states, action), theirs)
    # In an episode the solver starts from its last solution, which only its tolerance can tell apart.
    env.reset(seed=0)
    before = np.concatenate([env.unwrapped.data.qpos, env.unwrapped.data.qvel])[None]
    env.step(action)
    np.testing.assert_allclose(
        moved(world, before, action)[0], np.concatenate([env.unwrapped.data.qpos, env.unwrapped.data.qvel]), **FLOAT
    )


def test_errors_name_the_environment_and_what_to_give():
    with pytest.raises(InputError, match=r"Blackjack-v1 .* get_state"):
        from_gymnasium("Blackjack-v1", space=box(3), noise=0.1)
    with pytest.raises(InputError, match="vector environment"):
        from_gymnasium(gymnasium.make_vec("CartPole-v1", num_envs=2), space=box(4), noise=0.1)
    wrapped = gymnasium.wrappers.ClipAction(gymnasium.make("Pendulum-v1"))
    with pytest.raises(InputError, match="ClipAction"):
        from_gymnasium(wrapped, space=PLANE, noise=0.1)
    with pytest.raises(InputError, match="pass `noise`"):
        from_gymnasium("Pendulum-v1", space=PLANE)
    with pytest.raises(InputError, match="integers"):
        from_gymnasium("FrozenLake-v1", space=nbf.Lattice((16,)), noise=0.1)
    with pytest.raises(InputError, match="belong together"):
        GymnasiumSimulator("Pendulum-v1", get_state=lambda env: env.state)
    with pytest.raises(HostError, match=r"0\.\.2"):
        from_gymnasium("Pendulum-v1", space=PLANE, noise=0.1, entries=(3,))
    world = from_gymnasium("CartPole-v1", space=box(4), noise=0.1)
    for wrong in (None, 2, 0.5, np.zeros(2)):
        with pytest.raises(InputError, match="CartPole-v1"):
            moved(world, np.zeros((1, 4)), wrong)


def test_functions_of_ones_own_set_any_state():
    class Walk(gymnasium.Env):
        """Drifts to the right; the place is all of its state."""

        action_space, observation_space = gymnasium.spaces.Discrete(2), gymnasium.spaces.Box(-9.0, 9.0, (1,))

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.place = float(self.np_random.normal())
            return np.array([self.place]), {}

        def step(self, action):
            self.place += 1.0 + action
            return np.array([self.place]), 0.0, False, False, {}

    def set_state(env, state):
        env.place = float(state[0])

    walk = GymnasiumSimulator(
        Walk, get_state=lambda env: np.array([env.place]), set_state=set_state,
        act=lambda rng, states, policy: (states[:, 0] > policy).astype(int),
    )  # fmt: skip
    world = from_gymnasium(
        walk, space=box(1), observe=lambda rng, states, after: after,
        log_likelihood=lambda seen, states, after: -np.abs(seen - after)[:, 0],
    )  # fmt: skip
    np.testing.assert_array_equal(moved(world, [[1.0], [5.0]], 2.0), [[2.0], [7.0]])
    with pytest.raises(HostError, match="`observe` and `log_likelihood`"):
        from_gymnasium(walk, space=box(1), noise=0.1)


def test_a_state_that_is_not_all_there_is_is_refused():
    class Tired(gymnasium.Env):
        """Its steps become shorter, which its place does not tell."""

        action_space, observation_space = gymnasium.spaces.Discrete(2), gymnasium.spaces.Box(-9.0, 9.0, (1,))

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.place, self.stride = float(self.np_random.normal()), 1.0
            return np.array([self.place]), {}

        def step(self, action):
            self.place, self.stride = self.place + self.stride, self.stride / 2
            return np.array([self.place]), 0.0, False, False, {}

    def build(set_state):
        simulator = GymnasiumSimulator(Tired, get_state=lambda env: np.array([env.place]), set_state=set_state)
        from_gymnasium(
            simulator, space=box(1), observe=lambda rng, states, after: after,
            log_likelihood=lambda seen, states, after: after[:, 0],
        )  # fmt: skip

    with pytest.raises(InputError, match="leaves something as it was"):
        build(lambda env, state: setattr(env, "place", float(state[0])))
    with pytest.raises(InputError, match="and is read as"):
        build(lambda env, state: setattr(env, "place", 7.0))
