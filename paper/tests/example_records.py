"""Records that several tests are made of, and strategies that draw more."""

from __future__ import annotations

import dataclasses

import hypothesis.strategies as st

from nbf_paper.records import ALL, Record

EXAMPLE = Record("gridworld", "8-2D-random", "nbf", "faithful", 16, 16, 0, 3, "js", 0.125, 0.01, 500)
WORDS = st.text(st.characters(exclude_categories=("Cs", "Cc", "Cf", "Z")), min_size=1) | st.sampled_from(
    ["a,b", 'a"b', "a b"]
)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
COUNTS = st.integers(0, 10**9)
FIELDS = st.tuples(
    *(WORDS, WORDS, WORDS, WORDS | st.just("")),
    *(COUNTS, COUNTS, COUNTS, COUNTS | st.just("all"), WORDS, NUMBERS, st.none() | NUMBERS.map(abs), COUNTS),
)


def key_of(cells: tuple) -> tuple:
    return cells[:5] + cells[6:9]


# Records are made in the tests: beartype draws at random, which a strategy must not.
TABLES = st.lists(FIELDS, unique_by=key_of, max_size=20)


def series(seed: int = 0, value: float = 0.1, **changes: object) -> list[Record]:
    steps = [*range(4), ALL]
    return [dataclasses.replace(EXAMPLE, seed=seed, step=step, value=value, **changes) for step in steps]
