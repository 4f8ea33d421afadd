"""Linear dynamics with Gaussian noise, where the Kalman filter is exact.

    x0 ~ N(m0, P0)    x' ~ N(A x + π, Q)    y ~ N(C x', R)

The policy π is a vector that is added to the mean of the next state, or None.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Key
from numpy.typing import ArrayLike

from nbf.capabilities import GaussianDynamics, StateEmission
from nbf.contracts import Observation
from nbf.errors import InputError
from nbf.spaces import Box

HORIZON, WIDTH = 20, 4.0
"""The default space is WIDTH standard deviations around the mean at each of the first HORIZON steps."""

LARGEST = float(np.finfo(np.float32).max)
"""The largest finite number of an observation."""


class LinearGaussian(StateEmission, GaussianDynamics):
    """A linear-Gaussian system. A state is a `Float[d]` vector, an observation a `Float[k]` vector."""

    space: Box
    matrix: Float[Array, "d d"]
    """A."""
    sensor: Float[Array, "k d"]
    """C."""
    start: Float[Array, " d"]
    """m0."""
    start_root: Float[Array, "d d"]
    """F with F Fᵀ = P0."""
    step_root: Float[Array, "d d"]
    """F with F Fᵀ = Q."""
    noise_root: Float[Array, "k k"]
    """F with F Fᵀ = R."""
    whitener: Float[Array, "k k"]
    """W with Wᵀ W = R⁻¹."""
    log_normalizer: Float[Array, ""]
    """log density of an observation at its mean."""

    def __init__(
        self,
        A: ArrayLike | Array,  # noqa: N803
        Q: ArrayLike | Array,  # noqa: N803
        C: ArrayLike | Array,  # noqa: N803
        R: ArrayLike | Array,  # noqa: N803
        m0: ArrayLike | Array,
        P0: ArrayLike | Array,  # noqa: N803
        *,
        space: Box | None = None,
    ):
        """Build a system.

        Args:
            A: Matrix of the dynamics, `[d, d]`.
            Q: Covariance of the dynamics' noise, `[d, d]`; may be singular.
            C: Matrix of the observation, `[k, d]`.
            R: Covariance of the observation's noise, `[k, k]`; positive definite.
            m0: Mean of the start, `[d]`.
            P0: Covariance of the start, `[d, d]`; may be singular.
            space: An unbounded box that gives the range of states, by default computed from the system. Give one to
                systems that share a model or a compiled filter, and inside a trace.
        """
        given = {"A": A, "Q": Q, "C": C, "R": R, "m0": m0, "P0": P0}
        traced = any(isinstance(value, Tracer) for value in given.values())
        # In float64 where the numbers are known: the roots are then exact up to the rounding of float32.
        numpy: Any = jnp if traced else np
        parts = {name: numpy.asarray(value, None if traced else np.float64) for name, value in given.items()}
        _check_shapes(parts, space)
        if not traced:
            _check_values(parts)
        elif space is None:
            raise InputError("A system that is built inside a trace needs `space`: its size cannot be read off there.")
        values, vectors = numpy.linalg.eigh(parts["R"])
        stored = {
            "matrix": parts["A"],
            "sensor": parts["C"],
            "start": parts["m0"],
            "start_root": _root(parts["P0"], numpy),
            "step_root": _root(parts["Q"], numpy),
            "noise_root": _root(parts["R"], numpy),
            "whitener": (vectors / numpy.sqrt(values)).T,
            "log_normalizer": -0.5 * (len(parts["R"]) * math.log(2.0 * math.pi) + numpy.sum(numpy.log(values))),
        }
        self.space = _usual_range(parts) if space is None else space
        for name, value in stored.items():
            setattr(self, name, jnp.asarray(value, jnp.float32))

    def init(self, key: Key[Array, ""]) -> Float[Array, " d"]:
        return self.start + self.start_root @ jax.random.normal(key, self.start.shape)

    def transition(
        self, key: Key[Array, ""], state: Float[Array, " d"], policy: Float[Array, " d"] | None
    ) -> Float[Array, " d"]:
        moved = self.matrix @ state + self.step_root @ jax.random.normal(key, self.start.shape)
        return moved if policy is None else moved + policy

    def observe(
        self, key: Key[Array, ""], state: Float[Array, " d"], next_state: Float[Array, " d"]
    ) -> Float[Array, " k"]:
        return self.sensor @ next_state + self.noise_root @ jax.random.normal(key, self.sensor.shape[:1])

    def log_likelihood(
        self, observation: Float[Array, " k"], state: Float[Array, " d"], next_state: Float[Array, " d"]
    ) -> Float[Array, ""]:
        whitened = self.whitener @ (observation - self.sensor @ next_state)
        return self.log_normalizer - 0.5 * jnp.sum(whitened * whitened)

    @property
    def linear(self) -> bool:
        return True

    def initial_moments(self) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
        return self.start, self.start_root

    def moments(
        self, state: Float[Array, " d"], policy: Float[Array, " d"] | None
    ) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
        moved = self.matrix @ state
        return moved if policy is None else moved + policy, self.step_root

    def observation_moments(self, next_state: Float[Array, " d"]) -> tuple[Float[Array, " k"], Float[Array, "k k"]]:
        return self.sensor @ next_state, self.noise_root

    def reading(self, observation: Float[Array, " k"]) -> Float[Array, " k"]:
        return observation

    def check_observation(self, observation: Observation) -> None:
        value, shape = np.asarray(observation), self.sensor.shape[:1]
        if value.shape != shape or value.dtype.kind != "f":
            raise InputError(
                f"An observation of this system is a float vector of shape {shape}; got {value.dtype} of {value.shape}."
            )
        if not (np.abs(value) <= LARGEST).all():
            raise InputError(
                f"An observation must be finite; got {value.tolist()}. For a missing one pass None: the step predicts."
            )


def _check_shapes(parts: dict[str, Any], space: Box | None) -> None:
    d, k = math.prod(parts["m0"].shape), parts["C"].shape[0] if parts["C"].ndim else 0
    fitting = {"A": (d, d), "Q": (d, d), "C": (k, d), "R": (k, k), "m0": (d,), "P0": (d, d)}
    for name, shape in fitting.items():
        if parts[name].shape != shape:
            raise InputError(
                f"With m0 of {d} and C of {k} rows, {name} must have shape {shape}; got {parts[name].shape}."
            )
    if space is not None and (space.dimension != d or space.bounded or space.circular):
        raise InputError(
            f"States of this system are any vectors of {d} numbers: its space is a Box of that dimension with "
            f"bounded=False and nothing circular; got {space.signature}."
        )


def _check_values(parts: dict[str, np.ndarray]) -> None:
    for name, value in parts.items():
        if not np.all(np.isfinite(value)):
            raise InputError(f"{name} must be finite; got {value.tolist()}.")
    for name in ("Q", "R", "P0"):
        value = parts[name]
        size = float(np.abs(value).max())
        least = float(np.linalg.eigvalsh(value)[0])
        if not np.allclose(value, value.T, rtol=0.0, atol=1e-6 * size) or least < -1e-6 * size:
            raise InputError(
                f"{name} must be a covariance, symmetric without negative eigenvalues; got {value.tolist()}."
            )
        if name == "R" and least <= 1e-6 * size:
            raise InputError(f"R must be positive definite, or observations have no density; got {value.tolist()}.")


def _root(covariance: Any, numpy: Any) -> Any:
    """An F with F Fᵀ equal to the covariance."""
    values, vectors = numpy.linalg.eigh(covariance)
    return vectors * numpy.sqrt(numpy.maximum(values, 0.0))


def _usual_range(parts: dict[str, np.ndarray]) -> Box:
    """The box of the first steps' states, without a policy."""
    mean, covariance = parts["m0"], parts["P0"]
    lows, highs = [], []
    for _ in range(HORIZON + 1):
        margin = WIDTH * np.sqrt(np.diag(covariance))
        lows.append(mean - margin)
        highs.append(mean + margin)
        mean, covariance = parts["A"] @ mean, parts["A"] @ covariance @ parts["A"].T + parts["Q"]
    low, high = np.min(lows, axis=0), np.max(highs, axis=0)
    flat = high - low < 1e-6  # a coordinate that never changes still needs a range
    low, high = np.where(flat, low - 1.0, low), np.where(flat, high + 1.0, high)
    return Box(tuple(map(float, low)), tuple(map(float, high)), bounded=False)
