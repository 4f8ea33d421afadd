"""Policies and values on beliefs: episodes, targets and training, against hand-computed and enumerated ones."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pomdps import LISTEN, environment_of, optimal_values, task_of, tiger
from tolerances import FLOAT, monte_carlo

import nbf
from nbf.models.networks import Perceptron
from nbf.planning import Task, TreeSearch, Widening, play
from nbf.planning.acting import act, begun
from nbf.planning.actor import Actor
from nbf.planning.imagined import SearchChooser
from nbf.planning.ppo import PPO, advantages, clipped_loss, improve, minibatches, optimizer
from nbf.planning.process import DecisionProcess, RandomActions, TaskProcess
from nbf.planning.training import PolicyConfig, TrainedPolicy, decisions_of, train_policy
from nbf.planning.views import EmbeddingView, HistoryView, MomentsView, ProbabilitiesView, StateView, View

GAMMA = 0.95


def still_world() -> nbf.Environment:
    """A number that stays, and is seen with noise."""
    return nbf.environment(
        init=lambda key: jax.random.normal(key, (1,)),
        transition=lambda key, state, action: state,
        observe=lambda key, _, state: state[0] + jax.random.normal(key),
        log_likelihood=lambda seen, _, state: -0.5 * (seen - state[0]) ** 2,
        space=nbf.Box((-3.0,), (3.0,), bounded=False),
    )


STILL = still_world()


class Counting(DecisionProcess):
    """Rewards 1, 2, 4, ...; over after `last` steps. Action 1 is allowed at even times alone."""

    last: int = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    discount: float = eqx.field(static=True)
    choices: int = eqx.field(static=True)
    bad: Any = 1.0
    masked: bool = eqx.field(static=True, default=True)
    anew: bool = eqx.field(static=True, default=False)

    @property
    def num_actions(self):
        return self.choices

    def start(self, key):
        return jnp.int32(0)

    def environment(self, public):
        return STILL

    def step(self, public, action):
        return (still_world() if self.anew else STILL), action

    def after(self, public, action):
        return public + 1

    def reward(self, public, state, action, next_public, next_state):
        return self.bad * 2.0**public

    def is_over(self, state, next_public, next_state):
        return next_public >= self.last

    def context(self, public):
        return public[None].astype(jnp.float32)

    def allowed(self, public):
        return jnp.asarray([True, False]) | (public % 2 == 0) if self.masked else jnp.ones(self.num_actions, bool)


def counting(**changed: Any) -> Counting:
    return Counting(**{"last": 3, "horizon": 5, "discount": 0.9, "choices": 2, **changed})


class Never(Counting):
    def allowed(self, public):
        return jnp.zeros(self.num_actions, bool)


def new_actor(inputs: int, actions: int, *, recurrent: bool = False, constant: float = 0.0) -> Actor:
    actor = Actor.new(jax.random.key(1), inputs, actions, width=8, depth=1, recurrent=recurrent)
    return eqx.tree_at(lambda actor: actor.value.biases[-1], actor, jnp.full(1, constant))


def test_advantages_and_targets_of_an_episode_are_those_computed_by_hand(key):
    """Rewards 1, 2, 4 and V = 0.5 throughout: errors .95, 1.95, 3.5, and γλ = .72."""
    acted = jax.vmap(lambda key: act(key, counting(), StateView(), new_actor(3, 2, constant=0.5)))(key[None])
    found = decisions_of(acted, PPO(discount=0.9, trace=0.8))
    np.testing.assert_array_equal(acted.alive[0], [True, True, True, False, False])
    np.testing.assert_allclose(acted.rewards[0], [1, 2, 4, 0, 0], **FLOAT)
    np.testing.assert_allclose(found.advantages[0], [4.1684, 4.47, 3.5, 0, 0], **FLOAT)
    np.testing.assert_allclose(found.returns[0], [4.6684, 4.97, 4.0, 0, 0], **FLOAT)
    np.testing.assert_allclose(jax.vmap(lambda one: one.total(0.9))(acted), [1 + 1.8 + 3.24], **FLOAT)


def test_advantages_are_the_sums_of_the_definition():
    rng = np.random.default_rng(0)
    rewards, values = rng.normal(size=(2, 5, 3))
    after = np.concatenate([values[1:], np.zeros((1, 3))])
    errors = rewards + 0.9 * after - values
    found = advantages(jnp.asarray(rewards), jnp.asarray(values), 0.9, 0.8)
    for t in range(5):
        expected = sum((0.9 * 0.8) ** (later - t) * errors[later] for later in range(t, 5))
        np.testing.assert_allclose(found[t], expected, **FLOAT)


def test_decisions_that_do_not_count_do_not_matter():
    rng = np.random.default_rng(1)
    log_probs = jax.nn.log_softmax(jnp.asarray(rng.normal(size=(6, 3))))
    others = [jnp.asarray(part) for part in (rng.normal(size=(4, 6)))]
    actions, counts = jnp.asarray(rng.integers(3, size=6)), jnp.asarray([True, False, True, True, False, True])
    settings = PPO(entropy_weight=0.1)
    every = log_probs, others[0], actions, others[1] - 2.0, others[2], others[3]
    some = [part[counts] for part in every]
    np.testing.assert_allclose(clipped_loss(*every, settings, counts), clipped_loss(*some, settings=settings), **FLOAT)


@pytest.mark.parametrize("recurrent", [False, True])
def test_an_episode_that_is_read_again_is_decided_as_it_was(recurrent: bool, key):
    actor = new_actor(3, 2, recurrent=recurrent, constant=0.3)
    acted = act(key, counting(), StateView(), actor)
    log_probs, values = actor.of_episode(acted.inputs, acted.allowed)
    chosen = jnp.take_along_axis(log_probs, acted.actions[:, None], axis=1)[:, 0]
    np.testing.assert_allclose(chosen, acted.log_probs, **FLOAT)
    np.testing.assert_allclose(jnp.where(acted.alive, values, 0.0), acted.values, **FLOAT)
    odd = np.asarray(acted.alive) & (np.arange(5) % 2 == 1)
    assert np.all(np.asarray(acted.actions)[odd] == 0)  # the only one allowed
    np.testing.assert_allclose(np.asarray(acted.log_probs)[odd], 0.0, atol=1e-6)


class Heard(View):
    """The belief's mean, and what was seen and done last."""

    filter: nbf.Filter

    def start(self, key, environment):
        return self.filter.init(key, environment), jnp.int32(-1), jnp.int32(-1)

    def update(self, key, memory, told):
        after = self.filter.update(key, memory[0], told.observation, told.environment, told.policy)[0]
        return after, told.observation.astype(jnp.int32), told.action

    def look(self, memory, environment, state):
        right = self.filter.belief(memory[0], environment).expectation(lambda state: state[0] * 1.0)
        return jnp.stack([right, memory[1] * 1.0, memory[2] * 1.0])


