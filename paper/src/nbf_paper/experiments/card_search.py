"""A player of trick-taking games who searches: determinised one-step search, as an opponent unlike those of self-play.

For each decision it imagines some deals of the cards that it does not see, tries every legal action in each of them,
and plays the game out with all players by one rule. The mean points of an action, by a softmax, make its probability
(perfect-information Monte Carlo, Ginsberg 2001, with one rollout for each deal). The random numbers behind the deals
belong to the player, so that the probabilities are a function of what it sees, and are known exactly.

Hands are sets of cards, as the bits of a number, so that a step of a rollout is some operations on whole numbers.
Players are numbered from the one who searches on, in the order of their turns.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, UInt32

from nbf.environments.trick_taking import NONE, TrickTaking
from nbf.errors import InputError

MOST_CARDS = 32
"""Bits of a set of cards."""
DEALS = 16
"""That are imagined at each decision."""
HIGH, HIGH_TRUMPS = 0.25, 0.6
"""The shares of the highest cards of a suit, and of trumps, that count as a trick in a bid by rule."""
Cards = UInt32[Array, "..."]
"""Sets of cards."""


class Seen(NamedTuple):
    """What `TrickTaking.view` says. Who failed to follow suit is not in it."""

    hand: Bool[Array, " cards"]
    played: Bool[Array, "players cards"]
    turned_up: Bool[Array, " cards"]
    best: Bool[Array, " cards"]
    bids: Int[Array, " players"]
    has_bid: Bool[Array, " players"]
    won: Int[Array, " players"]
    dealer: Int[Array, ""]
    led: Bool[Array, " suits"]

    @classmethod
    def of(cls, rules: TrickTaking, view: Float[Array, " view"]) -> Seen:
        """Read a view."""
        cards, players = rules.cards, rules.players
        sizes = (cards, players * cards, cards, cards, players, players, players, players, rules.suits)
        ends = np.cumsum(sizes)
        hand, played, up, best, bids, has_bid, won, dealer, led, _ = jnp.split(view, ends)
        counts = [jnp.round(part * rules.tricks).astype(jnp.int32) for part in (bids, won)]
        played = played.reshape(players, cards) > 0
        return cls(
            hand > 0, played, up > 0, best > 0, counts[0], has_bid > 0, counts[1], jnp.argmax(dealer), led > 0
        )  # fmt: skip


class Setting(NamedTuple):
    """What stays the same while cards are played, in many lanes; players are a tuple."""

    hands: tuple[Cards, ...]
    """The cards of each player, also those that were played since."""
    bids: tuple[Int[Array, "..."], ...]
    trumps: Cards
    """The cards of that suit."""


class Table(NamedTuple):
    """What changes with each card, in many lanes. Few numbers: they are what a step of a rollout costs."""

    time: Int[Array, ""]
    """Actions so far; the same in all lanes."""
    left: Cards
    """Cards that are not played."""
    won: Int[Array, "..."]
    """Tricks of all players, four bits each."""
    player: Int[Array, "..."]
    led: Cards
    """The cards of the suit that was led, or none."""
    best: Cards
    """The card that wins the trick so far, or none."""
    winner: Int[Array, "..."]
    """Who played it."""


def as_set(held: Bool[Array, "... cards"]) -> Cards:
    """The bits of cards."""
    return jnp.sum(held.astype(jnp.uint32) << np.arange(held.shape[-1], dtype=np.uint32), axis=-1, dtype=jnp.uint32)


def suits(rules: TrickTaking) -> UInt32[np.ndarray, " suits"]:
    """The cards of each suit."""
    every = [sum(1 << card for card in range(suit, rules.cards, rules.suits)) for suit in range(rules.suits)]
    return np.array(every, np.uint32)


def lowest(cards: Cards) -> Cards:
    """The lowest card of a set, alone."""
    return cards & (~cards + jnp.uint32(1))


def _filled(cards: Cards) -> Cards:
    """All cards up to the highest of a set."""
    for shift in (1, 2, 4, 8, 16):
        cards = cards | (cards >> jnp.uint32(shift))
    return cards


def highest(cards: Cards) -> Cards:
    """The highest card of a set, alone."""
    filled = _filled(cards)
    return filled ^ (filled >> jnp.uint32(1))


def _first(*sets: Cards) -> Cards:
    """The first of some sets that is not empty."""
    *others, found = sets
    for cards in reversed(others):
        found = jnp.where(cards > 0, cards, found)
    return found


def _of(parts: tuple[Array, ...], place: Int[Array, "..."]) -> Array:
    """The part of a player."""
    found = parts[0]
    for number, part in enumerate(parts[1:], 1):
        found = jnp.where(place == number, part, found)
    return found


def tricks_of(won: Int[Array, "..."], player: Int[Array, "..."] | int) -> Int[Array, "..."]:
    """The tricks of a player."""
    return (won >> (4 * player)) & 15


class SearchPlayer(eqx.Module):
    """Plays by determinised search. It reads `TrickTaking.view` alone."""

    order: Float[Array, "deals cards"]
    """Who is dealt the unseen cards in each imagined deal: in ascending order."""
    temperature: Float[Array, ""]
    """In points."""
    rules: TrickTaking

    def __check_init__(self) -> None:
        if self.rules.cards > MOST_CARDS:
            raise InputError(f"The search player knows games of up to {MOST_CARDS} cards; got {self.rules.cards}.")

    @classmethod
    def random(cls, key: Key[Array, ""], rules: TrickTaking, deals: int = DEALS) -> SearchPlayer:
        """A player with random numbers of its own, and a random temperature between half a point and one and a half."""
        order_key, key = jax.random.split(key)
        return cls(jax.random.uniform(order_key, (deals, rules.cards)), 0.5 + jax.random.uniform(key), rules)

    def log_probs(self, view: Float[Array, " view"], legal: Bool[Array, " actions"]) -> Float[Array, " actions"]:
        return jax.nn.log_softmax(jnp.where(legal, self.points(view, legal) / self.temperature, -jnp.inf))

    def points(self, view: Float[Array, " view"], legal: Bool[Array, " actions"]) -> Float[Array, " actions"]:
        """Mean points over the imagined deals, of each legal action."""
        rules = self.rules
        seen, bidding = Seen.of(rules, view), ~jnp.all(Seen.of(rules, view).has_bid)
        cards, rest = list[Cards](), as_set(legal[: rules.cards])
        for _ in range(rules.tricks):
            cards.append(lowest(rest))
            rest = rest ^ cards[-1]
        tried, bids = jnp.stack([*cards, jnp.uint32(0)])[:, None], jnp.arange(rules.tricks + 1)[:, None]
        setting, table = self._imagined(seen, jnp.where(bidding, bids, seen.bids[0]))
        after = played(rules, setting, table, tried)
        after = jax.tree.map(lambda new, old: jnp.where(bidding, old, new), after, table)
        end = jax.lax.while_loop(
            lambda table: table.time < rules.length, lambda table: by_rule(rules, setting, table), after
        )
        won = tricks_of(end.won, 0)
        found = jnp.mean(won + rules.bonus * (won == setting.bids[0]), axis=1)
        bits = jnp.uint32(1) << np.arange(rules.cards, dtype=np.uint32)
        of_cards = jnp.sum(jnp.where(tried == bits, found[:, None], 0.0), axis=0)
        return jnp.concatenate([of_cards, found])

    def _imagined(self, seen: Seen, bids: Int[Array, "actions 1"]) -> tuple[Setting, Table]:
        """The game in each imagined deal, when all have bid; a lane for each action, which may be a bid, and deal."""
        rules, lanes = self.rules, (self.rules.tricks + 1, len(self.order))
        counts = jnp.sum(seen.played, axis=1)
        unseen = ~(seen.hand | jnp.any(seen.played, axis=0) | seen.turned_up)
        earlier = (self.order[:, None] < self.order[:, :, None]).astype(jnp.float32)
        place = earlier @ unseen.astype(jnp.float32)  # of each card among the unseen ones
        hands, dealt = [as_set(seen.hand)], jnp.float32(0.0)
        for player in range(1, rules.players):
            size = (rules.tricks - counts[player]).astype(jnp.float32)
            hands.append(as_set(unseen & (place >= dealt) & (place < dealt + size)))
            dealt = dealt + size
        same_suit = jnp.asarray(suits(rules))
        trumps = same_suit[jnp.argmax(seen.turned_up) % rules.suits]
        made, total = [bids], bids + jnp.sum(jnp.where(seen.has_bid, seen.bids, 0).at[0].set(0))
        for player in range(1, rules.players):
            bid = rule_bid(rules, hands[player], trumps, jnp.where(seen.dealer == player, rules.tricks - total, NONE))
            made.append(jnp.where(seen.has_bid[player], seen.bids[player], bid))
            total = total + jnp.where(seen.has_bid[player], 0, bid)
        bidding = ~jnp.all(seen.has_bid)
        won = jnp.sum(seen.won << (4 * np.arange(rules.players)))
        winner = jnp.argmax(jnp.any(seen.played & seen.best, axis=1))
        led = jnp.sum(jnp.where(seen.led, same_suit, 0), dtype=jnp.uint32)
        leads = jnp.where(bidding, (seen.dealer + 1) % rules.players, 0)
        every = jnp.uint32((1 << rules.cards) - 1)
        time = jnp.where(bidding, rules.players, rules.players + jnp.sum(counts))
        parts = every, won, leads, led, as_set(seen.best), winner
        kinds = jnp.uint32, jnp.int32, jnp.int32, jnp.uint32, jnp.uint32, jnp.int32
        table = Table(time, *(jnp.full(lanes, part, kind) for part, kind in zip(parts, kinds, strict=True)))
        return Setting(tuple(hands), tuple(made), trumps), table


def rule_bid(rules: TrickTaking, hand: Cards, trumps: Cards, banned: Int[Array, "..."]) -> Int[Array, "..."]:
    """As many tricks as there are high cards; one more or less if that is not allowed."""

    def top(share: float) -> np.uint32:
        return np.uint32(sum(1 << card for card in range(round((1 - share) * rules.ranks) * rules.suits, rules.cards)))

    bid = jax.lax.population_count(hand & ((trumps & top(HIGH_TRUMPS)) | top(HIGH))).astype(jnp.int32)
    return jnp.where(bid == banned, jnp.where(bid < rules.tricks, bid + 1, bid - 1), bid)


def played(rules: TrickTaking, setting: Setting, table: Table, card: Cards) -> Table:
    """The game after a card."""
    beats = (card & _winning(rules, setting, table)) > 0
    winner = jnp.where(beats, table.player, table.winner)
    over = (table.time + 1) % rules.players == 0
    none = jnp.uint32(0)
    return Table(
        time=table.time + 1,
        left=table.left & ~card,
        won=table.won + jnp.where(over, 1 << (4 * winner), 0),
        player=jnp.where(over, winner, (table.player + 1) % rules.players),
        led=jnp.where(over, none, jnp.where(table.led > 0, table.led, _suit(rules, card))),
        best=jnp.where(over, none, jnp.where(beats, card, table.best)),
        winner=winner,
    )


def by_rule(rules: TrickTaking, setting: Setting, table: Table) -> Table:
    """The game after one more card by the rule.

    Who needs a trick plays the lowest card that wins so far if it is the last of the trick, else the highest one, and
    the lowest of all if none wins. Who needs none plays the highest card that does not win, or the lowest.
    """
    hand = _of(setting.hands, table.player) & table.left
    follows = hand & table.led
    legal = jnp.where(follows > 0, follows, hand)
    winning = legal & _winning(rules, setting, table)
    last = (table.time + 1) % rules.players == 0
    takes = _first(jnp.where(last, lowest(winning), highest(winning)), lowest(legal))
    ducks = _first(highest(legal & ~winning), lowest(legal))
    needs = _of(setting.bids, table.player) > tricks_of(table.won, table.player)
    card = jax.lax.optimization_barrier(jnp.where(needs, takes, ducks))  # else it is computed for each part of a table
    return played(rules, setting, table, card)


def _suit(rules: TrickTaking, card: Cards) -> Cards:
    """All cards of the suit of a card."""
    found = jnp.zeros_like(card)
    for every in suits(rules):
        found = jnp.where((card & every) > 0, every, found)
    return found


def _winning(rules: TrickTaking, setting: Setting, table: Table) -> Cards:
    """The cards that would win the trick so far."""
    above = _suit(rules, table.best) & ~_filled(table.best)
    winning = jnp.where((table.best & setting.trumps) > 0, above, above | setting.trumps)
    return jnp.where(table.best > 0, winning, ~jnp.uint32(0))
