"""A pomdp-py model that is too large for tables, filtered: RockSample(11, 11), with half a million states.

The rocks are independent, and a check tells of one rock with a chance that follows from its distance. So the posterior
of each rock is a product of odds.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from extras import extra
from tolerances import SEED, monte_carlo

import nbf
from nbf.adapters.pomdp_py import from_pomdp_py, to_pomdp_py
from nbf.adapters.pomdp_py_simulated import simulate_pomdp_py
from nbf.errors import InputError
from nbf.testing import check_environment

pomdp_py = extra("pomdp_py", "pomdp-py")
SIDE, ROCKS, PARTICLES, REACH = 11, 11, 1000, 20
PLAN = ("check-0", "move-EAST", "check-0", "check-3", "move-SOUTH", "check-3", "check-3", "check-7")


class Rocks:
    """A belief of pomdp-py: the rover is where it is, each rock is good or bad."""

    def __init__(self, make, position):
        self.make, self.position = make, position

    def random(self):
        return self.make(self.position, [random.random() < 0.5 for _ in range(ROCKS)])


def rock_sample():
    from pomdp_py.problems.rocksample import rocksample_problem as game

    places = {(3 * number % SIDE, 5 * number % SIDE): number for number in range(ROCKS)}

    def make(position, good, terminal=False):
        kinds = tuple(game.RockType.GOOD if each else game.RockType.BAD for each in good)
        return game.State(tuple(position), kinds, bool(terminal))

    def encode(state):
        return [*state.position, *(kind == game.RockType.GOOD for kind in state.rocktypes), int(state.terminal)]

    def decode(numbers):
        return make(numbers[:2], numbers[2:-1], numbers[-1])

    moves = [game.MoveEast, game.MoveWest, game.MoveNorth, game.MoveSouth]
    actions = [*moves, game.SampleAction(), *(game.CheckAction(number) for number in range(ROCKS))]
    observations = [game.Observation(kind) for kind in (None, game.RockType.GOOD, game.RockType.BAD)]
    parts = (
        game.RSTransitionModel(SIDE, places, lambda place: place[0] >= SIDE),
        game.RSObservationModel(places, REACH),
        Rocks(make, (0, 5)),
    )
    space = nbf.Lattice((SIDE + 1, SIDE, *[2] * ROCKS, 2))
    return parts, {"space": space, "encode": encode, "decode": decode, "actions": actions, "observations": observations}


def test_rocks_are_believed_as_the_product_of_odds_says(key):
    parts, options = rock_sample()
    model = simulate_pomdp_py(parts, **options)
    named = {action.name: action for action in model.actions}
    filter = nbf.ParticleFilter(PARTICLES, threshold=0.0)  # the rocks never change: resampled, they would be copies
    state = filter.init(key, model.environment)
    odds, place, info = np.zeros(ROCKS), np.array([0, 5]), None
    for number, name in enumerate(PLAN):
        checks = name.startswith("check")
        heard = model.observations[0 if not checks else 1 + number % 2]
        state, info = filter.step(key, state, model.observation(heard), *model.at(named[name]))
        assert not info.recovered
        if checks:
            rock = int(name[6:])
            distance = np.hypot(*(np.array([3 * rock % SIDE, 5 * rock % SIDE]) - place))
            right = (1 + 2 ** (-distance / REACH)) / 2
            odds[rock] += np.log(right / (1 - right)) * (1 if heard == model.observations[1] else -1)
        else:
            place = place + {"move-EAST": (1, 0), "move-SOUTH": (0, 1)}[name]
    assert info is not None
    assert info.ess > PARTICLES / 20
    weights, states = np.exp(np.asarray(state.log_weights, np.float64)), np.asarray(state.states)
    assert (states[:, :2] == place).all()
    good = (weights[:, None] * states[:, 2:-1]).sum(axis=0) / weights.sum()
    np.testing.assert_allclose(good, 1 / (1 + np.exp(-odds)), rtol=0, atol=monte_carlo(0.5, int(info.ess)))
    root = to_pomdp_py(key, filter.belief(state, model.environment), 5, model.state)
    assert all(tuple(particle.position) == tuple(place) for particle in root.particles)


def test_the_same_key_gives_the_same_numbers_and_python_keeps_its_own():
    parts, options = rock_sample()
    functions = simulate_pomdp_py(parts, **options).environment.simulator.functions
    random.seed(SEED)
    before = random.getstate()
    one, other = (functions["init"](np.random.default_rng(seed), 20, 0) for seed in (0, 0))
    np.testing.assert_array_equal(one, other)
    assert random.getstate() == before
    assert not np.array_equal(one, functions["init"](np.random.default_rng(1), 20, 0))


@pytest.mark.slow
def test_it_passes_the_checks():
    parts, options = rock_sample()
    model = simulate_pomdp_py(parts, **options)
    assert check_environment(*model.at(model.actions[-1])).passed


def test_errors_say_what_is_wrong():
    parts, options = rock_sample()
    model = simulate_pomdp_py(parts, **options)
    with pytest.raises(InputError, match="is none of"):
        model.at("jump")
    with pytest.raises(InputError, match="pass actions="):
        simulate_pomdp_py(parts, **{**options, "actions": None})
    with pytest.raises(InputError, match="same action"):
        model.environment.simulator.functions["transition"](np.random.default_rng(0), np.zeros((1, 14), int), 1, 0)
    with pytest.raises(InputError, match="simulate_pomdp_py"):
        from_pomdp_py(
            parts, states=range(60_000), actions=options["actions"], observations=options["observations"]
        )  # fmt: skip