def test_beliefs_of_an_episode_are_those_of_bayes_rule(key):
    tables, particles = tiger(), 4000
    process = TaskProcess(environment_of(tables), task_of(tables, GAMMA), 4)
    shown = act(key, process, Heard(nbf.ParticleFilter(particles)), new_actor(4, 3)).inputs
    belief, moves, looks = np.array([0.5, 0.5]), np.asarray(tables.moves), np.asarray(tables.looks)
    for right, seen, action in np.asarray(shown)[:, :3]:
        if action >= 0:
            belief = (belief @ moves[int(action)]) * looks[int(action), :, int(seen)]
            belief = belief / belief.sum()
        assert abs(right - belief[1]) < monte_carlo(0.5, particles, 8)


class Optimum(eqx.Module):
    trained: TrainedPolicy
    best: float = eqx.field(static=True)


@pytest.fixture(scope="module")
def learned() -> Optimum:
    """Tiger of three steps, a tenth of its rewards."""
    tables = tiger()
    tables = dataclasses.replace(tables, rewards=0.1 * tables.rewards)
    process = TaskProcess(environment_of(tables), task_of(tables, GAMMA), 3)
    sizes: dict[str, Any] = {"episodes": 64, "width": 32, "minibatches": 4}
    config = PolicyConfig(steps=64 * 3 * 80, **sizes, learning_rate=5e-3, entropy_weight=0.003)
    trained = train_policy(process, MomentsView(nbf.ParticleFilter(64)), config, progress=False)
    return Optimum(trained, float(optimal_values(tables, np.array([0.5, 0.5]), 3, GAMMA).max()))


def test_a_policy_and_a_value_on_beliefs_reach_the_optimum(learned, key):
    """Found by enumeration. Opening at once is worth -4.5 and always listening -0.29."""
    acted = learned.trained.act(key, 1000, greedy=True)
    total = np.asarray(jax.vmap(lambda one: one.total(GAMMA))(acted))
    assert learned.best > 0.2
    assert abs(total.mean() - learned.best) < monte_carlo(total.std(), 1000)
    assert np.all(np.asarray(acted.actions)[:, 0] == LISTEN)
    assert abs(float(np.mean(acted.values[:, 0])) - learned.best) < 0.25


