"""A filter in a plain Python loop: what it takes as an observation, and stopping and going on elsewhere."""

from __future__ import annotations

import functools
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constructors import FILTERS, small_grid
from paths import ROOT
from safetensors.numpy import load_file, save_file

import nbf
from nbf.environments.triangulation import ScanPolicy, Triangulation
from nbf.errors import InputError
from nbf.files.checkpoint import read_file

SQUARE = Triangulation(
    nbf.Box((-2.0, -2.0), (2.0, 2.0)), jnp.asarray([[-2.0, -2.0], [2.0, 0.0]]), jnp.asarray(0.5), jnp.asarray(0.2),
    jnp.asarray(0.3), jnp.int32(0), jnp.bool_(True),
)  # fmt: skip
GRID = [0, 4, 3, 3, 1, 2, 4, 0, 1, 4]
SETTINGS = {
    **{name: (FILTERS[name], *small_grid(), GRID) for name in ("exact", "particle", "neural, tabular")},
    "watched": (lambda: nbf.Surprise(FILTERS["particle"](), draws=3, particles=3), *small_grid(), GRID),
    "point-mass": (
        lambda: nbf.PointMassFilter(6), SQUARE, ScanPolicy(jnp.int32(0), jnp.asarray(0.5)),
        [1.0, 2.0, 1.5, 1.0, 1.2, 0.7, 2.0, 1.1, 1.6, 1.4],
    ),
}  # fmt: skip
"""A filter, its environment and policy, and ten observations."""


def go_on(filter, state, key, environment, policy, observations, start):
    """The states and infos of steps from `start` on. Step t has the key fold_in(key, t), whoever takes it."""
    told = []
    for number, observation in enumerate(observations[start:], start):
        state, info = filter.step(jax.random.fold_in(key, number), state, observation, environment, policy)
        told.append((state, info))
    return told


def same_bits(one, other):
    one, other = (jax.tree_util.tree_leaves_with_path(tree) for tree in (one, other))
    assert [path for path, _ in one] == [path for path, _ in other]
    for (path, left), (_, right) in zip(one, other, strict=True):
        assert (left.dtype, left.shape) == (right.dtype, right.shape), path
        assert np.asarray(left).tobytes() == np.asarray(right).tobytes(), path


@pytest.mark.parametrize(
    "name", [name if "neural" in name else pytest.param(name, marks=pytest.mark.slow) for name in SETTINGS]
)
def test_a_saved_state_goes_on_bit_for_bit(name, key, tmp_path):
    """Ten steps at once, and four, a file, and six by a filter that is built anew."""
    build, environment, policy, observations = SETTINGS[name]
    filter = build()
    world = (environment, policy, observations)
    begin = eqx.filter_jit(filter.init)
    told = go_on(filter, begin(key, environment), key, *world, 0)
    nbf.save_state(tmp_path / "state.safetensors", told[3][0])
    fresh = build()
    loaded = nbf.load_state(tmp_path / "state.safetensors", like=begin(jax.random.key(0), environment))
    same_bits(loaded, told[3][0])
    same_bits(go_on(fresh, loaded, key, *world, 4), told[4:])


def test_what_is_not_finite_is_kept(tmp_path):
    """A particle without weight has a log weight of -inf, and where a simulator has failed a state may be NaN."""
    state = {"log_weights": jnp.asarray([0.0, -jnp.inf]), "states": jnp.asarray([1.0, jnp.nan]), "count": jnp.int32(3)}
    nbf.save_state(tmp_path / "a", state)
    same_bits(nbf.load_state(tmp_path / "a", jax.eval_shape(lambda: state)), state)


@functools.cache
def particles(n=4):
    filter = nbf.ParticleFilter(n)
    return filter.init(jax.random.key(0), small_grid()[0])


def damaged(path, change):
    save_file(change(load_file(path)), path, metadata=read_file(path)[0])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.unlink(), "no checkpoint at"),
        (lambda path: path.write_bytes(path.read_bytes()[:-3]), "not a readable"),
        (lambda path: path.write_bytes(b"\x80\x04K\x01."), "not a readable"),
        (lambda path: path.write_bytes(b"\xff" * 8 + b"{}"), "not a readable"),
        (lambda path: nbf.save_state(path, particles(5)), "does not fit the state given as `like`.*shape"),
        (lambda path: damaged(path, lambda leaves: dict(list(leaves.items())[:1])), "`like`.*missing or unexpected"),
        (lambda path: damaged(path, lambda leaves: {k: v.astype(np.float16) for k, v in leaves.items()}), "has type"),
        (lambda path: save_file(load_file(path), path), "not a filter state"),
    ],
)
def test_files_that_are_no_such_state_are_refused(damage, message, tmp_path):
    path = tmp_path / "state.safetensors"
    nbf.save_state(path, particles())
    damage(path)
    with pytest.raises(InputError, match=message):
        nbf.load_state(path, like=particles())


