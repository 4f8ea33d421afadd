"""What `filter.step` remembers from call to call: nothing that its owner can change, and no more than it says."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constructors import small_grid

import nbf
from nbf import dispatch

STATM = Path("/proc/self/statm")


class Holder(eqx.Module):
    """A policy with anything in it."""

    inside: Any


class Pair(NamedTuple):
    """A policy, and something beside it."""

    first: Any
    second: Any


class Adding(nbf.Filter):
    """Its state is a total, to which each step adds the numbers of the policy."""

    def init(self, key, environment):
        return Holder({"total": jnp.zeros(())})

    def update(self, key, state, observation, environment, policy):
        given = sum(jnp.sum(jnp.asarray(leaf, jnp.float32)) for leaf in jax.tree.leaves(policy))
        info = nbf.FilterInfo(jnp.ones(()), jnp.zeros(()), jnp.int32(1), jnp.bool_(False))
        return Holder({"total": state.inside["total"] + given}), info

    def belief(self, state, environment):
        raise NotImplementedError


def put(container, value):
    """Change a container in place."""
    if isinstance(container, np.ndarray):
        container[...] = value
    else:
        container["x" if isinstance(container, dict) else 0] = value


CONTAINERS = {
    "a dictionary": lambda: {"x": jnp.asarray(1.0)},
    "a list": lambda: [jnp.asarray(1.0)],
    "a NumPy array": lambda: np.asarray(1.0, np.float32),
    "a dictionary of Python numbers": lambda: {"x": 1.0},
}


@pytest.mark.parametrize("build", CONTAINERS.values(), ids=CONTAINERS)
@pytest.mark.parametrize("wrap", [Holder, lambda inside: Pair(inside, None), lambda inside: Holder((0.0, inside))])
def test_a_change_in_place_is_seen(build, wrap, key):
    """Anywhere in a policy: the step after it adds the new number."""
    container, filter, grid = build(), Adding(), small_grid()[0]
    policy = wrap(container)
    state, _ = filter.step(key, filter.init(key, grid), 0, grid, policy)
    put(container, jnp.asarray(5.0) if isinstance(container, list) else 5.0)
    after, _ = filter.step(key, state, 0, grid, policy)
    assert [float(each.inside["total"]) for each in (state, after)] == [1.0, 6.0]


def test_a_change_of_the_state_in_place_is_seen(key):
    filter, grid, policy = Adding(), small_grid()[0], Holder(jnp.asarray(1.0))
    state, _ = filter.step(key, filter.init(key, grid), 0, grid, policy)
    state.inside["total"] = jnp.asarray(10.0)
    after, _ = filter.step(key, state, 0, grid, policy)
    assert float(after.inside["total"]) == 11.0


def test_what_cannot_change_is_flattened_once():
    """The library's own environments, policies, filters and models are of that kind."""
    grid, policy = small_grid()
    model = nbf.shipped_model("8-2D-random")
    for module in (grid, policy, nbf.NeuralBayesianFilter(model, 4), Pair(policy, 2.0), None):
        assert dispatch._flat(module) is dispatch._flat(module)
    for module in (Holder({}), Holder(np.zeros(1)), Pair([], None)):
        assert dispatch._flat(module) is not dispatch._flat(module)


class Named(Adding):
    """Filters of different names have different structures."""

    name: str = eqx.field(static=True)


def test_compiled_steps_that_are_not_used_are_let_go(key, monkeypatch):
    """Of many structures the latest are kept, with their tokens; one that is used all the time is never dropped."""
    monkeypatch.setattr(dispatch, "COMPILED_STEPS", 3)
    monkeypatch.setattr(dispatch, "CACHED_MODULES", 3)
    dispatch._FLAT.clear()
    grid, policy, often = small_grid()[0], Holder(jnp.asarray(1.0)), Named("often")
    start = often.init(key, grid)
    often.step(key, start, 0, grid, policy)
    kept = next(value for value in dispatch._COMPILED.values() if value.used == newest())
    programs = []
    for number in range(8):
        Named(f"filter {number}").step(key, start, 0, grid, policy)
        programs.append(weakref.ref(next(v for v in dispatch._COMPILED.values() if v.used == newest()).function))
        often.step(key, start, 0, grid, policy)
        assert len(dispatch._COMPILED) <= 3
        assert kept in dispatch._COMPILED.values()
    gc.collect()
    assert [program() is None for program in programs] == [True] * 6 + [False] * 2
    assert len(dispatch._TOKENS) <= 3 * 3 + 3


def newest():
    return max(value.used for value in dispatch._COMPILED.values())


GROWTH, ENVIRONMENTS = 500 * 2**20, 10_000
"""The most bytes that a loop over so many new environments may take."""
ROUNDS = 8
"""How many times the cache is filled with new environments."""
SETTLED = 3
"""The round from which on it is measured what is left behind: by then the cache is full, and the holes between the
programs are as many as they will be."""
NEW_ENVIRONMENTS = """
import gc, os, sys
from pathlib import Path
import jax
import jax.numpy as jnp
import nbf
from nbf import dispatch

key, filter, box = jax.random.key(0), nbf.ParticleFilter(4), nbf.Box((0.0,), (1.0,))
for number in range(int(sys.argv[1]) * dispatch.COMPILED_STEPS):
    world = nbf.environment(
        init=lambda key: jax.random.uniform(key, (1,)),
        transition=lambda key, state, policy, shift=number * 1e-6: jnp.clip(state + shift, 0.0, 1.0),
        observe=lambda key, state, next_state: next_state[0],
        log_likelihood=lambda observation, state, next_state: -jnp.abs(observation - next_state[0]),
        space=box,
    )
    filter.step(key, filter.init(key, world), 0.5, world, None)
    if number % dispatch.COMPILED_STEPS == 0:
        gc.collect()
        print(int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"), flush=True)
"""


@pytest.mark.slow
@pytest.mark.skipif(not STATM.exists(), reason="this system does not tell the memory of a process in this way")
def test_ten_thousand_new_environments_leave_little_behind():
    """The kept steps, and for all others what a hundred or two leave, extrapolated: 10 000 compilations take hours.

    In a process of its own, as a user has it: with the type checks of the tests each trace decorates the functions
    inside functions anew, and jaxtyping and beartype keep tens of kB of that, even where the checks are switched off.
    """
    program = [sys.executable, "-c", NEW_ENVIRONMENTS, str(ROUNDS)]
    told = subprocess.run(program, stdout=subprocess.PIPE, text=True, check=True).stdout
    sizes = np.asarray(told.split(), float)
    assert len(sizes) == ROUNDS
    kept = sizes[SETTLED] - sizes[0]
    slope = np.polyfit(np.arange(SETTLED, ROUNDS), sizes[SETTLED:], 1)[0] / dispatch.COMPILED_STEPS
    assert kept + slope * ENVIRONMENTS < GROWTH, (sizes, slope)
