"""A filter's belief under pomdp-py's planners for a whole episode of Tiger, against Bayes' rule by hand."""

from __future__ import annotations

import copy
import random

import numpy as np
import pytest
from extras import extra
from tolerances import FLOAT, SEED, monte_carlo

import nbf
from nbf.adapters.pomdp_py import PomdpPyModel, from_pomdp_py
from nbf.adapters.pomdp_py_simulated import simulate_pomdp_py
from nbf.errors import InputError

pomdp_py = extra("pomdp_py", "pomdp-py")
NOISE, PARTICLES = 0.15, 600
LEFT, RIGHT = "tiger-left", "tiger-right"


def tiger():
    """A problem of pomdp-py, its actions, and its observations."""
    from pomdp_py.problems.tiger import tiger_problem as game

    actions = [game.TigerAction(name) for name in ("listen", "open-left", "open-right")]
    return game.make_tiger(NOISE), actions, [game.TigerObservation(name) for name in (LEFT, RIGHT)], game


def model_of(kind):
    problem, actions, heard, game = tiger()
    if kind == "listed":
        states = [game.TigerState(name) for name in (LEFT, RIGHT)]
        return problem, from_pomdp_py(problem.agent, states=states, actions=actions, observations=heard), game
    model = simulate_pomdp_py(
        problem.agent, space=nbf.Lattice((2,)), encode=lambda state: [int(state.name == RIGHT)],
        decode=lambda numbers: game.TigerState(RIGHT if numbers[0] else LEFT), actions=actions, observations=heard,
    )  # fmt: skip
    return problem, model, game


def bayes(left, action, heard):
    """The chance that the tiger is left, after a step: opening a door puts it anywhere, and tells nothing."""
    if action != "listen":
        return 0.5
    right = (1 - left) * (NOISE if heard == LEFT else 1 - NOISE)
    left = left * (1 - NOISE if heard == LEFT else NOISE)
    return left / (left + right)


def belief_of(key, filter, model, particles=PARTICLES):
    from nbf.adapters.pomdp_py_belief import FilterBelief

    return FilterBelief(key, filter, model, particles)


@pytest.mark.parametrize("kind", ["listed", "simulated"])
def test_the_belief_is_that_of_bayes_rule_over_an_episode(kind, key):
    _, model, game = model_of(kind)
    filter = nbf.ExactFilter() if kind == "listed" else nbf.ParticleFilter(PARTICLES)
    belief, left = belief_of(key, filter, model), 0.5
    assert isinstance(belief, pomdp_py.Particles)
    rng = np.random.default_rng(SEED)
    for number in range(8):
        action = "open-left" if number == 4 else "listen"
        heard = str(rng.choice([LEFT, LEFT, RIGHT]))
        belief.update(game.TigerAction(action), game.TigerObservation(heard))
        left = bayes(left, action, heard)
        if isinstance(model, PomdpPyModel):
            found = model.probabilities(belief.state)
            np.testing.assert_allclose(found[game.TigerState(LEFT)], left, **FLOAT)
        spread = np.sqrt(left * (1 - left))
        error = abs(belief[game.TigerState(LEFT)] - left)
        # The particles of a particle filter were drawn twice, and resampled once in a while.
        assert error < monte_carlo(max(spread, 0.1), PARTICLES) * (1 if kind == "listed" else 4)
        assert len(belief.particles) == PARTICLES
        assert belief.recovered == 0
    belief.update(game.TigerAction("open-right"), None)  # nothing was heard: a prediction
    assert abs(belief[game.TigerState(LEFT)] - 0.5) < monte_carlo(0.5, PARTICLES) * 2


@pytest.mark.parametrize("planner", ["POUCT", "POMCP"])
def test_a_planner_plays_a_whole_episode(planner, key):
    random.seed(SEED)
    problem, model, game = model_of("listed")
    agent, env = problem.agent, problem.env
    assert isinstance(model, PomdpPyModel)
    belief, left, rewards, opened = belief_of(key, nbf.ExactFilter(), model, 200), 0.5, [], []
    agent.set_belief(belief, prior=True)
    searching = getattr(pomdp_py, planner)(
        max_depth=3, discount_factor=0.95, num_sims=400, exploration_const=100, rollout_policy=agent.policy_model
    )
    for _ in range(25):
        action = searching.plan(agent)
        before = env.state.name
        rewards.append(env.state_transition(action, execute=True))
        seen = agent.observation_model.sample(env.state, action)
        if action.name != "listen":
            opened.append((action.name, left, before))
        belief.advance(agent, searching, action, seen)
        left = bayes(left, action.name, seen.name)
        assert agent.belief is belief
        np.testing.assert_allclose(model.probabilities(belief.state)[game.TigerState(LEFT)], left, **FLOAT)
    assert len(agent.history) == 25
    # It opens when it is sure enough that the gain of 10 outweighs the loss of 100, and not before.
    assert opened
    assert all(max(chance, 1 - chance) > 0.9 and (chance < 0.5) == (name == "open-left") for name, chance, _ in opened)
    assert set(rewards) <= {-1, 10, -100}


def test_copies_are_particles_and_bad_calls_are_refused(key):
    problem, model, game = model_of("listed")
    belief = belief_of(key, nbf.ExactFilter(), model, 10)
    assert copy.deepcopy(belief).particles == belief.particles
    with pytest.raises(InputError, match="at least 1 particle"):
        belief_of(key, nbf.ExactFilter(), model, 0)
    with pytest.raises(InputError, match="is none of"):
        belief.update("sleep", None)
    with pytest.raises(InputError, match="agent\\.set_belief"):
        belief.advance(problem.agent, None, game.TigerAction("listen"), game.TigerObservation(LEFT))