def valued_by(inputs: int, actions: int, unsure: bool) -> Actor:
    """V = |first input|, or 1. That input is the mean of the first number of the state, -1/2 or 1/2: p - 1/2."""
    value = Perceptron(jax.random.key(0), inputs, 1, width=2, depth=1)
    first = jnp.zeros((2, inputs)).at[:, 0].set(jnp.asarray([1.0, -1.0]))
    weights = first, jnp.ones((1, 2)) if unsure else jnp.zeros((1, 2))
    biases = jnp.zeros(2), jnp.zeros(1) if unsure else jnp.ones(1)
    value = eqx.tree_at(lambda net: (net.weights, net.biases), value, (weights, biases))
    return eqx.tree_at(lambda actor: actor.value, new_actor(inputs, actions), value)


@pytest.mark.parametrize("unsure", [False, True])
def test_a_leaf_is_valued_by_the_belief_after_its_observation(unsure: bool, key):
    """One look-ahead: the mean reward and γ E|p - 1/2|, .35 after listening, 0 after opening."""
    tables = tiger()
    process = TaskProcess(environment_of(tables), task_of(tables, GAMMA), 10)
    view, simulations = MomentsView(nbf.ParticleFilter(1000)), 600
    chooser = SearchChooser(TreeSearch(simulations, 1, exploration=100.0), valued_by(6, 3, unsure))
    moment = begun(key, process, view, chooser.actor)
    decision = eqx.filter_jit(chooser.decide)(key, process, view, moment, jnp.int32(0))
    leaf = GAMMA * np.array([0.35, 0.0, 0.0]) if unsure else GAMMA
    expected, deviation = np.array([-1.0, -45.0, -45.0]) + leaf, np.array([0.0, 55.0, 55.0])
    assert int(np.sum(decision.visits)) == simulations
    within = monte_carlo(deviation / np.sqrt(np.asarray(decision.visits)), 1) + (0.05 if unsure else 1e-3)
    assert np.all(np.abs(np.asarray(decision.values) - expected) < within)
    assert int(decision.action) == LISTEN
    assert int(decision.calls) == simulations


@pytest.mark.slow
def test_a_search_with_the_learned_value_is_as_good_as_the_policy(learned, key):
    trained = learned.trained
    chooser = SearchChooser(TreeSearch(48, 2), trained.actor)
    acted = trained.act(key, 100, chooser=chooser)
    total = np.asarray(jax.vmap(lambda one: one.total(GAMMA))(acted))
    assert np.all(np.asarray(acted.actions)[:, 0] == LISTEN)
    assert total.mean() > -0.29  # of always listening


def test_random_actions_are_kept_as_often_as_they_should_be(key):
    kept, steps = 0.6, 2000
    process = counting(masked=False, choices=4)
    _, actions = RandomActions(process, kept).schedule(key, steps)
    same = kept + (1 - kept) / 4
    found = np.mean(np.diff(np.asarray(actions)) == 0)
    assert abs(found - same) < monte_carlo(np.sqrt(same * (1 - same)), steps - 1)


def goes_on(state, world):
    return False


def ended(terminal=lambda state, world: True, reward=lambda *_: 1.0, **changed):
    """Episodes that are over before they begin, unless a test says otherwise."""
    return TaskProcess(STILL, Task(reward, actions=jnp.arange(2), terminal=terminal), 5, **changed)


def quick(process, view, **changed):
    return train_policy(process, view, PolicyConfig(steps=1, episodes=4, minibatches=2, **changed), progress=False)


OTHER = nbf.ModelConfig(nbf.BoxConfig((-1.0,) * 2, (1.0,) * 2), nbf.MixtureConfig())
WRONG = {
    "drawn": (
        lambda: TaskProcess(STILL, Task(lambda *_: 0.0, sample_action=lambda *_: 0), 3),
        "List some of them",
    ),
    "no actions": (lambda: quick(counting(choices=0, masked=False), StateView()), "at least one action"),
    "no horizon": (lambda: quick(counting(horizon=0), StateView()), "horizon is at least 1"),
    "discount": (lambda: quick(counting(discount=1.5), StateView()), "discount"),
    "NaN": (lambda: quick(counting(bad=jnp.nan), StateView()), r"NaN or infinite.*`reward`"),
    "anew": (lambda: quick(counting(anew=True), StateView()), "build it once"),
    "mask": (lambda: quick(counting(choices=3), StateView()), "each of the 3 actions"),
    "no embedding": (lambda: quick(counting(), EmbeddingView(nbf.ParticleFilter(8))), "has no embedding"),
    "other space": (
        lambda: quick(counting(), EmbeddingView(nbf.NeuralBayesianFilter(OTHER.build(jax.random.key(0)), 4))),
        "was trained for states of",
    ),
    "not listed": (lambda: quick(counting(), ProbabilitiesView(nbf.ParticleFilter(8))), "Enumerable"),
    "minibatches": (lambda: PolicyConfig(episodes=4, minibatches=8), "take more episodes"),
    "epochs": (lambda: PolicyConfig(epochs=0), "needs epochs of at least 1"),
    "clip": (lambda: PolicyConfig(clip=-1.0), "number above 0 as clip"),
    "trace": (lambda: PolicyConfig(trace=2.0), "as trace"),
    "steps": (lambda: PolicyConfig(steps=2.5)  # pyright: ignore[reportArgumentType]
        , "whole number as steps"),
    "no view": (lambda: quick(counting(), nbf.ParticleFilter(8)), r"EmbeddingView\(filter\)"),
    "described": (lambda: quick(ended(goes_on, describe=lambda _: jnp.full(1, jnp.nan)), StateView()), "shown to the"),
    "reward": (lambda: quick(ended(goes_on, lambda *_: jnp.ones(1)), StateView()), "reward of a step is one number"),
    "end": (lambda: quick(ended(lambda *_: jnp.ones(1)), StateView()), "`terminal` of the task"),
    "kept": (lambda: RandomActions(counting(), 1.0), "lies in"),
    "widening": (lambda: SearchChooser(TreeSearch(9, 2, observation_widening=Widening(2.0, 0.5))), "no widening"),
}  # fmt: skip