def test_what_is_no_state_is_refused(tmp_path):
    with pytest.raises(InputError, match="random key at"):
        nbf.save_state(tmp_path / "a", {"key": jax.random.key(0)})
    with pytest.raises(InputError, match="`state` must be a filter's state"):
        nbf.save_state(tmp_path / "a", {"name": "belief"})
    with pytest.raises(InputError, match="`like` must be a filter's state"):
        nbf.load_state(tmp_path / "a", like="belief")
    assert not list(tmp_path.iterdir())


class Counted(nbf.Gridworld):
    """Counts how often it is traced."""

    traces = [0]  # noqa: RUF012

    def log_likelihood(self, observation, state, next_state):
        self.traces[0] += 1
        return super().log_likelihood(observation, state, next_state)


def test_an_observation_is_a_number_of_any_kind(key):
    """Python's, NumPy's and the device's are one observation, compiled once."""
    grid, policy = small_grid()
    environment, filter = Counted(grid.space, grid.error), nbf.ParticleFilter(4)
    state = filter.init(key, environment)
    kinds = [3, np.int64(3), np.asarray(3), np.int32(3), jnp.int32(3)]
    told, counts = [], []
    for observation in kinds:
        told.append(filter.step(key, state, observation, environment, policy))
        counts.append(Counted.traces[0])
    assert counts == [counts[0]] * len(kinds)
    for other in told[1:]:
        same_bits(told[0], other)
    with pytest.raises(InputError, match="alphabet"):
        filter.step(key, state, 2**40, environment, policy)


def test_a_vector_is_a_vector_of_any_precision(key):
    system = nbf.LinearGaussian(np.eye(2), np.eye(2), np.eye(2), np.eye(2), np.zeros(2), np.eye(2))
    filter = nbf.ParticleFilter(4)
    state = filter.init(key, system)
    reading = np.asarray([0.25, -1.5])
    told = [
        filter.step(key, state, kind, system, None)
        for kind in (reading, reading.astype(np.float32), jnp.asarray(reading, jnp.float32))
    ]
    for other in told[1:]:
        same_bits(told[0], other)


def test_arguments_in_another_order_are_named(key, unchecked):
    (world, policy), filter = small_grid(), nbf.ParticleFilter(5)
    state = filter.init(key, world)
    for wrong in [(0, state, 1, world, policy), (state, key, 1, world, policy), (None, state, 1, world, policy)]:
        with pytest.raises(InputError, match=r"first argument of a step is a random key.*step\(key, state"):
            filter.step(*wrong)
    for wrong in [(key, state, 1, policy, world), (key, state, world, 1, policy)]:
        with pytest.raises(InputError, match=r"told its environment.*step\(key, state"):
            filter.step(*wrong)


def test_going_back_to_an_earlier_state_is_no_mistake(key):
    """The state of the step before is remembered with its leaves; any other one is looked at anew."""
    (environment, policy), filter = small_grid(), nbf.ParticleFilter(4)
    start = filter.init(key, environment)
    first = filter.step(key, start, 0, environment, policy)
    second = filter.step(key, first[0], 1, environment, policy)
    same_bits(filter.step(key, start, 0, environment, policy), first)
    same_bits(filter.step(key, first[0], 1, environment, policy), second)
    copy = jax.tree.map(jnp.array, first[0])
    same_bits(filter.step(key, copy, 1, environment, policy), second)


@pytest.mark.slow
def test_the_page_runs(tmp_path, monkeypatch, capsys):
    """Its blocks, one after the other, in a world that is right: no alarm."""
    monkeypatch.chdir(tmp_path)
    page, names = (ROOT / "docs" / "trust.md").read_text(), {}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(compile(block, "trust.md", "exec", dont_inherit=True), names)
    assert len(names["told"]) == 20
    assert capsys.readouterr().out == ""
