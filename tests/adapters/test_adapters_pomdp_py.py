"""pomdp-py's models under our filters, and our beliefs under its planner, against tables and pomdp-py's own update.

pomdp-py is an extra; where it is missing, what needs it is skipped. Models with the same methods are always tested.
"""

from __future__ import annotations

import random

import jax.numpy as jnp
import numpy as np
import pytest
from extras import extra
from tolerances import FLOAT, SEED, monte_carlo

import nbf
from nbf.adapters.pomdp_py import from_pomdp_py, to_pomdp_py
from nbf.errors import InputError

STATES, ACTIONS, SYMBOLS = "xyz", "ab", "01"


class Table:
    """A model of pomdp-py that looks probabilities up: `probability(what, state, action)`."""

    def __init__(self, rows):
        self.rows = rows

    def probability(self, what, state, action):
        columns = STATES if self.rows.shape[2] == len(STATES) else SYMBOLS
        return self.rows[ACTIONS.index(action), STATES.index(state), columns.index(what)]


def pomdp(*, depends):
    """Transition model, observation model and belief; and their tables T[a, x, x'], O[a, x', y] and p0."""
    rng = np.random.default_rng(SEED)
    T = rng.dirichlet(np.ones(3), size=(2, 3))  # noqa: N806
    O = rng.dirichlet(np.ones(2), size=(2, 3))  # noqa: E741, N806
    O = O if depends else np.stack([O[0], O[0]])  # noqa: E741, N806
    p0 = rng.dirichlet(np.ones(3))
    return (Table(T), Table(O), dict(zip(STATES, p0, strict=True))), (T, O, p0)


@pytest.mark.parametrize(
    ("depends", "chances"),
    [(False, None), (True, None), (True, (0.3, 0.7))],
    ids=["O(x')", "O(x', a)", "O(x', a), actions random"],
)
def test_a_pomdp_is_filtered_as_its_tables_say(depends, chances, key):
    models, (T, O, forward) = pomdp(depends=depends)  # noqa: E741, N806
    model = from_pomdp_py(models, states=STATES, actions=ACTIONS, observations=SYMBOLS)
    assert model.remembered == (2 if depends else 1)
    filter = nbf.ExactFilter()
    state = filter.init(key, model.environment)
    for action, heard in ("a1", "b1", "b0", "a0"):
        policy = model.action(action) if chances is None else jnp.asarray(chances)
        state, info = filter.step(key, state, model.observation(heard), model.environment, policy)
        weights = np.eye(2)[ACTIONS.index(action)] if chances is None else chances
        joint = np.einsum("a,x,axy,ay->y", weights, forward, T, O[:, :, SYMBOLS.index(heard)])
        forward = joint / joint.sum()
        np.testing.assert_allclose(float(info.log_evidence), np.log(joint.sum()), **FLOAT)
        np.testing.assert_allclose(list(model.probabilities(state).values()), forward, **FLOAT)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"states": None}, r"pass states=\[...\]"),
        ({"observations": "00"}, "each of them once"),
        ({"actions": []}, "at least one"),
        ({"states": "xy"}, "T.*must be probabilities"),
        ({"model": (None, None, None)}, "black box"),
    ],
    ids=str,
)
def test_a_pomdp_that_is_not_listed_well_is_refused(change, named):
    given = {"model": pomdp(depends=True)[0], "states": STATES, "actions": ACTIONS, "observations": SYMBOLS} | change
    with pytest.raises(InputError, match=named):
        from_pomdp_py(given.pop("model"), **given)


def test_a_pomdp_too_large_for_tables_is_refused_before_it_is_asked():
    with pytest.raises(InputError, match=r"9000 x 9000"):
        from_pomdp_py(pomdp(depends=True)[0], states=range(9000), actions=ACTIONS, observations=SYMBOLS)


def test_what_a_pomdp_does_not_know_is_refused():
    model = from_pomdp_py(pomdp(depends=True)[0], states=STATES, actions=ACTIONS, observations=SYMBOLS)
    with pytest.raises(InputError, match="action 'c' is none of"):
        model.action("c")
    with pytest.raises(InputError, match="observation '2' is none of"):
        model.observation("2")


