"""Hidden hands: one update of the neural filter, beside policy inference with real calls, in one run; and the exact
posterior in a batch.

    python -m benchmarks.cards [--seconds 3] [--width 256] [--batch 8]

The opponents are networks of two hidden layers that were never trained: times do not depend on their numbers. Policy
inference is timed at action 9, where each deal costs as many calls as opponents have acted.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key
from rich.console import Console
from rich.table import Table

from nbf import prng
from nbf.adapters.oh_hell import deal_filter
from nbf.environments.hidden_hands import HiddenHands
from nbf.environments.trick_taking import TrickTaking
from nbf.filters.hands import HandTableFilter
from nbf.spaces.deal_weights import deals
from nbf_paper.experiments.card_games import play, random_network

ACTION = 9
RULES = TrickTaking()


def timed(work: Callable[[], Any], seconds: float) -> float:
    """Milliseconds of one call, after a first one that compiles."""
    jax.block_until_ready(work())
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        jax.block_until_ready(work())
        count += 1
    return 1e3 * (time.perf_counter() - start) / count


@eqx.filter_jit
def games(key: Key[Array, ""], count: int, width: int) -> tuple[HiddenHands, Array]:
    """Environments and actions of some games."""
    players = jax.vmap(jax.vmap(lambda key: random_network(key, RULES, width)))(jax.random.split(key, (count, 3)))
    found = jax.vmap(lambda key, players: play(RULES, key, players, ACTION))(jax.random.split(key, count), players)
    return found[1:]


def policy_inference(calls: int, environments: HiddenHands, actions: Array, key: Key[Array, ""]) -> Array:
    """Who holds what, by fresh deals that are weighed by the whole history."""
    watched = jnp.nonzero(environments.game.player != 0, size=ACTION * 2 // 3)[0]  # two thirds are opponents' actions
    environments, actions = jax.tree.map(lambda leaf: leaf[watched], (environments, actions))
    last = jax.tree.map(lambda leaf: leaf[-1], environments).space
    uniform = jax.random.uniform(key, (RULES.cards, calls // len(watched)))
    drawn = deals(last.allowed.astype(jnp.float32), last.quotas, uniform)

    def told(environment: HiddenHands, action: Array) -> Array:
        return jax.vmap(lambda deal: environment.log_likelihood(action, deal, deal))(drawn)

    weights = jax.nn.softmax(jnp.sum(jax.vmap(told)(environments, actions), axis=0))
    return jnp.tensordot(weights, jax.nn.one_hot(drawn, RULES.players), axes=1)


def exact(environments: HiddenHands, actions: Array, key: Key[Array, ""]) -> Array:
    """The marginals after each action, by tables of hands."""
    filter = HandTableFilter()

    def step(state: Any, inputs: tuple[HiddenHands, Array]) -> tuple[Any, Array]:
        environment, action = inputs
        state, _ = filter.update(key, state, action, environment, None)
        return state, state.marginals()

    start = filter.init(key, jax.tree.map(lambda leaf: leaf[0], environments))
    return jax.lax.scan(step, start, (environments, actions))[1]


def main() -> None:
    """Time them, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each row")
    parser.add_argument("--width", type=int, default=256, help="units of a layer of an opponent")
    parser.add_argument("--batch", type=int, default=8, help="games at once, for the exact posterior")
    options = parser.parse_args()
    key = prng.stream(0, "bench", "cards")
    environments, actions = games(key, options.batch, options.width)
    one, told = jax.tree.map(lambda leaf: leaf[0], (environments, actions))
    now, action = jax.tree.map(lambda leaf: leaf[-1], (one, told))
    found = {}
    for calls in (16, 64, 256):
        filter = deal_filter(RULES, calls)
        state = filter.init(key, now)
        update = eqx.filter_jit(filter.update)
        found[f"NBF ({calls}), one update"] = timed(lambda: update(key, state, action, now, None), options.seconds)  # noqa: B023
    for calls in (512, 4096):
        infer = eqx.filter_jit(functools.partial(policy_inference, calls))
        found[f"policy inference ({calls}), one decision"] = timed(lambda: infer(one, told, key), options.seconds)  # noqa: B023
    batch = eqx.filter_jit(jax.vmap(lambda environments, actions: exact(environments, actions, key)))
    whole = timed(lambda: batch(environments, actions), options.seconds)
    found[f"exact posterior, one step of one of {options.batch} games at once"] = whole / options.batch / ACTION
    table = Table("work", "ms", "relative")
    for name, milliseconds in found.items():
        table.add_row(name, f"{milliseconds:.2f}", f"{milliseconds / found['NBF (64), one update']:.2f}")
    Console(soft_wrap=True).print(table)


if __name__ == "__main__":
    main()
