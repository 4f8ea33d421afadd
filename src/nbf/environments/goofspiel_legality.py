"""Which states of Goofspiel agree with the public history: the rule that its `Tokens` space applies symbol by symbol.

It looks ahead: the cards that remain must suffice to explain the outcomes of the later rounds. Each outcome needs a
card of an interval (below, at or above the own bid), so by Hall's theorem they suffice if every interval of cards
contains at least as many remaining cards as outcomes that need one of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from nbf.environments.goofspiel_game import DRAW, LOSS, WIN


@dataclass(frozen=True)
class Consistent:
    """The rule for `Tokens`: different cards, as many as rounds were played, that agree with the outcomes so far.

    In the context of the first step the state before it is legal too: it is where every filter starts.
    """

    cards: int
    """k."""
    rounds: int
    """Of a game."""

    def __call__(self, prefix: Int[Array, " i"], context: Float[Array, " c"] | None) -> Bool[Array, " K"]:
        """Find the symbols that may follow a prefix.

        Args:
            prefix: The first symbols of a state.
            context: The public history, as `context` encodes it.

        Returns:
            A boolean for each of the k cards and for the padding symbol.
        """
        assert context is not None
        cards, rounds = jnp.arange(self.cards), jnp.arange(self.rounds)
        place = prefix.shape[0] - (self.cards - self.rounds)
        played, low, high = self._demands(context)
        waiting = (rounds > place) & (rounds < played) & (played > 1)
        unused = ~jnp.any(prefix[:, None] == cards, axis=0)
        below = jnp.cumsum(unused) - unused
        supply = (below + unused)[None, :] - below[:, None]
        inside = (low >= cards[:, None, None]) & (high <= cards[None, :, None])
        spare = supply - jnp.sum(inside & waiting, axis=-1)
        interval = cards[:, None] <= cards[None, :]
        around = (cards[:, None, None] <= cards) & (cards <= cards[None, :, None])
        enough = jnp.all(~around | (spare[:, :, None] >= 1), axis=(0, 1)) & jnp.all(~interval | (spare >= 0))
        legal = unused & enough & jnp.all(~waiting | (low <= high))
        if place < 0:
            return jnp.append(legal, False)
        legal = legal & (cards >= low[place]) & (cards <= high[place]) & (place < played)
        return jnp.append(legal, (place >= played) | ((place == 0) & (played == 1)))

    def context(
        self,
        deck: Bool[Array, " k"],
        bids: Int[Array, " rounds"],
        prizes: Int[Array, " rounds"],
        outcomes: Int[Array, " rounds"],
    ) -> Float[Array, " c"]:
        """Encode the public history as one-hot vectors, zero where something is not known.

        Args:
            deck: All prizes of the game, multi-hot.
            bids: The observer's, of each round; `NONE` where not known, as for prizes and outcomes.
            prizes: Of each round.
            outcomes: Of each round, for the observer.

        Returns:
            The context of the space.
        """
        parts = (jax.nn.one_hot(bids, self.cards), jax.nn.one_hot(outcomes, 3), jax.nn.one_hot(prizes, self.cards))
        return jnp.concatenate([*(part.ravel() for part in parts), deck.astype(jnp.float32)])

    def _demands(self, context: Float[Array, " c"]) -> tuple[Array, Array, Array]:
        """How many rounds were played, and the lowest and the highest card that explains the outcome of each."""
        size = self.cards * self.rounds
        bids = context[:size].reshape(self.rounds, self.cards)
        outcomes = context[size : size + 3 * self.rounds].reshape(self.rounds, 3)
        bid, played = jnp.argmax(bids, axis=1), jnp.sum(bids > 0)
        lost, drawn, won = (outcomes[:, which] > 0 for which in (LOSS, DRAW, WIN))
        low = jnp.where(lost, bid + 1, jnp.where(drawn, bid, 0))
        high = jnp.where(won, bid - 1, jnp.where(drawn, bid, self.cards - 1))
        return played, low, high
