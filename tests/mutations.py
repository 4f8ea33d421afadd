"""Files damaged on purpose: random bytes, and whatever a file may say that it should not.

A seeded mutator and not a fuzzer that learns: the same ten thousand files in every run.
"""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np

CANARY = "nbf_canary"
"""A file that the code hidden in hostile values would make."""

HOSTILE: list[Any] = [
    None, True, False, -1, 0, 1, 2, 3, 7, 100, 101, 9_999, 10_000, 10_001, 2**31, 2**63, 2**64, 10**30, -(10**30),
    0.0, -0.0, 0.5, 1e-300, 1e308, -1e308, float("nan"), float("inf"), float("-inf"),
    "", "0", "ot", "adaptive", "all", "x" * 2000, "\u0000", "\ud7ff", "../../etc/passwd", "%n%s%x", "{0.__class__}",
    f"__import__('os').system('touch {CANARY}')", f"cos\nsystem\n(S'touch {CANARY}'\ntR.", "os.system",
    [], {}, [[]], [0], [1e9], [3, 3], [10_000] * 2, [10_000] * 16, [1] * 17, ["3", "3"], [None], [-1, 3], [2.5, 3],
    {"kind": "MeanConfig"}, {"kind": "MixtureConfig", "components": 10_000, "width": 10_000, "depth": 10_000},
    {"kind": "AutoregressiveConfig", "width": 10_000, "depth": 100}, {"kind": ["MeanConfig"]}, {"kind": None},
    {"kind": "TokensConfig", "length": 10_000, "categories": 10_000}, {"__class__": "os.system"},
    {"kind": "LatticeConfig", "shape": [10_000] * 16}, {"kind": "BoxConfig", "low": [0.0], "high": [1e-300]},
    {"__reduce__": ["os.system", [f"touch {CANARY}"]]}, {"py/object": "os.system"},
]  # fmt: skip
"""Values to stand where another one stood."""


def places(value: Any, path: tuple = ()) -> list[tuple]:
    """The path of everything inside nested lists and dictionaries."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for name, item in inner for place in places(item, (*path, name)))]


def damaged_value(rng: np.random.Generator, value: Any) -> Any:
    """The same nested value with something in it replaced, removed, renamed or added."""
    value = json.loads(json.dumps(value))
    path = places(value)[rng.integers(len(places(value)))]
    hostile = HOSTILE[rng.integers(len(HOSTILE))]
    if not path:
        return hostile
    *way, last = path
    parent = value
    for name in way:
        parent = parent[name]
    action = rng.integers(4)
    if action == 1:
        del parent[last]
    elif action == 2 and isinstance(parent, dict):
        parent[str(hostile)[:50]] = parent.pop(last)
    elif action == 3 and isinstance(parent, dict):
        parent[str(hostile)[:50]] = hostile
    else:
        parent[last] = hostile
    return value


def damaged_bytes(rng: np.random.Generator, whole: bytes, first: int | None = None) -> bytes:
    """Cut, flipped, overwritten, repeated or moved bytes, half of the time among the `first` ones."""
    end = first if first and rng.random() < 0.5 else len(whole)
    start = int(rng.integers(end))
    stop = min(len(whole), start + int(rng.integers(1, 64)))
    action = rng.integers(6)
    if action == 0:
        return whole[:start]
    if action == 1:
        flipped = bytearray(whole)
        for place in rng.integers(end, size=rng.integers(1, 9)):
            flipped[place] ^= 1 << rng.integers(8)
        return bytes(flipped)
    if action == 2:
        return whole[:start] + rng.bytes(stop - start) + whole[stop:]
    if action == 3:
        return whole[:start] + whole[stop:]
    if action == 4:
        return whole[:stop] + whole[start:]
    return whole[:start] + rng.bytes(int(rng.integers(1, 64))) + whole[start:]


def parts(whole: bytes) -> tuple[dict[str, Any], bytes]:
    """The header of a safetensors file, and its numbers."""
    size = struct.unpack("<Q", whole[:8])[0]
    return json.loads(whole[8 : 8 + size]), whole[8 + size :]


def joined(header: Any, numbers: bytes) -> bytes:
    text = json.dumps(header).encode(errors="surrogatepass")
    return struct.pack("<Q", len(text)) + text + numbers


def damaged_checkpoint(rng: np.random.Generator, whole: bytes) -> bytes:
    """A safetensors file with its bytes, its header, its metadata, its config or its numbers damaged."""
    header, numbers = parts(whole)
    metadata = header["__metadata__"]
    action = rng.integers(8)
    if action < 2:
        return damaged_bytes(rng, whole, len(whole) - len(numbers))
    if action == 2:
        return joined(damaged_value(rng, header), numbers)
    if action == 3:
        header["__metadata__"] = damaged_value(rng, metadata)
        return joined(header, numbers)
    if action == 4:  # numbers of another kind or size in the place of the right ones
        values = np.frombuffer(numbers, np.float32).copy()
        values[rng.integers(len(values), size=3)] = rng.choice([np.nan, np.inf, -np.inf, 3e38, -0.0, 1e-45], 3)
        return joined(header, values.tobytes())
    config = json.loads(metadata["config"])
    for _ in range(rng.integers(1, 4)):
        config = damaged_value(rng, config)
    metadata["config"] = json.dumps(config)
    return joined(header, numbers)
