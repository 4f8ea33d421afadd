"""Functions for the tests of executors: workers import them."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np


def drawn(seed: int, size: int) -> np.ndarray:
    """Normal draws, the later ones slower, so that calls end in another order than they begin in."""
    time.sleep(0.01 * (seed % 3))
    return np.random.default_rng(seed).normal(size=size)


def process(_: int) -> int:
    """Which process this is."""
    time.sleep(0.05)
    return os.getpid()


def bad(number: int) -> int:
    """Fails for 3, and for 3 alone."""
    if number == 3:
        raise ZeroDivisionError("three is too many")
    return number


def doomed(number: int) -> int:
    """Kills its process if the number is 1."""
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


def mortal(number: int, folder: str) -> tuple[int, int]:
    """Kills its process once, if the number is 1; the second time it gets through."""
    mark = Path(folder, "was here")
    if number == 1 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number, number * number


def hanging(number: int) -> int:
    """Never ends if the number is 1."""
    while number == 1:
        time.sleep(60)
    return number


def hanging_once(number: int, folder: str) -> int:
    """Hangs once, if the number is 1."""
    mark = Path(folder, "was here")
    if number == 1 and not mark.exists():
        mark.touch()
        time.sleep(600)
    return number


def unsendable(_: int) -> object:
    """Returns what cannot be pickled."""
    return lambda: None


def slow_square(number: int) -> tuple[int, int]:
    """A square after a while, and which process made it."""
    time.sleep(0.2)
    return number * number, os.getpid()


def moody_transition(rng: np.random.Generator, states: np.ndarray, policy: float, shift: float) -> np.ndarray:
    """A transition that kills its process if the policy is 1, and never ends if it is 2."""
    if policy == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    while policy == 2:
        time.sleep(60)
    return states + shift
