"""Few calls for many states: laws of the interpolation, and the filter that uses it against the exact posterior."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from deal_worlds import CARDS, Linear, world
from jaxtyping import Array

import nbf
from nbf.environments.gridworld import Gridworld
from nbf.environments.hidden_hands import HiddenHands
from nbf.environments.trick_taking import TrickTaking
from nbf.errors import InputError
from nbf.filters.hands import HandTableFilter
from nbf.filters.neural import EvenProposal, IndependentProposal, InterpolatingProposal
from nbf.filters.neural.interpolating import first_different
from nbf.models.maximum_entropy import MaximumEntropyDeals
from nbf.spaces import Lattice
from nbf.spaces.deal_weights import marginals

POINTS = 256


@eqx.filter_jit
def proposed(key, num_particles, environment, points=POINTS):
    """What the proposal makes of the first belief, and the likelihoods that it predicts."""
    filter = nbf.NeuralBayesianFilter(
        MaximumEntropyDeals(environment.space), num_particles, proposal=InterpolatingProposal(points)
    )
    state = filter.init(key, environment)
    after, info = filter.update(key, state, jnp.int32(0), environment, None)
    told = jax.vmap(lambda deal: environment.log_likelihood(0, deal, deal))(after.particles.states)
    return after, info, told


def test_with_a_call_for_every_state_nothing_is_predicted(key):
    after, info, told = proposed(key, POINTS, world())
    weights = np.asarray(after.particles.log_weights - told)
    even, log_weights = jax.jit(lambda key, model: model.draw(key, jnp.full(30, 1 / 3), POINTS, world().space))(
        key, MaximumEntropyDeals(world().space)
    )
    # Before the likelihood the weights are those of even draws: nearly the same for all.
    assert weights.std() < 2.0 * np.asarray(log_weights).std() + 1e-3
    assert even.shape == after.particles.states.shape
    assert float(info.ess) > 0


def test_predictions_are_near_the_likelihoods_and_better_than_none(key):
    """The share of the likelihood's variance that the predictions leave."""
    full = np.asarray(proposed(key, POINTS, world())[0].particles.log_weights)

    def left(calls):
        after, _, told = proposed(key, calls, world())
        assert after.particles.states.shape == (POINTS, CARDS)
        np.testing.assert_array_equal(told, proposed(key, POINTS, world())[2])  # the same draws
        found = np.exp(np.asarray(after.particles.log_weights) - full)  # prediction over truth, up to a factor
        truth = np.exp(np.asarray(told))
        guess = found / found.mean() * truth
        return np.mean((guess / guess.mean() - truth / truth.mean()) ** 2) / np.var(truth / truth.mean())

    few, many = left(8), left(64)
    assert many < few < 0.7
    assert many < 0.1


def test_states_that_differ_come_first():
    names = jnp.asarray([3.0, 1.0, 3.0, 2.0, 1.0, 5.0])
    possible = jnp.asarray([True, True, True, True, True, False])
    np.testing.assert_array_equal(first_different(names, possible, 3), [0, 1, 3])
    np.testing.assert_array_equal(first_different(names, possible, 6), [0, 1, 3, 2, 4, 5])


@pytest.mark.parametrize(("wrong", "count"), [(np.nan, True), (np.inf, True), (-np.inf, False)])
def test_wrong_likelihoods_are_counted_and_impossible_states_stay_so(key, wrong, count):
    after, info, _ = proposed(key, 64, world(wrong))
    assert (int(info.invalid) > 0) == count
    assert np.all(np.isfinite(after.embedding))
    first = np.exp(np.asarray(after.particles.log_weights))[np.asarray(after.particles.states)[:, 0] == 0]
    assert first.sum() < 0.3 / 2  # of 0.3 before


def test_an_observation_that_no_state_explains_is_recovered(key):
    _, info, _ = proposed(key, 64, Linear(world().space, jnp.full(CARDS, jnp.nan), jnp.float32(0.0)))
    assert bool(info.recovered)


def test_a_state_that_moves_cannot_be_interpolated():
    grid = Gridworld(Lattice((3, 3)), jnp.asarray(0.1))
    with pytest.raises(InputError, match="needs the capability StaticState"):
        InterpolatingProposal().check(grid, 8)


@pytest.mark.parametrize("wrong", [{"points": 0}, {"reach": 0.0}, {"ridge": 0.0}, {"ridge": np.nan}])
def test_settings_must_make_sense(wrong):
    with pytest.raises(InputError):
        InterpolatingProposal(**wrong)


def test_the_default_for_hidden_hands_says_so(key):
    rules = TrickTaking(3, 2, 4, 2)

    class Random(eqx.Module):
        def log_probs(self, view, legal):
            return jnp.log(legal / jnp.sum(legal))

    environment = HiddenHands.of(rules, rules.deal(key), jnp.int32(8), Random())
    filter = nbf.NeuralBayesianFilter(MaximumEntropyDeals(environment.space), 16)
    assert "StaticState, so 1024 draws are weighed by these calls" in filter.describe(environment)


@pytest.mark.slow
def test_in_a_game_it_is_worth_several_times_its_calls(key):
    """Mean error of the marginals over a game: with 16 calls below that of even draws with 64."""
    rules = TrickTaking()
    linear = 1.5 * jax.random.normal(jax.random.key(3), (rules.num_actions, rules.view_size))

    class Player(eqx.Module):
        weights: Array

        def log_probs(self, view, legal):
            return jax.nn.log_softmax(jnp.where(legal, self.weights @ view, -jnp.inf))

    player = Player(linear * (jnp.arange(rules.view_size) < rules.cards))

    @jax.jit
    def game(key):
        start_key, play_key = jax.random.split(key)

        def step(game, key):
            log_probs = player.log_probs(rules.view(game, game.hands[game.player]), rules.legal(game))
            action = jax.random.categorical(key, log_probs)
            return rules.play(game, action), (action, HiddenHands.of(rules, game, action, player))

        return jax.lax.scan(step, rules.deal(start_key), jax.random.split(play_key, 12))[1]

    def error(calls, proposal, seed):
        actions, environments = game(jax.random.fold_in(key, seed))
        filter = nbf.NeuralBayesianFilter(MaximumEntropyDeals(rules_space(environments)), calls, proposal=proposal)
        return float(game_error(filter, key, actions, environments))

    def rules_space(environments):
        return jax.tree.map(lambda leaf: leaf[0], environments).space

    @eqx.filter_jit
    def game_error(filter, key, actions, environments):
        first, exact = jax.tree.map(lambda leaf: leaf[0], environments), HandTableFilter()

        def step(states, inputs):
            key, action, environment = inputs
            state, truth = states
            state, _ = filter.update(key, state, action, environment, None)
            truth, _ = exact.update(key, truth, action, environment, None)
            found = marginals(filter.model.weights(state.embedding, environment.space), environment.space.quotas)
            return (state, truth), jnp.mean(jnp.abs(found - truth.marginals()))

        start = filter.init(key, first), exact.init(key, first)
        return jnp.mean(jax.lax.scan(step, start, (jax.random.split(key, 12), actions, environments))[1])

    few = np.mean([error(16, InterpolatingProposal(), seed) for seed in range(6)])
    even = np.mean([error(64, EvenProposal(), seed) for seed in range(6)])
    independent = np.mean([error(64, IndependentProposal(), seed) for seed in range(6)])
    assert few < even < independent
