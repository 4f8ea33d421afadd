"""The speed of other packages: every loop that can run here tracks the system, and the tables are their record."""

from __future__ import annotations

import inspect

import jax
import numpy as np
import pytest
from tolerances import monte_carlo

from benchmarks.peers.__main__ import Size, records_of
from benchmarks.peers.speed import nbf as ours
from benchmarks.peers.speed import plain, plane
from benchmarks.peers.speed.plane import DECAY, OBSERVATIONS, Loop, block, prepared
from nbf_paper.records import RecordError, write_records
from nbf_paper.report.peers import page


def kalman(steps: int) -> tuple[np.ndarray, float]:
    """Mean of p(x | y) after so many observations, and its standard deviation along an axis, in closed form."""
    mean, variance = np.zeros(2), 1.0
    for y in OBSERVATIONS[:steps]:
        predicted = DECAY**2 * variance + 1.0
        gain = predicted / (predicted + 1.0)
        mean, variance = DECAY * mean + gain * (y - DECAY * mean), (1.0 - gain) * predicted
    return mean, variance**0.5


def test_ours_tracks_the_system(key):
    n, steps = 4096, 4
    state, update = ours.init(key, n), jax.jit(ours.update)
    for number in range(steps):
        state = update(jax.random.fold_in(key, number), state, np.asarray(OBSERVATIONS[number], np.float32))
    truth, spread = kalman(steps)
    mean = np.exp(np.asarray(state.log_weights)) @ np.asarray(state.states)
    # Weights whose ESS is a tenth of n at the least are worth as many independent draws.
    np.testing.assert_allclose(mean, truth, rtol=0, atol=monte_carlo(spread, n // 10))


def test_the_loop_by_hand_tracks_the_system():
    n, steps = 4096, 4
    call = plain.stepped(n)
    for _ in range(steps):
        call()
    particles = inspect.getclosurevars(call).nonlocals["particles"]
    truth, spread = kalman(steps)
    np.testing.assert_allclose(particles.mean(axis=0), truth, rtol=0, atol=monte_carlo(spread, n // 10))


def test_a_loop_steps_every_filter_and_what_is_too_slow_or_large_is_left_out(monkeypatch):
    calls = []
    way = Loop(lambda particles: lambda: calls.append(particles))
    way(32, 3)()
    assert calls == [32, 32, 32]
    assert prepared(way, plane.MOST, 2) is None
    assert prepared(way, 32, 2) is not None
    monkeypatch.setattr(plane, "LONGEST", 0.0)
    assert prepared(way, 32, 2) is None


def test_a_block_has_a_call_however_short():
    assert len(block(lambda: None, 0.0)) == 1


@pytest.fixture
def record(tmp_path):
    """Ours takes half of what blackjax takes and twice what the loop by hand does, at one size of two."""
    times = {("nbf", "`step`"): 200.0, ("nbf", "`update` in `jit`, `vmap`"): 100.0, ("blackjax", "jit"): 200.0}
    times |= {("plain", "a Python loop"): 50.0}
    records = records_of(Size(32, 1), {way: [time] * 10 for way, time in times.items()})
    records += records_of(Size(128, 256), {("blackjax", "jit"): [5000.0]})
    write_records(tmp_path / "records.csv", records)
    return tmp_path


def cells(table: str) -> list[list[str]]:
    """The rows below the head."""
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]


def test_tables_and_figure_show_the_record(record):
    found = page(record)
    names = [(row[0], row[2]) for row in cells(found.tables["peers"])]
    assert names == [
        ("**nbf**", "200 / 200"),
        ("**nbf**", "100 / 100"),
        ("blackjax", "200 / 200"),
        ("NumPy by hand", "50.0 / 50.0"),
    ]
    assert [row[2] for row in cells(found.tables["peers-batches"])] == ["–", "–", "5.00 / 5.00", "–"]
    assert cells(found.tables["peers-ratios"]) == [
        ["1 x 32", "blackjax", "0.50 (1.00)", "NumPy by hand", "2.00 (4.00)"],
        ["256 x 128", "–", "–", "–", "–"],
    ]
    assert len(found.figures["peers.png"]().axes) == 2


def test_no_times_are_an_error(tmp_path):
    write_records(tmp_path / "records.csv", [])
    with pytest.raises(RecordError, match="make bench-peers"):
        page(tmp_path)
