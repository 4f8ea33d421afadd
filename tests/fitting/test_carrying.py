"""How much carried branches are trusted: against a model that knows nothing, and one that knows all."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fits import untrained_on_a_line

import nbf
from nbf import prng
from nbf.environments.functional import One
from nbf.errors import InputError
from nbf.filters.neural import BranchProposal, CarryRule
from nbf.fitting import fit
from nbf.fitting.carrying import RULES, earned_carry
from nbf.fitting.episodes import draw_episodes, log_scores
from nbf.fitting.fitted import FEWEST_CARRIED
from nbf.models.tabular import TabularModel
from nbf.spaces import Lattice
from nbf.training.fit import Fitted

RING = Lattice((128,))


def walk():
    """A drift along a ring of 128 cells; which of four colours a cell has is seen, seldom misread. It begins in
    one of four places."""
    steps = jnp.array([-2, -1, 1, 2])[:, None]

    def branches(state, policy):
        return (state + steps) % 128, jnp.log(jnp.array([0.1, 0.2, 0.3, 0.4]))

    def seen(state):
        return (state[0] // 8) % 4

    return nbf.listed_environment(
        branches=branches,
        observe=lambda key, state, next_state: jnp.where(
            jax.random.bernoulli(key, 0.1), jax.random.randint(key, (), 0, 4), seen(next_state)
        ),
        log_likelihood=lambda observation, state, next_state: jnp.log(
            0.025 + 0.9 * (observation == seen(next_state))
        ),
        space=RING, num_branches=4, symbols=4, initial=jnp.where(jnp.arange(128) % 32 < 4, 0.0, -jnp.inf),
    )  # fmt: skip


class KnowsNothing(TabularModel):
    """Embeds all beliefs alike, and decodes them to all cells alike."""

    def embed(self, states, log_weights, space=None):
        return jnp.zeros(128)

    def features(self, states, space):
        return jnp.zeros((128, states.shape[0]))

    def log_prob(self, embedding, states, space):
        return jnp.full(states.shape[:1], -jnp.log(128.0))

    def all_log_probs(self, embedding, space):
        return jnp.full(128, -jnp.log(128.0))


def test_a_model_that_knows_nothing_is_trusted_least(key):
    family = One(walk(), None)
    assert earned_carry(key, KnowsNothing(RING), family, horizon=8, episodes=8) == RULES[-1]


def test_the_chosen_rule_has_the_best_score(key):
    """Against filters that are built with each rule and scored one by one."""
    family = One(walk(), None)
    model = KnowsNothing(RING)
    drawn = draw_episodes(family, prng.fold_in(key, jnp.int32(0)), 4, 4)
    rules = (CarryRule(0.2, 8), CarryRule(0.95, 0.5), CarryRule(0.6, 1.0))
    scores = []
    for rule in rules:
        filter = nbf.NeuralBayesianFilter(model, FEWEST_CARRIED, proposal=BranchProposal(rule))
        scores.append(np.mean(log_scores(filter, jax.random.fold_in(key, 1), drawn)))
    found = earned_carry(key, model, family, horizon=4, rules=rules, episodes=4)
    assert found == rules[int(np.argmax(scores))]


def test_a_fitted_model_keeps_its_rule_for_many_particles(tmp_path):
    rule = CarryRule(0.9, 2.0)
    file = tmp_path / "model.safetensors"
    dataclasses.replace(untrained_on_a_line(), carry=rule).save(file)
    loaded = nbf.FittedModel.load(file)
    assert loaded.carry == rule
    assert loaded.filter(FEWEST_CARRIED).proposal == BranchProposal(rule)
    assert loaded.filter(FEWEST_CARRIED - 1).proposal is None
    assert "0.9 (1 - random mass)^2" in str(loaded)


def test_a_trained_model_is_not_lost_when_trust_cannot_be_measured(monkeypatch):
    def fails(*arguments, **options):
        raise InputError("no episodes")

    monkeypatch.setattr(fit, "earned_carry", fails)
    trained = Fitted(KnowsNothing(RING), np.zeros(1, np.float32), 0.0, np.zeros(0, np.float32))
    with pytest.warns(UserWarning, match="The model is trained, but .* could not be measured: no episodes"):
        assert fit._carry(0, trained, One(walk(), None), walk(), 4, False) is None


@pytest.mark.parametrize("fading", [0.5, 8])
def test_a_share_is_a_share_whatever_rounding_leaves(fading):
    for mass in (-1e-7, 0.0, 0.5, 1.0, 1.0 + 1e-6):
        share = CarryRule(0.9, fading)(jnp.float32(0.5), jnp.float32(mass))
        assert 0.0 <= share <= 0.9 + 1e-6
    assert CarryRule(0.9, fading)(jnp.float32(1.0), jnp.float32(0.0)) == 1.0