@pytest.mark.parametrize(("make", "message"), WRONG.values(), ids=WRONG)
def test_bad_input_is_told(make, message, unchecked):
    with pytest.raises(nbf.InputError, match=message):
        make()


def test_an_episode_that_is_over_at_its_start_has_no_steps(key):
    acted = quick(ended(), StateView()).act(key, 3)
    assert not acted.alive.any()
    np.testing.assert_array_equal(acted.rewards, 0.0)
    played = play(key, nbf.ParticleFilter(8), STILL, ended().task, TreeSearch(8, 2), 5)
    assert float(played.total) == 0.0


def test_minibatches_without_a_decision_change_nothing():
    """Every episode lasts one step of forty, so most minibatches hold padding alone."""
    ticking = nbf.environment(
        init=lambda key: jnp.zeros(1),
        transition=lambda key, state, action: state + 1.0,
        observe=lambda key, _, state: state[0],
        log_likelihood=lambda seen, _, state: 0.0,
        space=nbf.Box((0.0,), (50.0,)),
    )
    task = Task(lambda *_: 1.0, actions=jnp.arange(2), terminal=lambda state, world: state[0] > 0)
    config = PolicyConfig(steps=3000, episodes=8)
    trained = train_policy(TaskProcess(ticking, task, 40), StateView(), config, progress=False)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(eqx.filter(trained.actor, eqx.is_array)))
    np.testing.assert_allclose(trained.returns, 1.0, **FLOAT)


@pytest.mark.parametrize("episodes", [15, 16])
def test_the_learning_rate_falls_to_the_end_of_the_training(episodes: int):
    """Also where minibatches do not divide the items: as many gradient steps are taken as are scheduled."""
    config = PolicyConfig(steps=1, episodes=episodes, recurrent=True)
    settings = config.ppo(0.9, episodes)
    taken = minibatches(episodes, settings.minibatch)
    learner, optimize = jnp.zeros(1), optimizer(settings, config.epochs * taken)
    _, state = improve(
        jax.random.key(0), learner, optimize.init(learner), jnp.zeros((episodes, 1)),
        lambda learner, items: jnp.sum(learner - items), optimize, settings.epochs, settings.minibatch,
    )  # fmt: skip
    counts = {int(leaf) for leaf in jax.tree.leaves(state) if leaf.shape == ()}
    assert counts == {config.epochs * taken}


def test_symbols_are_no_numbers_for_a_network(key):
    tables = tiger()
    process = TaskProcess(environment_of(tables), task_of(tables, GAMMA), 3)
    with pytest.raises(nbf.InputError, match="give HistoryView an `encode`"):
        quick(process, HistoryView(3), recurrent=True)
    view = HistoryView(3, lambda symbol, environment: jax.nn.one_hot(symbol, 2))
    assert quick(process, view, recurrent=True).act(key, 2).inputs.shape == (2, 3, 6)


def test_a_step_without_an_action_is_an_error():
    with pytest.raises(nbf.InputError, match="No action was allowed at 12 steps"):
        quick(Never(last=3, horizon=5, discount=0.9, choices=2), StateView())


def test_a_search_takes_no_forbidden_actions():
    process, view, chooser = counting(), MomentsView(nbf.ParticleFilter(8)), SearchChooser(TreeSearch(4, 1))
    moment = begun(jax.random.key(0), process, view, None)
    with pytest.raises(nbf.InputError, match="forbids some"):
        chooser.decide(jax.random.key(0), process, view, moment, jnp.int32(0))
