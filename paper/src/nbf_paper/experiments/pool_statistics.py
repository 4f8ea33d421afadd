"""What a pool of Goofspiel policies is like: how random, how strong, and how different its policies are."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from nbf import prng
from nbf.environments.goofspiel import MOST_LISTED
from nbf.environments.goofspiel_family import GoofspielFamily
from nbf.environments.goofspiel_game import BidPolicy, CardPolicy, GameState, GoofspielGame, UniformPolicy
from nbf.evaluation.divergence import jensen_shannon
from nbf.filters.prefixes import PrefixFilter
from nbf.filters.run import run
from nbf_paper.experiments.policy_pool import PolicyPool
from nbf_paper.experiments.ppo import entropy
from nbf_paper.experiments.selfplay import SelfPlayConfig


def match(game: GoofspielGame, key: Key[Array, ""], mine: BidPolicy, other: BidPolicy) -> tuple[Array, Array]:
    """The result of one game, and the mean entropy of our bids while there was a choice."""
    deal_key, round_key = jax.random.split(key)

    def step(state: GameState, key: Key[Array, ""]) -> tuple[GameState, tuple[Array, Array]]:
        keys = jax.random.split(key, 3)
        choices = [policy.log_probs(game.view(state, i)) for i, policy in enumerate((mine, other))]
        bids = jnp.stack([prng.categorical(keys[i], jnp.exp(choices[i])) for i in (0, 1)])
        return game.step(keys[2], state, bids)[0], (entropy(choices[0]), jnp.sum(state.hands[0]) > 1)

    final, (entropies, free) = jax.lax.scan(step, game.reset(deal_key), jax.random.split(round_key, game.rounds))
    return game.returns(final)[0], jnp.sum(jnp.where(free, entropies, 0.0)) / jnp.maximum(jnp.sum(free), 1)


@eqx.filter_jit
def _matches(
    game: GoofspielGame, keys: Key[Array, "n games"], mine: Any, other: Any, shared: bool
) -> tuple[Array, Array]:
    """Mean result and entropy of each policy against its own opponent, or against a shared one."""

    def one(keys: Key[Array, " games"], mine: Any, other: Any) -> tuple[Array, Array]:
        results, entropies = jax.vmap(lambda key: match(game, key, mine, other))(keys)
        return jnp.mean(results), jnp.mean(entropies)

    return jax.vmap(one, (0, 0, None if shared else 0))(keys, mine, other)


@eqx.filter_jit
def _divergences(game: GoofspielGame, keys: Key[Array, " n"], mine: Any, other: Any) -> Float[Array, " n"]:
    """Mean JS between the beliefs that two policies induce about the same game, played by the first."""

    def one(key: Key[Array, ""], mine: CardPolicy, other: CardPolicy) -> Float[Array, ""]:
        first = jax.tree.map(lambda leaf: leaf[None], mine)
        environments, policies, outcomes, _ = GoofspielFamily(first, game).episode(key)
        wrong = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (game.rounds, *leaf.shape)), other)
        beliefs = [
            run(PrefixFilter(), key, outcomes, environments, each, changing=True)[0] for each in (policies, wrong)
        ]
        return jnp.mean(jax.vmap(jensen_shannon)(*beliefs))

    return jax.vmap(one)(keys, mine, other)


def describe(pool: PolicyPool[SelfPlayConfig], *, games: int = 64, pairs: int = 256) -> dict[str, Any]:
    """Statistics of a pool: by checkpoint, the entropy of the policies and their results against a random player and
    against the first policy of their run; and the JS between the beliefs that two policies induce.

    A result is the mean of 1 for a win, 0 for a draw and -1 for a loss.
    """
    game, config = pool.config.game, pool.config
    key = config.stream("report")
    keys = jax.random.split(key, (pool.size, games))
    first = pool.some(pool.run_of() * config.checkpoints)
    random, entropies = _matches(game, keys, pool.policies, UniformPolicy(), True)
    against_first, _ = _matches(game, keys, pool.policies, first, False)
    found = {
        "policies": pool.size, "seconds": round(pool.seconds, 1), "entropy": np.asarray(entropies).tolist(),
        "against_random": np.asarray(random).tolist(), "against_first": np.asarray(against_first).tolist(),
    }  # fmt: skip
    if config.cards <= MOST_LISTED:
        rng = np.random.default_rng(config.seed)
        one = rng.integers(pool.size - 1, size=pairs)
        others = {"neighbours": one + 1, "any": rng.integers(pool.size, size=pairs)}
        pair_keys = jax.random.split(jax.random.fold_in(key, 1), pairs)
        for name, other in others.items():
            js = _divergences(game, pair_keys, pool.some(one), pool.some(other))
            found[f"belief_js_{name}"] = float(jnp.mean(js))
    return found
