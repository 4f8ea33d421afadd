"""The checker is checked: what is sound passes, and everything that is broken on purpose is caught by the check whose
business it is. Most of what is broken differs from what is sound in a number only, so one compilation serves all."""

from __future__ import annotations

import dataclasses
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Bool, Float, Int
from tolerances import monte_carlo

import nbf
from nbf import prng
from nbf.capabilities import KnownTransitions
from nbf.contracts import Family, StateSpace
from nbf.errors import InputError
from nbf.models.tabular import TabularModel
from nbf.spaces import Lattice
from nbf.testing import ConformanceError, check, check_environment

K, Y = 3, 2


def failed(report) -> list[str]:
    return [check.name for check in report.failures]


# --- environments --------------------------------------------------------------------------------


class Line(StateSpace):
    """K places in a row, of which some are legal; `decode` may be off by `shift`."""

    legal: Bool[Array, " k"]
    shift: Float[Array, ""]

    @property
    def context(self):
        return None

    @property
    def signature(self):
        return "line"

    @property
    def num_features(self):
        return 1

    def encode(self, state):
        return state / K

    def decode(self, numbers):
        return jnp.round(numbers * K + self.shift).astype(jnp.int32)

    def contains(self, state):
        return self.legal[state[0]]


class Tables(KnownTransitions):
    """A hidden Markov model that draws from one set of tables and tells of another."""

    space: Line
    start: Float[Array, " k"]
    told_start: Float[Array, " k"]
    moves: Float[Array, "k k"]
    told_moves: Float[Array, "k k"]
    told_branches: Float[Array, "k k"]
    symbols: Float[Array, "k y"]
    told_symbols: Float[Array, "k y"]
    order: Int[Array, " k"]
    """What `index` says of each state."""
    refused: Int[Array, ""]
    """The first symbol that `check_observation` refuses."""

    def init(self, key):
        return prng.categorical(key, self.start)[None]

    def transition(self, key, state, policy):
        return prng.categorical(key, self.moves[state[0]])[None]

    def observe(self, key, state, next_state):
        return prng.categorical(key, self.symbols[next_state[0]])

    def log_likelihood(self, observation, state, next_state):
        return jnp.log(self.told_symbols[next_state[0], observation])

    def check_observation(self, observation):
        if not 0 <= int(observation) < int(self.refused):
            raise InputError(f"Observation {observation} is outside 0..{int(self.refused) - 1}.")

    def states(self):
        return jnp.arange(K)[:, None]

    def index(self, state):
        return self.order[state[0]]

    def initial_log_probs(self):
        return jnp.log(self.told_start)

    def successors(self, state, policy):
        return self.states(), jnp.log(self.told_moves[state[0]])

    @property
    def num_branches(self):
        return K

    def transition_log_probs(self, state, policy):
        return jnp.log(self.told_branches[state[0]])


def sound() -> Tables:
    start = jnp.array([0.5, 0.3, 0.2])
    moves = jnp.array([[0.1, 0.6, 0.3], [0.25, 0.25, 0.5], [0.7, 0.2, 0.1]])
    symbols = jnp.array([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8]])
    space = Line(jnp.ones(K, bool), jnp.asarray(0.0))
    return Tables(space, start, start, moves, moves, moves, symbols, symbols, jnp.arange(K), jnp.asarray(Y))


def changed(**changes):
    world = sound()
    return dataclasses.replace(world, **{name: change(world) for name, change in changes.items()})


def two(told):
    """The same of moves, whether by `successors` or by `transition_log_probs`."""
    return {"told_moves": told, "told_branches": told}