class Tiger:
    """pomdp-py's own Tiger problem, and its filter."""

    def __init__(self):
        self.pomdp_py = extra("pomdp_py", "pomdp-py")
        from pomdp_py.problems.tiger import tiger_problem as tiger  # pyright: ignore[reportMissingImports]

        self.left, self.right = tiger.TigerState("tiger-left"), tiger.TigerState("tiger-right")
        self.hear_left, self.hear_right = (tiger.TigerObservation(f"tiger-{side}") for side in ("left", "right"))
        self.listen, self.open_left, self.open_right = map(tiger.TigerAction, ("listen", "open-left", "open-right"))
        self.agent = tiger.TigerProblem.create("tiger-left", 0.5, 0.15).agent
        self.model = from_pomdp_py(
            self.agent,
            states=[self.left, self.right],
            actions=[self.listen, self.open_left, self.open_right],
            observations=[self.hear_left, self.hear_right],
        )

    def updated(self, histogram, action, heard):
        return self.pomdp_py.update_histogram_belief(
            histogram, action, heard, self.agent.observation_model, self.agent.transition_model
        )

    def planned(self, belief):
        """What POUCT does, as the last step: further ahead, the mean of its own explorations drowns the difference.
        Its simulations are Python's random numbers, in the order of a set of actions, which differs from run to run."""
        random.seed(SEED)
        self.agent.set_belief(belief, prior=True)
        planner = self.pomdp_py.POUCT(
            max_depth=0, discount_factor=0.95, num_sims=500, exploration_const=50,
            rollout_policy=self.agent.policy_model,
        )  # fmt: skip
        self.agent.tree = None
        return planner.plan(self.agent)


def test_tiger_is_its_tables():
    model = Tiger().model
    moves = np.asarray(model.environment.moves).reshape(3, 2, 3, 2, 3)  # [a, x, last action, x', a]
    for action, row in enumerate([np.eye(2), np.full((2, 2), 0.5), np.full((2, 2), 0.5)]):
        expected = np.einsum("xy,l,b->xlyb", row, np.ones(3), np.eye(3)[action])
        np.testing.assert_allclose(moves[action], expected, **FLOAT)
    heard = np.asarray(model.environment.symbols).reshape(2, 3, 2)
    np.testing.assert_allclose(heard[:, 0], [[0.85, 0.15], [0.15, 0.85]], **FLOAT)
    np.testing.assert_allclose(heard[:, 1:], 0.5, **FLOAT)
    np.testing.assert_allclose(model.environment.start.reshape(2, 3).sum(axis=1), 0.5, **FLOAT)


def test_an_agent_lists_its_own_states():
    tiger = Tiger()
    own = from_pomdp_py(tiger.agent)
    assert set(own.states) == set(tiger.model.states)
    assert own.state(np.array([own.remembered])) == own.states[1]


def test_the_exact_filter_of_tiger_is_pomdp_py_s_own(key):
    tiger, filter = Tiger(), nbf.ExactFilter()
    environment, histogram = tiger.model.environment, tiger.agent.belief
    state = filter.init(key, environment)
    for action, heard in [
        (tiger.listen, tiger.hear_left), (tiger.listen, tiger.hear_left), (tiger.listen, tiger.hear_right),
        (tiger.open_left, tiger.hear_left), (tiger.listen, tiger.hear_right), (tiger.listen, tiger.hear_right),
    ]:  # fmt: skip
        state, _ = filter.step(key, state, tiger.model.observation(heard), environment, tiger.model.action(action))
        histogram = tiger.updated(histogram, action, heard)
        found = tiger.model.probabilities(state)
        np.testing.assert_allclose(
            [found[each] for each in histogram], [histogram[each] for each in histogram], **FLOAT
        )


def test_a_belief_is_the_root_of_pouct(key):
    tiger, filter, n = Tiger(), nbf.ParticleFilter(200), 1000
    environment = tiger.model.environment
    state = filter.init(key, environment)
    root = to_pomdp_py(key, nbf.CategoricalBelief(environment.start, environment), n, tiger.model.state)
    assert isinstance(root, tiger.pomdp_py.Particles)
    assert len(root) == n
    np.testing.assert_allclose(root[tiger.left], 0.5, rtol=0, atol=monte_carlo(0.5, n))
    assert tiger.planned(root) == tiger.listen
    for _ in range(3):
        heard, listen = tiger.model.observation(tiger.hear_left), tiger.model.action(tiger.listen)
        state, _ = filter.step(key, state, heard, environment, listen)
    sure = to_pomdp_py(key, filter.belief(state, environment), n, tiger.model.state)
    assert tiger.planned(sure) == tiger.open_right


def test_a_root_of_anything_but_states_is_refused(key):
    tiger = Tiger()
    belief = nbf.CategoricalBelief(tiger.model.environment.start, tiger.model.environment)
    with pytest.raises(InputError, match="n=0"):
        to_pomdp_py(key, belief, 0, tiger.model.state)
    with pytest.raises(InputError, match=r"pomdp_py\.State; `state` gave a int"):
        to_pomdp_py(key, belief, 3, lambda state: int(state[0]))
