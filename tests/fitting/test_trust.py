"""How far a model is trusted beside particles: against models that know nothing or all, and by scoring one by one."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fits import untrained_on_a_line
from scipy import optimize, stats
from tolerances import FLOAT, monte_carlo

import nbf
from nbf import prng
from nbf.environments.functional import One
from nbf.errors import InputError
from nbf.filters.neural import BranchProposal, CarryRule, NeuralBayesianFilter, RegeneratingProposal, Trust
from nbf.filters.regeneration import KernelSmoother
from nbf.fitting import fit, trust
from nbf.fitting.episodes import draw_episodes, log_scores, log_scores_in_turn
from nbf.fitting.trust import (
    FEWEST_CARRIED,
    LEAST,
    RULES,
    SHARES,
    MeasuredTrust,
    best_share,
    chosen,
    earned_carry,
    earned_shares,
)
from nbf.models.tabular import TabularModel
from nbf.spaces import Lattice
from nbf.training.fit import Fitted

CELLS = Lattice((5,))
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
    rules = (CarryRule(0.2, 8), CarryRule(0.95, 0.5))
    scores = []
    for rule in rules:
        filter = nbf.NeuralBayesianFilter(model, FEWEST_CARRIED, proposal=BranchProposal(rule))
        scores.append(np.mean(log_scores(filter, jax.random.fold_in(key, 1), drawn)))
    found = earned_carry(key, model, family, horizon=4, rules=rules, episodes=4)
    assert found == rules[int(np.argmax(scores))]


def test_a_trained_model_is_not_lost_when_trust_cannot_be_measured(monkeypatch):
    def fails(*arguments, **options):
        raise InputError("no episodes")

    monkeypatch.setattr(fit, "earned_trust", fails)
    trained = Fitted(KnowsNothing(RING), np.zeros(1, np.float32), 0.0, np.zeros(0, np.float32))
    with pytest.warns(UserWarning, match="The model is trained, but .* could not be measured: no episodes"):
        assert fit._trust(0, trained, One(walk(), None), walk(), 4, False) is None


@pytest.mark.parametrize("fading", [0.5, 8])
def test_a_share_is_a_share_whatever_rounding_leaves(fading):
    for mass in (-1e-7, 0.0, 0.5, 1.0, 1.0 + 1e-6):
        share = CarryRule(0.9, fading)(jnp.float32(0.5), jnp.float32(mass))
        assert 0.0 <= share <= 0.9 + 1e-6
    assert CarryRule(0.9, fading)(jnp.float32(1.0), jnp.float32(0.0)) == 1.0


@pytest.mark.parametrize("share", [0.3, 0.7])
def test_the_share_of_a_mixture_is_found(share):
    """Samples of s N(0, 1) + (1 - s) N(3, 1)."""
    random = np.random.default_rng(7)
    samples = np.where(
        random.random((100, 40)) < share, random.normal(size=(100, 40)), random.normal(3.0, 1.0, (100, 40))
    )
    first, second = stats.norm.logpdf(samples), stats.norm.logpdf(samples, 3.0)
    found, score = best_share(first, second)
    assert abs(found - share) < monte_carlo(np.sqrt(share * (1 - share)) * 1.5, samples.size) + 0.01
    best = optimize.minimize_scalar(
        lambda s: -np.mean(np.log(s * np.exp(first) + (1 - s) * np.exp(second))), bounds=(0.0, 1.0), method="bounded"
    )
    assert -best.fun - 1e-4 < score <= -best.fun + 1e-9


def test_a_density_that_fails_has_the_least_share():
    good, bad = np.zeros((3, 4)), np.full((3, 4), -np.inf)
    assert best_share(good, bad)[0] == pytest.approx(1 - LEAST)
    assert best_share(bad, good)[0] == pytest.approx(LEAST)
    # What neither can tell says nothing.
    assert best_share(np.vstack([good, bad]), np.vstack([bad, bad]))[0] == pytest.approx(1 - LEAST)


SIGNALS = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.4, 0.5, 0.1], [0.3, 0.3, 0.4]])


def placement():
    """One cell of five, which never changes, by signals."""
    return nbf.environment(
        init=lambda key: jax.random.randint(key, (1,), 0, 5),
        transition=lambda key, state, policy: state,
        observe=lambda key, state, next_state: jax.random.categorical(key, jnp.log(SIGNALS)[next_state[0]]),
        log_likelihood=lambda observation, state, next_state: jnp.log(SIGNALS)[next_state[0], observation],
        space=CELLS,
        symbols=3,
    )


def test_a_perfect_model_earns_all_of_it(key):
    """A table of the weighted set is exact where all cells have particles, and a kernel leaks into its neighbours."""
    found = earned_shares(key, TabularModel(CELLS), One(placement(), None), CELLS, 256, horizon=6, episodes=6)
    assert found.model_share == pytest.approx(1 - LEAST)


def test_a_share_is_chosen_by_its_own_run():
    """By what the runs with half say, the model should have nearly all; but with that share the filter loses track."""
    halves = {scale: np.stack([np.zeros((3, 4)), np.full((3, 4), -1.0)], axis=-1) for scale in (1.0, 0.5)}
    ran = []

    def run(share, scale):
        ran.append((share, scale))
        return halves[scale] - (3.0 if share > 0.8 else -0.1 if share == 0.75 else 0.0)

    assert chosen(halves, run) == Trust(0.75, 1.0)
    assert [share for share, _ in ran] == [1 - LEAST, *SHARES]


def test_width_and_share_are_those_of_the_best_run(key, monkeypatch):
    """Against filters that are built with other settings and scored by their own mixtures."""
    monkeypatch.setattr(trust, "SCALES", (1.0, 0.5))
    model, family = TabularModel(CELLS), One(placement(), None)
    found = earned_shares(key, model, family, CELLS, 8, horizon=4, episodes=6)
    drawn = draw_episodes(family, prng.fold_in(key, jnp.int32(0)), 6, 4)

    def score(share, scale):
        proposal = RegeneratingProposal(kernel=KernelSmoother(jnp.float32(scale)), model_share=jnp.float32(share))
        filter = NeuralBayesianFilter(model, 8, proposal=proposal)
        probs = np.exp(np.asarray(log_scores_in_turn(filter, jax.random.fold_in(key, 1), drawn), np.float64))
        return np.mean(np.log(probs + trust.UNIFORM / 5))

    best = score(found.model_share, found.kernel_scale)
    assert all(best >= score(0.5, scale) - 1e-4 for scale in (1.0, 0.5))


def test_trust_is_interpolated():
    """Shares along the logarithm of the calls, widths geometrically, rules by steps."""
    rule = CarryRule(0.9, 2.0)
    measured = MeasuredTrust((8, 32), (Trust(0.8, 1.0), Trust(0.4, 0.25, rule)))
    for calls, share, scale in ((4, 0.8, 1.0), (8, 0.8, 1.0), (16, 0.6, 0.5), (32, 0.4, 0.25), (64, 0.4, 0.25)):
        found = measured.at(calls)
        np.testing.assert_allclose(np.asarray([found.model_share, found.kernel_scale]), [share, scale], **FLOAT)
        assert found.carry == (rule if calls >= 32 else CarryRule())
    below = MeasuredTrust((FEWEST_CARRIED,), (Trust(carry=rule),)).at(FEWEST_CARRIED - 1)
    assert below == Trust()


@pytest.mark.parametrize(
    "wrong",
    [
        ((), ()),
        ((8, 4), (Trust(), Trust())),
        ((8,), (Trust(jnp.float32(1.5)),)),  # `Trust` itself checks plain numbers
        ((8,), (Trust(0.5, jnp.float32(0.0)),)),
        ((8,), (Trust(carry=CarryRule(0.7, 2000.0)),)),
        ((0,), (Trust(),)),
        ((1, 2), (Trust(),)),
    ],
)
def test_trust_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(InputError, match="Trust"):
        MeasuredTrust(*wrong)


@pytest.mark.parametrize(
    ("measured", "told"),
    [
        (MeasuredTrust((FEWEST_CARRIED,), (Trust(carry=CarryRule(0.9, 2.0)),)), "0.9 (1 - random mass)^2"),
        (MeasuredTrust((32, 256), (Trust(0.25, 0.5), Trust(0.125, 0.35))), "25% with 32 calls, 12% with 256 calls"),
    ],
    ids=["carried branches", "a kernel"],
)
def test_a_fitted_model_keeps_its_trust(measured, told, tmp_path):
    file = tmp_path / "model.safetensors"
    dataclasses.replace(untrained_on_a_line(), trust=measured).save(file)
    loaded = nbf.FittedModel.load(file)
    assert loaded.trust == measured
    assert loaded.filter(100).trust == measured.at(100)
    assert told in str(loaded)