WRONG_NUMBERS = {
    "another likelihood": (
        lambda: changed(told_symbols=lambda world: jnp.array([[0.9, 0.1], [0.4, 0.6], [0.35, 0.65]])),
        "observe agrees with log_likelihood",
    ),
    "a likelihood that is no distribution": (
        lambda: changed(told_symbols=lambda world: 0.7 * world.symbols), "observe agrees with log_likelihood",
    ),
    "a likelihood of NaN": (
        lambda: changed(told_symbols=lambda world: world.symbols.at[1, 0].set(jnp.nan)), "likelihood is a number",
    ),
    "an impossible observation": (
        lambda: changed(told_symbols=lambda world: world.symbols.at[2, 1].set(0.0)), "observation is possible",
    ),
    "an observation that is refused": (
        lambda: changed(refused=lambda world: jnp.asarray(0)), "check_observation",
    ),
    "an illegal state": (
        lambda: changed(space=lambda world: Line(jnp.array([True, True, False]), jnp.asarray(0.0))), "states are legal",
    ),
    "decode is no inverse": (
        lambda: changed(space=lambda world: Line(jnp.ones(K, bool), jnp.asarray(1.0))), "encode and decode",
    ),
    "states in another order": (
        lambda: changed(order=lambda world: jnp.array([1, 0, 2])), "states and index",
    ),
    "another start": (
        lambda: changed(told_start=lambda world: jnp.array([0.4, 0.4, 0.2])), "initial_log_probs agrees with init",
    ),
    "a start that is no distribution": (
        lambda: changed(told_start=lambda world: 0.9 * world.start), "initial_log_probs agrees with init",
    ),
    "successors that are no distribution": (
        lambda: changed(**two(lambda world: world.moves.at[0, 1].set(0.7))), "successors sum to one",
    ),
    "other transition_log_probs": (
        lambda: changed(told_branches=lambda world: world.moves[:, ::-1]), "transition_log_probs agree with successors",
    ),
    "other successors": (
        lambda: changed(**two(lambda world: world.moves[:, ::-1])), "successors agree with transition",
    ),
}  # fmt: skip


def test_a_sound_environment_passes():
    report = check_environment(sound(), None)
    assert report.passed, str(report)
    assert all(check.passed for check in report.checks)
    report.raise_if_failed()


@pytest.mark.parametrize("name", WRONG_NUMBERS)
def test_wrong_numbers_are_caught_by_the_right_check(name):
    build, expected = WRONG_NUMBERS[name]
    report = check_environment(build(), None)
    assert expected in failed(report), str(report)
    with pytest.raises(ConformanceError, match=expected):
        report.raise_if_failed()


def test_a_failure_shows_the_case():
    report = check_environment(WRONG_NUMBERS["another likelihood"][0](), None)
    (failure,) = report.failures
    assert failure.case["next_state"] == "[2]"
    told = {"0": 0.35, "1": 0.65}[failure.case["observation"]]
    np.testing.assert_allclose(float(failure.case["expected"]), told, rtol=1e-5)
    true = {"0": 0.2, "1": 0.8}[failure.case["observation"]]
    np.testing.assert_allclose(float(failure.case["found"]), true, rtol=0, atol=monte_carlo(0.4, 7680))
    assert all(part in str(report) for part in (failure.name, "next_state", failure.case["found"]))


# --- functions, and real numbers -----------------------------------------------------------------


def normal(scale=1.0):
    return {
        "drawn": jnp.asarray(0.3),
        "told": jnp.asarray(0.3 * scale),
        "factor": jnp.asarray(0.0),
        "step": jnp.asarray(0.5),
    }


def read(key, state, next_state, p):
    return next_state + p["drawn"] * jax.random.normal(key, (1,))


def score(y, state, next_state, p):
    return jax.scipy.stats.norm.logpdf(y[0], next_state[0], p["told"]) + p["factor"]


def move(key, state, policy, p):
    return 0.5 * state + p["step"] * jax.random.normal(key, (1,))


def start(key, p):
    return jax.random.normal(key, (1,))


def walker(parameters=None, **functions):
    given = {"init": start, "transition": move, "observe": read, "log_likelihood": score} | functions
    space = nbf.Box((-3.0,), (3.0,), bounded=False)
    return nbf.environment(**given, space=space, parameters=normal() if parameters is None else parameters)


WRONG_DENSITIES = {
    "a narrower density": (normal(0.7), "observe agrees with log_likelihood"),
    "a wider density": (normal(1.4), "observe agrees with log_likelihood"),
    "a density times 1.25": (normal() | {"factor": jnp.log(1.25)}, "observe agrees with log_likelihood"),
    "a state of NaN": (normal() | {"step": jnp.asarray(jnp.nan)}, "states are finite"),
    "a density of +inf": (normal() | {"factor": jnp.asarray(jnp.inf)}, "likelihood is a number"),
}


