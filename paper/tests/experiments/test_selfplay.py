"""Self-play: PPO's parts against their definitions, and pools that are made, kept, gone on with and split."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tolerances import FLOAT, SEED

from nbf.environments.goofspiel_game import UniformPolicy, held
from nbf.errors import InputError
from nbf_paper.experiments import policy_pool, pool_statistics, ppo
from nbf_paper.experiments.policy_pool import PolicyPool, make_pool, read_pool
from nbf_paper.experiments.ppo import Decisions, Learner, advantages, objective
from nbf_paper.experiments.selfplay import SelfPlayConfig

TINY = SelfPlayConfig(cards=3, runs=2, checkpoints=3, timesteps=64, epochs=2, minibatch=32, width=8, depth=1)


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("pool") / "pool.safetensors"


@pytest.fixture(scope="module")
def pool(file) -> PolicyPool:
    return make_pool(TINY, file, progress=False)


def test_advantages_are_the_sums_of_the_definition():
    rng = np.random.default_rng(0)
    rewards, values = rng.normal(size=(2, 5, 3))
    found = advantages(jnp.asarray(rewards), jnp.asarray(values), 0.9, 0.8)
    after = np.concatenate([values[1:], np.zeros((1, 3))])
    errors = rewards + 0.9 * after - values
    for t in range(5):
        expected = sum((0.9 * 0.8) ** (later - t) * errors[later] for later in range(t, 5))
        np.testing.assert_allclose(found[t], expected, **FLOAT)


def test_with_no_discount_and_the_whole_trace_an_advantage_is_the_result_less_the_value():
    rewards, values = np.zeros((4, 2), np.float32), np.arange(8.0, dtype=np.float32).reshape(4, 2)
    rewards[-1] = [1.0, -1.0]
    found = advantages(jnp.asarray(rewards), jnp.asarray(values), 1.0, 1.0)
    np.testing.assert_allclose(found, rewards[-1] - values, **FLOAT)


@pytest.mark.slow
def test_the_loss_at_the_old_policy_has_the_gradient_of_the_policy_gradient_theorem(key):
    """There the ratio is 1 and nothing is clipped: the gradient is that of -mean(A log π)."""
    learner = TINY.learner(key)
    learner = jax.tree.map(
        lambda leaf: leaf + 0.3 * jnp.sin(jnp.arange(leaf.size, dtype=leaf.dtype)).reshape(leaf.shape), learner
    )
    bids = TINY.play(key, learner, learner.policy)
    config = replace(TINY, value_weight=0.0)
    gained = (bids.advantages - bids.advantages.mean()) / bids.advantages.std()

    def surrogate(learner):
        log_probs = jax.vmap(learner.policy.log_probs)(*bids.inputs)
        return -jnp.mean(gained * jnp.take_along_axis(log_probs, bids.actions[:, None], axis=1)[:, 0])

    ours = jax.grad(lambda learner: objective(learner, bids, config))(learner)
    theirs = jax.grad(surrogate)(learner)
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)
        assert np.all(np.isfinite(one))


@pytest.fixture(scope="module")
def played() -> tuple[Learner, Decisions]:
    """A new learner and its bids against itself, which count the results of games alone."""

    @jax.jit
    def play(key):
        learner = TINY.learner(key)
        return learner, replace(TINY, discount=1.0, trace=1.0).play(key, learner, learner.policy)

    return play(jax.random.key(SEED))


def test_beyond_the_clip_there_is_no_gradient(played):
    learner, bids = played
    # The new policy would be e times as likely to bid so where that was good, and e times less where it was bad.
    gained = np.asarray(bids.advantages)
    moved = replace(bids, log_probs=jnp.asarray(np.asarray(bids.log_probs) - np.sign(gained - gained.mean())))
    gradient = jax.jit(jax.grad(lambda learner: objective(learner, moved, replace(TINY, value_weight=0.0))))(learner)
    for leaf in jax.tree.leaves(gradient.policy):
        np.testing.assert_allclose(leaf, 0.0, atol=1e-7)


def test_bids_are_cards_of_the_hand_and_results_are_those_of_games(played):
    _, bids = played
    assert np.all(jax.jit(jax.vmap(lambda view, card: held(view)[card]))(bids.inputs[0], bids.actions))
    assert set(np.unique(np.round(np.asarray(bids.returns), 5))) <= {-1.0, 0.0, 1.0}
    np.testing.assert_allclose(np.exp(np.asarray(bids.log_probs).reshape(2, -1)[-1]), 1.0, **FLOAT)  # one card is left


@pytest.mark.slow
def test_it_learns_to_beat_a_random_player(tmp_path):
    config = SelfPlayConfig(cards=4, runs=1, checkpoints=24)
    pool = make_pool(config, tmp_path / "pool.safetensors", progress=False)
    found = pool_statistics.describe(pool, games=512, pairs=8)
    assert np.mean(found["against_random"][-4:]) > np.mean(found["against_random"][:2]) + 0.15
    assert found["entropy"][-1] < found["entropy"][0] - 0.1


def test_a_pool_is_every_checkpoint_and_the_same_when_it_was_stopped(pool, tmp_path, monkeypatch):
    assert pool.size == 6
    np.testing.assert_array_equal(pool.run_of(), [0, 0, 0, 1, 1, 1])
    path, advance, calls = tmp_path / "pool.safetensors", ppo.advance, []

    def interrupted(*arguments):
        calls.append(arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return advance(*arguments)

    monkeypatch.setattr(policy_pool, "advance", interrupted)
    with pytest.raises(KeyboardInterrupt):
        make_pool(TINY, path, progress=False)
    assert read_pool(path, SelfPlayConfig)[0].size == 2
    again = make_pool(TINY, path, progress=False)
    assert len(calls) == 3 + 4
    jax.tree.map(np.testing.assert_array_equal, again.policies, pool.policies)
    make_pool(TINY, path, progress=False)
    assert len(calls) == 3 + 4  # what is there is not made again


@pytest.mark.usefixtures("pool")
def test_a_pool_of_other_settings_and_a_damaged_one_are_refused(file, tmp_path):
    path = tmp_path / "pool.safetensors"
    path.write_bytes(file.read_bytes())
    with pytest.raises(InputError, match="other settings"):
        make_pool(replace(TINY, runs=1, checkpoints=1), path, progress=False)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(InputError, match="not a readable checkpoint"):
        read_pool(path, SelfPlayConfig)


def test_a_split_parts_the_pool(pool):
    split = pool.split()
    sizes = [part.biases[0].shape[0] for part in (split.training, split.random, split.run)]
    assert sizes == [2, 1, 3]
    every = np.concatenate([part.weights[0] for part in (split.training, split.random, split.run)])
    np.testing.assert_array_equal(np.unique(every, axis=0), np.unique(pool.policies.weights[0], axis=0))
    np.testing.assert_array_equal(split.run.weights[0], np.asarray(pool.policies.weights[0])[3:])


def test_one_run_cannot_be_split(pool):
    alone = PolicyPool(pool.some(np.arange(3)), replace(pool.config, runs=1), 0.0)
    with pytest.raises(InputError, match=r"4 policies, of 2 runs; got 3 of 1"):
        alone.split()


def test_a_pool_is_described(pool):
    found = pool_statistics.describe(pool, games=8, pairs=8)
    assert len(found["entropy"]) == len(found["against_random"]) == len(found["against_first"]) == 6
    assert all(0.0 <= entropy <= np.log(2) + 1e-5 for entropy in found["entropy"])  # of two cards at the first bid
    assert 0.0 <= found["belief_js_neighbours"] <= np.log(2)


def test_the_random_player_has_the_entropy_of_its_hand(key):
    match = jax.jit(lambda key: pool_statistics.match(TINY.game, key, UniformPolicy(), UniformPolicy()))
    result, entropy = match(key)
    np.testing.assert_allclose(entropy, np.log(2), **FLOAT)  # of two cards; the last bid is no choice
    assert float(result) in (-1.0, 0.0, 1.0)


@pytest.mark.parametrize("wrong", [{"cards": 1}, {"runs": 0}, {"minibatch": 0}, {"learning_rate": 0.0}])
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        replace(TINY, **wrong)
