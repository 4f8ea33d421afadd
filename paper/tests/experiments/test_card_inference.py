"""Policy inference as a filter, against the exact posterior; leaves that policies play out, against OpenSpiel."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from extras import extra
from jaxtyping import Array
from tolerances import FLOAT, SEED, monte_carlo

from nbf.beliefs.hands import hand_table
from nbf.environments.scripted_player import ScriptedPlayer
from nbf.environments.trick_taking import TrickTaking
from nbf.errors import InputError
from nbf_paper.experiments.belief_play import PolicyRollouts
from nbf_paper.experiments.card_games import watch
from nbf_paper.experiments.card_inference import PolicyInference
from nbf_paper.experiments.card_play import game_of, log_deals

RULES = TrickTaking(3, 2, 6, 3)
LENGTH = 8


@pytest.fixture(scope="module")
def game():
    """A game between scripted players, with its truth."""

    @eqx.filter_jit
    def play(key):
        players = eqx.filter_vmap(lambda key: ScriptedPlayer.random(key, RULES))(jax.random.split(key, 3))
        return watch(RULES, key, players, LENGTH)

    return play(jax.random.key(4))


def inferred(calls, key, game):
    """The belief after the last action."""
    filter = PolicyInference(calls)
    first = jax.tree.map(lambda leaf: leaf[0], game.environments)
    last = jax.tree.map(lambda leaf: leaf[-1], game.environments)

    def step(state, inputs):
        environment, action = inputs
        return filter.update(key, state, action, environment, None)[0], None

    state = jax.lax.scan(step, filter.init(key, first), (game.environments, game.actions))[0]
    return filter.belief(state, last), state


def test_many_calls_find_the_posterior(game, key):
    @jax.jit
    def found(key, game):
        belief, state = inferred(24_000, key, game)
        return belief.expectation(lambda deal: jax.nn.one_hot(deal, 3)), jnp.sum(belief.used), state.seen

    marginals, count, seen = found(key, game)
    assert int(seen) == int(np.sum(np.asarray(game.owner) < 2))  # the observer's own actions tell nothing
    assert int(count) == 24_000 // int(seen)
    np.testing.assert_allclose(marginals, game.truth[-1], atol=0.03)


@pytest.mark.slow
def test_its_probability_of_a_deal_is_how_often_it_is_drawn(game, key):
    """With so few deals that they are far from the posterior: over many sets of fresh deals, of the likeliest deal."""
    sets = 2000

    @jax.jit
    def both(keys, game):
        def one(key):
            belief, _ = inferred(48, key, game)
            drawn = belief.sample(jax.random.fold_in(key, 1), 8)
            return jnp.mean(jnp.all(drawn == game.deal, axis=1)), jnp.exp(belief.log_prob(game.deal))

        return jax.lax.map(one, keys)

    often, told = (np.asarray(part) for part in both(jax.random.split(key, sets), game))
    spread = np.sqrt(often.var() + told.var())
    assert abs(often.mean() - told.mean()) < monte_carlo(spread, sets)
    assert told.mean() > monte_carlo(spread, sets)


def test_all_deals_are_counted(game):
    """The prior of the rules: as many deals as the exact posterior has pairs of possible hands."""
    last = jax.tree.map(lambda leaf: leaf[-1], game.environments)
    after = jax.jit(RULES.play)(last.game, game.actions[-1])
    hands = hand_table(8, 3)[1]
    ours, theirs = (hands[np.asarray(game.allowed[-1, place])] for place in range(2))
    pairs = np.sum((ours[:, None] & theirs) == 0)
    assert pairs > 1
    assert float(log_deals(RULES, after)) == pytest.approx(np.log(pairs), abs=1e-4)


class Sure(eqx.Module):
    """Takes the legal action that it likes best."""

    likes: Array

    def log_probs(self, view, legal):
        return jnp.log(jax.nn.one_hot(jnp.argmax(jnp.where(legal, self.likes, -jnp.inf)), len(legal)))


def test_leaves_are_played_out_by_the_policies():
    """Against OpenSpiel's own play of policies that are certain, from every state of a game."""
    extra("pyspiel", "openspiel")
    rng = np.random.default_rng(SEED)
    likes = rng.normal(size=(3, RULES.num_actions))
    policies = {seat: Sure(jnp.asarray(likes[seat], jnp.float32)) for seat in range(3)}
    evaluator, state = PolicyRollouts(RULES, policies, 0), game_of(RULES).new_initial_state()
    while not state.is_terminal():
        if state.is_chance_node():
            state.apply_action(int(rng.choice([action for action, _ in state.chance_outcomes()])))
            continue
        end = state.clone()
        while not end.is_terminal():
            end.apply_action(max(end.legal_actions(), key=lambda action: likes[end.current_player(), action]))
        np.testing.assert_allclose(evaluator.evaluate(state), end.returns(), **FLOAT)
        assert dict(evaluator.prior(state)) == dict.fromkeys(state.legal_actions(), 1 / len(state.legal_actions()))
        state.apply_action(int(rng.choice(state.legal_actions())))


def test_it_needs_calls():
    with pytest.raises(InputError, match="calls"):
        PolicyInference(0)