def test_a_sound_density_passes_and_says_what_it_would_find():
    report = check_environment(walker(), None)
    assert report.passed, str(report)
    detail = next(check.detail for check in report.checks if check.name == "observe agrees with log_likelihood")
    assert 1.0 < float(detail.rpartition(" ")[2]) < 1.25


@pytest.mark.parametrize("name", WRONG_DENSITIES)
def test_wrong_densities_are_caught_by_the_right_check(name):
    parameters, expected = WRONG_DENSITIES[name]
    report = check_environment(walker(parameters), None)
    assert expected in failed(report), str(report)


def branching(key, state, policy, p):
    return state + 1.0 if state[0] > 0 else state - 1.0


def impure(key, state, policy, p):
    return state + np.float32(np.random.default_rng().normal())


def unbatchable(key, state, policy, p):
    return jax.pure_callback(lambda x: x, jax.ShapeDtypeStruct((1,), jnp.float32), state)


WRONG_FUNCTIONS = {
    "an error": ({"transition": lambda key, state, p: state}, "runs"),
    "a Python branch": ({"transition": branching}, "jit"),
    "random numbers of NumPy": ({"transition": impure}, "same key, same program"),
    "a callback for one state alone": ({"transition": unbatchable}, "vmap"),
}


@pytest.mark.parametrize("name", WRONG_FUNCTIONS)
def test_wrong_functions_are_caught_by_the_right_check(name):
    functions, expected = WRONG_FUNCTIONS[name]
    report = check_environment(walker(**functions), None)
    assert failed(report) == [expected], str(report)
    assert any(check.passed is None for check in report.checks), "nothing is said of what was not run"


WRONG_TYPES = {
    "a state of another type": {"transition": lambda self, key, state, policy: state.astype(jnp.int16)},
    "a state of another shape": {"transition": lambda self, key, state, policy: jnp.append(state, 0)},
    "an integer likelihood": {"log_likelihood": lambda self, y, state, next_state: y},
    "a likelihood for each number": {"log_likelihood": lambda self, y, state, next_state: state / 2},
}


@pytest.mark.parametrize("name", WRONG_TYPES)
def test_wrong_shapes_and_types_are_caught(name):
    kind = type("Wrong", (Tables,), WRONG_TYPES[name])
    parts = {field.name: getattr(sound(), field.name) for field in dataclasses.fields(Tables)}
    report = check_environment(kind(**parts), None)
    assert failed(report) == ["shapes and types"], str(report)


def density(y, state, next_state, p):
    return jnp.exp(score(y, state, next_state, p))


def without_constant(y, state, next_state, p):
    return -0.5 * ((y[0] - next_state[0]) / p["told"]) ** 2


