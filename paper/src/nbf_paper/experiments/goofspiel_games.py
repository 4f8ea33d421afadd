"""Games of Goofspiel in which filters are scored: their exact posteriors, and the divergence of a belief from them.

A belief is compared on the support of the exact posterior, with all its mass elsewhere in one further bin. That equals
the divergence over all sequences, because where the posterior is zero only the belief's total mass matters.
"""

from __future__ import annotations

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from nbf import prng
from nbf.contracts import Filter, FilterState, StateSpace
from nbf.environments.goofspiel import Goofspiel
from nbf.environments.goofspiel_family import GoofspielFamily
from nbf.environments.goofspiel_game import CardPolicy
from nbf.environments.rollout import at_step
from nbf.evaluation.batches import in_batches
from nbf.evaluation.divergence import jensen_shannon, state_probabilities
from nbf.filters.approximate import ApproxBeliefs
from nbf.filters.neural import NeuralBayesianFilter
from nbf.filters.prefixes import PrefixFilter
from nbf.filters.recurrent import RecurrentFilter
from nbf.filters.run import run
from nbf.models.belief_model import BeliefEmbeddingModel
from nbf.models.dequantization import DequantizedFlow

NEGLIGIBLE = 1e-8
"""States of a smaller posterior probability are put into the further bin. There are at most 5040 of them: together they
change a divergence by less than 1e-4."""
CHUNK = 8
"""States whose probabilities are computed together: small, so that beliefs of small support are not padded much."""


class GameTrack(eqx.Module):
    """One game, and its exact posteriors."""

    environments: Goofspiel
    policies: CardPolicy
    observations: Int[Array, " rounds"]
    truth: Float[Array, "rounds states"]
    entropy: Float[Array, ""]
    """Entropy of the opponent's bids in nats: the mean over its possible hands, and over the rounds with a choice."""


def bid_entropy(environment: Goofspiel, policy: CardPolicy) -> Float[Array, ""]:
    """Entropy of a bid in nats: the mean over the hands that the opponent may hold in this round."""
    log_probs = environment.choice_log_probs(policy)
    surprise = jnp.where(log_probs > -jnp.inf, -jnp.exp(log_probs) * log_probs, 0.0)
    held = jnp.any(log_probs > -jnp.inf, axis=1)
    return jnp.sum(jnp.where(held, jnp.sum(surprise, axis=1), 0.0)) / jnp.sum(held)


# Families and models are arguments of what is compiled, never constants of it: see `GoofspielFamily`.
@eqx.filter_jit
def tracks(family: GoofspielFamily, keys: Key[Array, " episodes"]) -> GameTrack:
    """Random games of a family."""

    def one(key: Key[Array, ""]) -> GameTrack:
        environments, policies, observations, _ = family.episode(key)
        truth, _ = run(PrefixFilter(), key, observations, environments, policies, changing=True)
        entropy = jnp.mean(jax.vmap(bid_entropy)(environments, policies)[:-1])
        return GameTrack(environments, policies, observations, truth, entropy)

    return jax.vmap(one)(keys)


Scores = dict[str, Float[Array, "episodes rounds"]]


@eqx.filter_jit
def scores(filter: Filter, keys: Key[Array, " episodes"], games: GameTrack) -> Scores:
    """JS to the posterior after every round, for filters with beliefs over listed states; and the steps' reports."""

    def one(key: Key[Array, ""], game: GameTrack) -> dict[str, Array]:
        first = at_step(game.environments, 0, changing=True)
        look = lambda state: state_probabilities(filter.belief(state, first), first)  # noqa: E731
        told = game.observations, game.environments, game.policies
        probs, info = run(filter, key, *told, look=look, changing=True)
        return {"js": jax.vmap(jensen_shannon)(game.truth, probs), **_told(info)}

    return jax.vmap(one)(keys, games)


@eqx.filter_jit
def exact_samples(n: int, keys: Key[Array, " episodes"], truth: Float[Array, "episodes rounds states"]) -> Scores:
    """JS of the histogram of n samples of the exact posterior itself."""

    def one(key: Key[Array, ""], probs: Float[Array, " states"]) -> Array:
        counts = jnp.zeros_like(probs).at[prng.categoricals(key, probs, n)].add(1.0)
        return jensen_shannon(probs, counts)

    return {"js": jax.vmap(lambda key, rows: jax.vmap(one)(jax.random.split(key, len(rows)), rows))(keys, truth)}


@eqx.filter_jit
def embeddings(
    filter: ApproxBeliefs | NeuralBayesianFilter | RecurrentFilter,
    draws: int,
    keys: Key[Array, " episodes"],
    games: GameTrack,
) -> tuple[Float[Array, "episodes rounds m"], Scores]:
    """The embedding after every round, the share of its draws that are legal, and what each step reports."""

    def one(key: Key[Array, ""], game: GameTrack) -> tuple[Array, dict[str, Array]]:
        told = game.observations, game.environments, game.policies
        found, info = run(filter, key, *told, look=lambda state: state.embedding, changing=True)
        draw_keys = jax.random.split(jax.random.fold_in(key, 1), len(found))

        def legal(key: Key[Array, ""], embedding: Array, space: StateSpace) -> Float[Array, ""]:
            drawn = filter.model.sample(key, embedding, draws, space)
            return jnp.mean(jax.vmap(space.contains)(drawn))

        return found, {"legality": jax.vmap(legal)(draw_keys, found, game.environments.space), **_told(info)}

    return jax.vmap(one)(keys, games)


def _told(info: Any) -> dict[str, Array]:
    """What a filter reports of its steps: effective sample size, and whether all weights were zero at first."""
    return {"ess": info.ess, "zero_weight": jnp.float32((info.attempts > 1) | info.recovered)}


