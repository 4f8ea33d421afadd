"""Random games of Goofspiel between policies of a pool, as episodes to train and evaluate on."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, PyTree

from nbf.capabilities import Episodic
from nbf.environments.goofspiel import Goofspiel, LargeGoofspiel, goofspiel
from nbf.environments.goofspiel_game import NONE, GoofspielGame, Playout
from nbf.errors import InputError


class GoofspielFamily(Episodic):
    """Random games between two policies of a pool, the opponent's known to the filter.

    The observer's bids depend on earlier outcomes, so an episode cannot be scheduled ahead of its hidden states;
    `episode` plays a whole game. Pass the family as an argument to compiled functions: XLA would fold a constant pool
    of 512 policies for minutes.
    """

    pool: PyTree
    """A `BidPolicy` whose leaves have a leading axis of policies."""
    game: GoofspielGame

    def __check_init__(self) -> None:
        sizes = {jnp.shape(leaf)[:1] for leaf in jax.tree.leaves(self.pool)}
        if not hasattr(self.pool, "log_probs") or len(sizes) > 1 or () in sizes or (0,) in sizes:
            raise InputError(
                "A pool is a policy with log_probs(view) whose leaves have one leading axis, of at least 1; got "
                f"{type(self.pool).__name__} with leading axes {sorted(sizes)}."
            )

    @property
    def size(self) -> int:
        """How many policies there are."""
        leaves = jax.tree.leaves(self.pool)
        return leaves[0].shape[0] if leaves else 1

    def policy(self, number: Int[Array, ""]) -> Any:
        """Take one policy of the pool.

        Args:
            number: Its index.

        Returns:
            The policy.
        """
        return jax.tree.map(lambda leaf: leaf[number], self.pool)

    def sample(self, key: Key[Array, ""]) -> tuple[Goofspiel | LargeGoofspiel, Any]:
        # The first round of a random game, before its outcome is known.
        game, policy = self._play(key)
        unknown = jnp.full_like(game.outcomes, NONE)
        return goofspiel(self.game, game.deck, jnp.int32(0), game.bids[:, 0], game.prizes, unknown), policy

    def episode(self, key: Key[Array, ""]) -> tuple[Any, Any, Int[Array, " rounds"], Int[Array, "rounds+1 k"]]:
        game, policy = self._play(key)
        record = game.bids[:, 0], game.prizes, game.outcomes
        times = jnp.arange(self.game.rounds, dtype=jnp.int32)
        environments = jax.vmap(lambda time: goofspiel(self.game, game.deck, time, *record))(times)
        policies = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (self.game.rounds, *leaf.shape)), policy)
        first = jnp.argmin(game.hands[1], keepdims=True)[: self.game.cards - self.game.rounds]
        hidden = jnp.concatenate([first, game.bids[:, 1]]).astype(jnp.int32)
        known = jnp.arange(self.game.rounds + 1)[:, None] + self.game.cards - self.game.rounds
        states = jnp.where(jnp.arange(self.game.cards) < known, hidden, self.game.cards)
        return environments, policies, game.outcomes, states

    def _play(self, key: Key[Array, ""]) -> tuple[Playout, Any]:
        """A random game, and the opponent's policy."""
        choice_key, game_key = jax.random.split(key)
        own, other = jax.random.randint(choice_key, (2,), 0, self.size)
        policy = self.policy(other)
        return self.game.play(game_key, (self.policy(own), policy)), policy