MISTAKES = {
    "a density, not its logarithm": (lambda: walker(log_likelihood=density), "return its logarithm"),
    # log(0.3 sqrt(2 pi)) = -0.285 would have to be subtracted, which is too small to be sure; of 1.5 metres it is 1.32
    "no constant": (
        lambda: walker(normal() | {"drawn": 1.5, "told": 1.5}, log_likelihood=without_constant),
        "would fit with -1.3",
    ),
    "probabilities, not their logarithms": (
        lambda: type("Plain", (Tables,), {"log_likelihood": lambda self, y, _, new: self.symbols[new[0], y]})(
            **{field.name: getattr(sound(), field.name) for field in dataclasses.fields(Tables)}
        ),
        "return their logarithms",
    ),
    "a space of another size": (
        lambda: dataclasses.replace(walker(), space=nbf.Box((-3.0, -3.0), (3.0, 3.0))), "does not fit box",
    ),
    "a dictionary in a Box": (
        lambda: walker(init=lambda key, p: {"x": jnp.zeros(1)}, transition=lambda key, state, policy, p: state,
                       observe=lambda key, state, new, p: new["x"], log_likelihood=lambda y, state, new, p: y[0]),
        "one array of so many numbers",
    ),
    "whole numbers at the start": (
        lambda: walker(init=lambda key, p: jnp.zeros(1, int)), "let the one give what the other does",
    ),
    "states outside": (lambda: dataclasses.replace(walker(), space=nbf.Box((-0.1,), (0.1,))), "bounded=False"),
    "a branch in Python": (lambda: walker(transition=branching), "jnp.where"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_usual_mistakes_are_named(name, unchecked):
    build, told = MISTAKES[name]
    report = check_environment(build(), None)
    assert any(told in failure.detail for failure in report.failures), str(report)


@pytest.mark.parametrize("factor", [0.6, 1.7])
def test_a_wrong_width_is_not_taken_for_a_missing_constant(factor):
    (failure,) = check_environment(walker(normal(factor)), None).failures
    assert "unnormalised" not in failure.detail
    assert "logarithm" not in failure.detail


class Skewed(nbf.Gridworld):
    """A Gridworld that may tell other probabilities of its offsets."""

    skew: Float[Array, ""]

    def offset_log_probs(self, state, policy):
        return super().offset_log_probs(state, policy) - self.skew


@pytest.mark.parametrize(
    ("skew", "expected"),
    [(0.0, []), (0.1, ["transition_log_probs agree with successors", "offsets agree with successors"])],
)
def test_a_gridworld_passes_unless_its_offsets_are_wrong(skew, expected):
    legal = jnp.ones(4, bool).at[1].set(False)
    policy = nbf.GoalPolicy(jnp.asarray([1, 0]), jnp.asarray(1.0))
    report = check_environment(Skewed(Lattice((2, 2), legal), jnp.asarray(0.3), jnp.asarray(skew)), policy)
    assert failed(report) == expected, str(report)


# --- the command line ----------------------------------------------------------------------------

MINE = """
import jax.numpy as jnp
import nbf

sound = nbf.from_matrices([[0.5, 0.5], [0.1, 0.9]], [[0.9, 0.1], [0.2, 0.8]], [0.3, 0.7])
broken = nbf.environment(
    init=lambda key: jnp.zeros(1),
    transition=lambda key, state, policy: state if state[0] > 0 else -state,
    observe=lambda key, state, next_state: next_state,
    log_likelihood=lambda y, state, next_state: jnp.zeros(()),
    space=nbf.Box((-1.0,), (1.0,)),
)
number = 3
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "own_worlds.py").write_text(MINE)
    (tmp_path / "own_mistake.py").write_text("1 / 0")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "own_worlds", raising=False)


def test_the_command_line_checks(folder, capsys):
    from nbf.cli.main import main

    assert main(["check", "own_worlds:sound"]) == 0
    assert "20 of 20 checks passed" in capsys.readouterr().out
    assert main(["check", "own_worlds:broken"]) == 1
    assert "FAILED   jit: TracerBoolConversionError" in capsys.readouterr().out
    assert main(["check", "own_worlds:broken", "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["passed"] is False
    assert [check["name"] for check in answer["checks"] if check["passed"] is False] == ["jit"]


@pytest.mark.parametrize(
    "name", ["own_worlds", "own_worlds:", "own_worlds:none", "no_such:thing", "own_mistake:x", "own_worlds:number"]
)
def test_what_cannot_be_checked_is_refused(name, folder, capsys):
    from nbf.cli.main import main

    assert main(["check", name]) == 2
    message = capsys.readouterr().err
    assert message.startswith("nbf: ")
    assert "Traceback" not in message


def test_what_is_checked_is_told_by_what_it_is():
    class Always(Family):
        def sample(self, key):
            return walker(transition=branching), None

    assert check(Always()).subject == "FunctionalEnvironment"
    assert check((walker(transition=branching), None)).subject == "FunctionalEnvironment"
    assert check((TabularModel(Lattice((3,))), Lattice((4,)))).subject == "TabularModel"
    assert check((nbf.ExactFilter(), walker(transition=branching), None)).subject == "ExactFilter"
    assert nbf.testing.check is check
    with pytest.raises(InputError, match="got int"):
        check(3)
