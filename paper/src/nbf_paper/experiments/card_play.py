"""ISMCTS of OpenSpiel with different beliefs about the hidden hands, on duplicate deals.

Player 0 searches; the others play policies of a run of self-play that nothing was tuned on. Every belief plays the same
deals, and differs in the resampler alone. OpenSpiel's own resampler is no belief: it leaves the cards that were not
dealt where they are, which a player cannot know.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from nbf import prng
from nbf.adapters.oh_hell import OhHellResampler
from nbf.beliefs.hands import HandBelief
from nbf.contracts import Belief
from nbf.environments.hidden_hands import PlayPolicy, allowed_owners
from nbf.environments.trick_taking import Game, TrickTaking
from nbf.errors import MissingExtraError, missing_extra
from nbf.spaces.deal_weights import completions
from nbf_paper.experiments.card_inference import EqualDeals

SEARCHER = 0


class Played(NamedTuple):
    """One game."""

    points: float
    ratios: list[float]
    """log of how much likelier the true deal is drawn than by the rules alone, at each decision."""
    seconds: list[float]
    """Of each decision."""
    resampling: float
    """Seconds of a decision in the resampler: the belief, and making states of OpenSpiel."""
    errors: list[float]
    """Of the marginals at each decision, but one before any action; none without a truth."""


def spiel() -> Any:
    """OpenSpiel, or an error that names the extra."""
    try:
        import pyspiel
    except ModuleNotFoundError as error:
        raise MissingExtraError(missing_extra(error, "ISMCTS") or str(error)) from error
    return pyspiel


@eqx.filter_jit
def _chosen(rules: TrickTaking, key: Key[Array, ""], game: Game, policy: PlayPolicy) -> Int[Array, ""]:
    log_probs = policy.log_probs(rules.view(game, game.hands[game.player]), rules.legal(game))
    return prng.categorical(key, jnp.exp(log_probs))


@eqx.filter_jit
def _next(rules: TrickTaking, game: Game, action: Int[Array, ""]) -> Game:
    return rules.play(game, action)


def game_of(rules: TrickTaking) -> Any:
    """OpenSpiel's game with these rules."""
    return spiel().load_game(
        f"oh_hell(players={rules.players},num_suits={rules.suits},num_cards_per_suit={rules.ranks},"
        f"num_tricks_fixed={rules.tricks})"
    )


class _Timed:
    """A resampler, and the seconds that were spent in it."""

    def __init__(self, belief: OhHellResampler | None):
        self.belief, self.seconds = belief, 0.0

    def __call__(self, state: Any, player: int) -> Any:
        start = time.perf_counter()
        if self.belief is None:  # what the bot does without a resampler
            found = state.resample_from_infostate(player, spiel().UniformProbabilitySampler(0.0, 1.0))
        else:
            found = self.belief(state, player)
        self.seconds += time.perf_counter() - start
        return found


def _bot(rules: TrickTaking, game: Any, resampler: _Timed, simulations: int, seed: int, evaluator: Any) -> Any:
    """OpenSpiel's ISMCTS."""
    from open_spiel.python.algorithms import ismcts, mcts

    random = np.random.RandomState(seed)
    leaves = evaluator or mcts.RandomRolloutEvaluator(1, random)
    bot = ismcts.ISMCTSBot(game, leaves, 2.0 * rules.bonus, simulations, random_state=random)
    bot.set_resampler(resampler)
    return bot


def play(
    rules: TrickTaking, key: Key[Array, ""], policies: dict[int, PlayPolicy], belief: OhHellResampler | None,
    simulations: int, seed: int, *, evaluator: Any = None, truth: OhHellResampler | None = None,
) -> Played:  # fmt: skip
    """One game of ISMCTS with a belief; None is OpenSpiel's own resampler. Without an evaluator of leaves, they are
    played out at random. `truth` is the exact posterior, if errors are wanted."""
    open_spiel, resampler = game_of(rules), _Timed(belief)
    bot = _bot(rules, open_spiel, resampler, simulations, seed, evaluator)
    deal_key, play_key = jax.random.split(key)
    deck_key, dealer_key = jax.random.split(deal_key)
    deck = np.asarray(jax.random.permutation(deck_key, rules.cards))
    dealer = int(jax.random.randint(dealer_key, (), 0, rules.players))
    game, state = rules.dealt(jnp.asarray(deck), jnp.int32(dealer)), open_spiel.new_initial_state()
    for action in (rules.tricks, dealer, *deck[: rules.players * rules.tricks + 1]):
        state.apply_action(int(action))
    ratios, errors, seconds, number = list[float](), list[float](), list[float](), 0
    while not state.is_terminal():
        mover = state.current_player()
        if mover == SEARCHER:
            start = time.perf_counter()
            action = int(bot.step(state))
            choice = len(state.legal_actions()) > 1  # else there is no search, and no belief is needed
            if choice:
                seconds.append(time.perf_counter() - start)
            if choice and belief is not None:
                ratios.append(belief.log_prob(state, SEARCHER) + float(log_deals(rules, game)))
            if choice and belief is not None and truth is not None and number:
                both = belief.belief(state, SEARCHER), truth.belief(state, SEARCHER)
                errors.append(float(marginal_error(rules, game, *both)))
        else:
            action = int(_chosen(rules, prng.fold_in(play_key, jnp.int32(number)), game, policies[mover]))
        game, number = _next(rules, game, jnp.int32(action)), number + 1
        state.apply_action(action)
    return Played(state.returns()[SEARCHER], ratios, seconds, resampler.seconds / len(seconds), errors)


@eqx.filter_jit
def log_deals(rules: TrickTaking, game: Game) -> Float[Array, ""]:
    """log of the number of deals that what player 0 knows allows."""
    allowed = allowed_owners(rules, game, SEARCHER).astype(jnp.float32)
    return completions(allowed, (rules.tricks,) * (rules.players - 1))[1]


@eqx.filter_jit
def marginal_error(rules: TrickTaking, game: Game, belief: Belief, truth: Belief) -> Float[Array, ""]:
    """The mean absolute error of marginals over the cards that are not settled, and their owners."""
    both = []
    for one in (belief, truth):
        known = isinstance(one, HandBelief | EqualDeals)
        both.append(one.marginals() if known else one.expectation(lambda deal: jax.nn.one_hot(deal, rules.players)))
    unsettled = jnp.sum(allowed_owners(rules, game, SEARCHER), axis=1) > 1
    apart = jnp.where(unsettled, jnp.mean(jnp.abs(both[0] - both[1]), axis=1), 0.0)
    return jnp.sum(apart) / jnp.maximum(jnp.sum(unsettled), 1)