# --- a model's probabilities of the states that matter -------------------------------------------


@eqx.filter_jit
def log_probs(
    model: BeliefEmbeddingModel, samples: int, keys: Key[Array, " c"], embeddings: Float[Array, "c m"],
    spaces: StateSpace, states: Int[Array, "c n k"],
) -> Float[Array, "c n"]:  # fmt: skip
    """log p_θ of some states of each of c beliefs; for a flow, an importance-sampling estimate of so many draws."""

    def one(key: Key[Array, ""], embedding: Array, space: StateSpace, states: Array) -> Float[Array, " n"]:
        if isinstance(model.decoder, DequantizedFlow) and not model.context:
            return model.decoder.log_prob_estimate(key, embedding, states, space, samples)
        return model.log_prob(embedding, states, space)

    return jax.vmap(one)(keys, embeddings, spaces, states)


def chunks(
    truth: Float[np.ndarray, "beliefs states"],
) -> tuple[Int[np.ndarray, " chunks"], Int[np.ndarray, "chunks n"]]:
    """The support of each belief in chunks of `CHUNK` states: each chunk's belief, and its states; -1 is padding."""
    belief, state = np.nonzero(truth > NEGLIGIBLE)
    counts = np.bincount(belief, minlength=len(truth))
    needed = -(-counts // CHUNK)
    place = np.arange(len(belief)) - (np.cumsum(counts) - counts)[belief]
    table = np.full((needed.sum(), CHUNK), -1)
    table[(np.cumsum(needed) - needed)[belief] + place // CHUNK, place % CHUNK] = state
    return np.repeat(np.arange(len(truth)), needed), table


@jax.jit
def _divergences(p: Float[Array, "n states"], q: Float[Array, "n states"]) -> Float[Array, " n"]:
    return jax.vmap(jensen_shannon)(p, q)


def model_divergences(
    model: BeliefEmbeddingModel, samples: int, key: Key[Array, ""], found: Float[np.ndarray, "episodes rounds m"],
    games: GameTrack,
) -> Float[np.ndarray, "episodes rounds"]:  # fmt: skip
    """JS between the exact posteriors and a model's distributions, given its embeddings."""
    shape = found.shape[:2]
    flat = lambda leaf: np.asarray(leaf).reshape(-1, *leaf.shape[2:])  # noqa: E731
    truth, listed = flat(games.truth), np.asarray(games.environments.states())
    owner, table = chunks(truth)
    spaces = jax.tree.map(lambda leaf: flat(leaf)[owner], games.environments.space)
    arguments = jax.random.split(key, len(owner)), flat(found)[owner], spaces, listed[np.maximum(table, 0)]
    result = in_batches(functools.partial(log_probs, model, samples), arguments, batch=8)
    return _chunked_divergences(truth, owner, table, result).reshape(shape)


def _chunked_divergences(
    truth: Float[np.ndarray, "beliefs states"], owner: Int[np.ndarray, " chunks"], table: Int[np.ndarray, "chunks n"],
    result: Float[np.ndarray, "chunks n"],
) -> Float[np.ndarray, " beliefs"]:  # fmt: skip
    """JS of beliefs, given log probabilities in chunks; all other states are one further bin."""
    probs, wanted = np.zeros((2, len(truth), truth.shape[1] + 1), np.float32)
    rows, columns = np.broadcast_to(owner[:, None], table.shape)[table >= 0], table[table >= 0]
    probs[rows, columns], wanted[rows, columns] = np.exp(result[table >= 0]), truth[rows, columns]
    for part in (probs, wanted):  # the mass of all other states; that of an estimate may be negative
        part[:, -1] = np.maximum(0.0, 1.0 - part.sum(axis=1))
    return in_batches(_divergences, (wanted, probs), batch=min(256, len(truth)))


@eqx.filter_jit
def states_of(filter: Filter, keys: Key[Array, " episodes"], games: GameTrack) -> FilterState:
    """The state of a filter after every round."""

    def one(key: Key[Array, ""], game: GameTrack) -> FilterState:
        return run(filter, key, game.observations, game.environments, game.policies, changing=True)[0]

    return jax.vmap(one)(keys, games)


@eqx.filter_jit
def _log_probs(filter: Filter, states: FilterState, environments: Goofspiel, listed: Int[Array, "c n k"]) -> Array:
    def one(state: FilterState, environment: Goofspiel, listed: Int[Array, "n k"]) -> Float[Array, " n"]:
        return filter.belief(state, environment).log_probs(listed)

    return jax.vmap(one)(states, environments, listed)


def belief_divergences(
    filter: Filter, keys: Key[Array, " episodes"], games: GameTrack, *, batch: int = 50
) -> Float[np.ndarray, "episodes rounds"]:
    """JS between the exact posteriors and the beliefs of any filter whose belief has a `log_probs`."""
    found = in_batches(functools.partial(states_of, filter), (keys, games), batch=batch)
    flat = lambda leaf: np.asarray(leaf).reshape(-1, *leaf.shape[2:])  # noqa: E731
    truth, listed = flat(games.truth), np.asarray(jax.tree.map(lambda leaf: leaf[0], games.environments).states())
    owner, table = chunks(truth)
    states, environments = (jax.tree.map(lambda leaf: flat(leaf)[owner], part) for part in (found, games.environments))
    arguments = states, environments, listed[np.maximum(table, 0)]
    result = in_batches(functools.partial(_log_probs, filter), arguments, batch=64)
    return _chunked_divergences(truth, owner, table, result).reshape(games.truth.shape[:2])
