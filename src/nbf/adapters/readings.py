"""What adapters of simulators share: an observation from readings with normal noise, and noise on the state.

A simulator's own observation is a function of the state. A filter needs a likelihood, so somebody must say how exact a
reading is: `noise`, or functions of one's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from nbf.errors import InputError

Scale = float | Sequence[float] | np.ndarray
"""One standard deviation, or one for each entry."""


def emission_of(
    read: Callable,
    noise: Scale | None,
    entries: Sequence[int] | None,
    observe: Callable | None,
    log_likelihood: Callable | None,
    *,
    whose: str,
) -> dict[str, Any]:
    """Choose the emission: readings with noise, or functions of one's own.

    Args:
        read: `read(states, *parameters)` gives n readings.
        noise: Standard deviations; None if functions are given.
        entries: Of a reading, those that are seen; None: all.
        observe: Draws observations.
        log_likelihood: Their likelihood.
        whose: The subject of an error.

    Returns:
        Arguments of `host_environment`.
    """
    if noise is None and observe is not None and log_likelihood is not None and entries is None:
        return {"observe": observe, "log_likelihood": log_likelihood}
    if noise is None or observe is not None or log_likelihood is not None:
        raise InputError(
            f"{whose} do not tell how exact they are: pass `noise` (with `entries` if not all are seen), or both "
            f"`observe` and `log_likelihood`; got noise={noise}, entries={entries}, observe={observe}, "
            f"log_likelihood={log_likelihood}."
        )
    scale = np.asarray(noise, np.float64)
    if scale.ndim > 1 or not np.all((scale > 0) & np.isfinite(scale)):
        raise InputError(f"`noise` must be standard deviations, finite and above 0; got {noise}.")
    readings = Readings(read, None if entries is None else tuple(int(entry) for entry in entries), scale)
    return {"observe": readings.observe, "log_likelihood": readings.log_likelihood, "emission": "state"}


class Readings(NamedTuple):
    """Readings of the new state, with normal noise."""

    read: Callable
    entries: tuple[int, ...] | None
    scale: np.ndarray

    def clean(self, states: np.ndarray, parameters: tuple) -> np.ndarray:
        """Read what is seen, without noise.

        Args:
            states: n states.
            parameters: Nothing, or the parameters of the environment.

        Returns:
            Of shape (n, entries).
        """
        found = np.asarray(self.read(states, *parameters), np.float64)
        size = found.shape[1]
        chosen = range(size) if self.entries is None else self.entries
        if size == 0 or not all(0 <= entry < size for entry in chosen) or self.scale.shape not in ((), (len(chosen),)):
            raise InputError(
                f"A reading has {size} entries; of these {list(chosen)} are to be seen, with noise of shape "
                f"{self.scale.shape}: choose from 0..{size - 1}, and give one standard deviation or {len(chosen)}."
            )
        return found[:, list(chosen)]

    def observe(self, rng: np.random.Generator, states: Any, next_states: np.ndarray, *parameters: Any) -> np.ndarray:
        """Draw n observations.

        Args:
            rng: Random generator.
            states: Before the step; not used.
            next_states: n states.
            *parameters: Nothing, or the parameters of the environment.

        Returns:
            Of shape (n, entries).
        """
        clean = self.clean(next_states, parameters)
        return (clean + self.scale * rng.standard_normal(clean.shape)).astype(np.float32)

    def log_likelihood(
        self, observation: np.ndarray, states: Any, next_states: np.ndarray, *parameters: Any
    ) -> np.ndarray:
        """Compute log densities of an observation.

        Args:
            observation: Of shape (entries,).
            states: Before the step; not used.
            next_states: n states.
            *parameters: Nothing, or the parameters of the environment.

        Returns:
            n numbers; -inf where a state is NaN.
        """
        clean = self.clean(next_states, parameters)
        errors = (np.asarray(observation, np.float64) - clean) / self.scale
        found = -0.5 * errors**2 - np.log(self.scale) - 0.5 * np.log(2 * np.pi)
        return np.where(np.isfinite(clean).all(axis=1), found.sum(axis=1), -np.inf).astype(np.float32)


def process_of(process: Scale | Callable | None, size: int) -> Callable:
    """Choose what is added after each step.

    Args:
        process: Standard deviations of normal noise; or `process(rng, states, *parameters)`, which returns the states
            after it; None: nothing.
        size: Entries of a state.

    Returns:
        `process(rng, states, *parameters)`.
    """
    if process is None:
        return _same
    if callable(process):
        return process
    scale = np.asarray(process, np.float64)
    if scale.shape not in ((), (size,)) or not np.all((scale >= 0) & np.isfinite(scale)):
        raise InputError(
            f"`process` must be one standard deviation or {size}, finite and 0 or more, or a function; got {process}."
        )
    return Normal(scale)


class Normal(NamedTuple):
    """Independent normal noise on each entry of a state."""

    scale: np.ndarray

    def __call__(self, rng: np.random.Generator, states: np.ndarray, *parameters: Any) -> np.ndarray:
        """Add it to n states."""
        return states + self.scale * rng.standard_normal(states.shape)


def _same(rng: np.random.Generator, states: np.ndarray, *parameters: Any) -> np.ndarray:
    return states
