"""Two ways in for a system of your own: plain functions, and tables. Both must do what they are given, and refuse what
makes no sense."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tolerances import FLOAT, SEED

import nbf
from nbf import prng
from nbf.errors import InputError

# --- functions -----------------------------------------------------------------------------------

LINE = nbf.Box((-3.0,), (3.0,), bounded=False)


def start(key, parameters):
    return jax.random.normal(key, (1,))


def walk(key, state, policy, parameters):
    return state + policy + parameters["step"] * jax.random.normal(key, (1,))


def read(key, state, next_state, parameters):
    return {"range": next_state[0] + parameters["noise"] * jax.random.normal(key), "moved": next_state[0] > state[0]}


def score(observation, state, next_state, parameters):
    density = jax.scipy.stats.norm.logpdf(observation["range"], next_state[0], parameters["noise"])
    return jnp.where(observation["moved"] == (next_state[0] > state[0]), density, -jnp.inf)


def walker(step=0.5, noise=0.3):
    parameters = {"step": jnp.asarray(step), "noise": jnp.asarray(noise)}
    return nbf.environment(
        init=start, transition=walk, observe=read, log_likelihood=score, space=LINE, parameters=parameters
    )


def test_the_functions_are_the_environment(key):
    environment, parameters = walker(), walker().parameters
    one, other = jnp.array([0.1]), jnp.array([0.4])
    observation = environment.observe(key, one, other)
    assert environment.init(key) == start(key, parameters)
    assert environment.transition(key, one, 0.2) == walk(key, one, 0.2, parameters)
    assert observation == read(key, one, other, parameters)
    assert environment.log_likelihood(observation, one, other) == score(observation, one, other, parameters)


def test_a_transition_to_another_shape_is_named(key):
    world = dataclasses.replace(walker(), functions=(start, lambda key, state, *_: jnp.zeros(2), read, score))
    with pytest.raises(
        InputError, match=r"`transition` gave a state of shape \(2,\); the state before it has shape \(1,\)"
    ):
        world.transition(key, jnp.zeros(1), 0.2)
    report = nbf.testing.check_environment(world, 0.2)
    assert "`transition` gave a state of shape (2,)" in str(report)


def test_new_parameters_are_used_without_compiling_again(key):
    traced = []

    def counted(observation, state, next_state, parameters):
        traced.append(1)
        return score(observation, state, next_state, parameters)

    near = nbf.environment(
        init=start, transition=walk, observe=read, log_likelihood=counted, space=LINE, parameters=walker().parameters
    )
    far = dataclasses.replace(near, parameters=walker(noise=9.0).parameters)
    filter = nbf.ParticleFilter(8, max_attempts=1)
    state = filter.init(key, near)
    observation = {"range": 2.0, "moved": True}
    _, one = filter.step(key, state, observation, near, jnp.asarray(0.1))
    before = len(traced)
    _, two = filter.step(key, state, observation, far, jnp.asarray(0.1))
    assert before > 0
    assert len(traced) == before
    assert float(one.log_evidence) != float(two.log_evidence)


@pytest.mark.parametrize(
    "observation",
    [
        1.0,
        {"range": 1.0},
        {"range": np.nan, "moved": True},
        {"range": np.inf, "moved": True},
        {"range": 1e300, "moved": True},
        {"range": True, "moved": True},
        {"range": 1.0, "moved": 1},
        {"range": np.zeros(2), "moved": True},
        {"range": "far", "moved": True},
    ],
    ids=str,
)
def test_an_observation_of_another_kind_is_refused(observation):
    environment = walker()
    environment.check_observation({"range": 1.0, "moved": True})
    environment.check_observation({"range": np.float32(1.0), "moved": np.bool_(False)})
    environment.check_observation({"range": 1, "moved": True})
    with pytest.raises(InputError):
        environment.check_observation(observation)


def test_a_reading_may_come_as_an_integer(key):
    """Some sensors give 2 for 2.0; the likelihood sees a number with decimals."""
    seen = []

    def noted(observation, state, next_state, parameters):
        seen.append(jnp.result_type(observation["range"]))
        return score(observation, state, next_state, parameters)

    given = {"init": start, "transition": walk, "observe": read, "log_likelihood": noted, "space": LINE}
    world, filter = nbf.environment(**given, parameters=walker().parameters), nbf.ParticleFilter(8)
    state = filter.init(key, world)
    told = [filter.step(key, state, {"range": kind, "moved": True}, world, jnp.asarray(0.1)) for kind in (2.0, 2)]
    assert float(told[0][1].log_evidence) == float(told[1][1].log_evidence)
    assert set(seen) == {jnp.result_type(float)}


def test_integers_stay_within_the_alphabet():
    def build(**more):
        return nbf.environment(
            init=lambda key: jnp.zeros(1),
            transition=lambda key, state, policy: state,
            observe=lambda key, state, next_state: jax.random.randint(key, (), 0, 3),
            log_likelihood=lambda observation, state, next_state: -jnp.log(3.0),
            space=LINE,
            **more,
        )

    build(symbols=3).check_observation(2)
    build().check_observation(np.int64(3))
    for environment, observation in [(build(symbols=3), 3), (build(symbols=3), -1), (build(), 2**40)]:
        with pytest.raises(InputError, match="outside"):
            environment.check_observation(observation)
    with pytest.raises(InputError, match="symbols=0"):
        build(symbols=0)
    with pytest.raises(InputError, match=r"shape \(4,\)"):
        build(observation=np.zeros(4, np.float32)).check_observation(2)


def test_functions_that_cannot_be_traced_are_refused():
    with pytest.raises(InputError, match=r"init\(key\)"):
        nbf.environment(init=lambda: 0, transition=walk, observe=read, log_likelihood=score, space=LINE)


# --- tables --------------------------------------------------------------------------------------

STATES, ACTIONS, SYMBOLS, STEPS = 4, 2, 3, 6


def tables(*, actions, pairs):
    rng = np.random.default_rng(SEED)
    T = rng.dirichlet(np.ones(STATES), size=(ACTIONS, STATES) if actions else STATES)  # noqa: N806
    H = rng.dirichlet(np.ones(SYMBOLS), size=(STATES, STATES) if pairs else STATES)  # noqa: N806
    T[..., 0, :] = np.eye(STATES)[1]  # some moves are impossible
    return T, H, rng.dirichlet(np.ones(STATES))


POLICIES = {
    "none": None,
    "action": 1,
    "probabilities": np.array([0.3, 0.7], np.float32),
    "table": np.linspace(0.1, 0.9, STATES, dtype=np.float32)[:, None] * [1, -1] + np.array([0, 1], np.float32),
}


def mixed(T, policy):  # noqa: N803
    """T[x, x'] under a policy."""
    if policy is None:
        return T
    chances = np.eye(ACTIONS)[policy] if np.ndim(policy) == 0 else policy
    return np.einsum("xa,axy->xy", np.broadcast_to(chances, (STATES, ACTIONS)), T)


@pytest.mark.sampled
@pytest.mark.parametrize("pairs", [False, True], ids=["H[x', y]", "H[x, x', y]"])
@pytest.mark.parametrize("name", POLICIES)
def test_the_exact_filter_is_the_forward_algorithm(name, pairs, key):
    policy = POLICIES[name]
    T, H, p0 = tables(actions=policy is not None, pairs=pairs)  # noqa: N806
    environment, filter = nbf.from_matrices(T, H, p0), nbf.ExactFilter()
    moves = mixed(T, policy)
    forward, state, evidence = p0, filter.init(key, environment), 0.0
    control = jnp.asarray(policy, jnp.float32) if np.ndim(policy) else policy
    for observation in np.random.default_rng(SEED).integers(SYMBOLS, size=STEPS):
        state, info = filter.step(key, state, observation, environment, control)
        emission = H[..., observation] if pairs else H[None, :, observation]
        joint = (forward[:, None] * moves * emission).sum(axis=0)
        evidence += np.log(joint.sum()) - float(info.log_evidence)
        forward = joint / joint.sum()
        np.testing.assert_allclose(state, forward, **FLOAT)
    np.testing.assert_allclose(evidence, 0.0, **FLOAT)


def broken(change):
    T, H, p0 = tables(actions=True, pairs=False)  # noqa: N806
    return nbf.from_matrices(**({"T": T, "H": H, "p0": p0} | change(T.copy(), H.copy(), p0.copy())))


def with_entry(table, place, value):
    table[place] = value
    return table


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda T, H, p0: {"T": with_entry(T, (1, 2), [0.5, 0.5, 0.5, 0.0])}, r"T\[1, 2\].*sum 1\.5"),  # noqa: N803
        (lambda T, H, p0: {"H": with_entry(H, 3, [1.5, -0.5, 0.0])}, r"H\[3\] must be .* 0 or more"),  # noqa: N803
        (lambda T, H, p0: {"p0": 0.5 * p0}, r"p0 must be .*sum 0\.5"),  # noqa: N803
        (lambda T, H, p0: {"p0": np.full(STATES, np.nan)}, "p0 must be"),  # noqa: N803
        (lambda T, H, p0: {"H": H[:3]}, r"H of \(3, 3\)"),  # noqa: N803
        (lambda T, H, p0: {"T": T[:, :3]}, r"T of shape \(2, 3, 4\)"),  # noqa: N803
    ],
)
def test_tables_that_are_no_distributions_are_refused(change, named):
    with pytest.raises(InputError, match=named):
        broken(change)


@pytest.mark.parametrize("policy", [None, 0.5, np.ones(3, np.float32), np.ones((2, 2), np.float32)])
def test_a_policy_of_another_shape_is_refused(policy, key):
    environment = broken(lambda T, H, p0: {})  # noqa: N803
    with pytest.raises(InputError, match="integer action"):
        environment.successors(jnp.array([0]), policy)


@pytest.mark.parametrize("observation", [3, -1, 1.0, [0], True])
def test_an_observation_outside_the_alphabet_is_refused(observation):
    environment = broken(lambda T, H, p0: {})  # noqa: N803
    environment.check_observation(np.int32(2))
    with pytest.raises(InputError, match=r"0\.\.2"):
        environment.check_observation(observation)


def test_environments_of_tables_are_a_vmap():
    def chance(p):
        environment = nbf.from_matrices(jnp.array([[p, 1 - p], [0.0, 1.0]]), jnp.eye(2), jnp.array([1.0, 0.0]))
        return environment.successors(environment.init(prng.stream(SEED)), None)[1]

    found = jax.jit(jax.vmap(chance))(jnp.array([0.25, 0.5]))
    np.testing.assert_allclose(jnp.exp(found), [[0.25, 0.75], [0.5, 0.5]], **FLOAT)
