"""The classical Gaussian filters, for environments with `GaussianDynamics`.

A belief is a mean and a root of the covariance. A step replaces the environment's moments by an affine map with
Gaussian noise (`nbf.filters.linearization`), by their derivative at the mean (extended) or by regression on sigma
points (unscented, cubature), and is then that of a Kalman filter. Where the moments are affine, all of these are
exact. The mathematics is that of cuthbertlib, in square-root form: no covariance becomes indefinite by rounding.

A Gaussian has no weights: `ess` is 1 after a sound step (for an ensemble, the number of its members). It is 0 after a
step whose observation is impossible or whose moments are not finite; the prediction is then kept. An observation is
impossible if its likelihood is zero at all cubature points (for an ensemble, all members) of the updated belief. In a
bounded box, a mean (a member) beyond the walls is clipped.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from nbf.beliefs.gaussian import GaussianBelief
from nbf.capabilities import ContinuousSpace, GaussianDynamics
from nbf.capability import capability, require
from nbf.contracts import Environment, Filter, FilterInfo, Observation, Policy
from nbf.errors import InputError
from nbf.filters.checks import check_counts
from nbf.filters.linearization import (
    AffineMap,
    Linearization,
    MomentFunction,
    by_derivative,
    by_regression,
    import_cuthbertlib,
    triangular,
)
from nbf.resampling.likelihoods import is_invalid, log_likelihoods


class Moments(eqx.Module):
    """The state of a Gaussian filter."""

    mean: Float[Array, " d"]
    root: Float[Array, "d d"]
    """Lower triangular; root·rootᵀ is the covariance."""


class KalmanFilter(Filter):
    """Exact, for environments whose moments are linear."""

    def init(self, key: Key[Array, ""], environment: Environment) -> Moments:
        return _start(_linear(environment))

    def update(
        self, key: Key[Array, ""], state: Moments, observation: Observation, environment: Environment, policy: Policy
    ) -> tuple[Moments, FilterInfo]:
        return _step(by_derivative, state, observation, _linear(environment), policy)

    def belief(self, state: Moments, environment: Environment) -> GaussianBelief:
        return GaussianBelief.of(state.mean, state.root, _box(environment))


class _LinearizingFilter(Filter):
    """A Kalman filter after a linearisation of the moments of the environment."""

    @abstractmethod
    def _linearize(self, function: MomentFunction, d: int) -> AffineMap:
        """The noisy affine map that stands for a function of d whitened numbers."""

    def init(self, key: Key[Array, ""], environment: Environment) -> Moments:
        return _start(environment)

    def update(
        self, key: Key[Array, ""], state: Moments, observation: Observation, environment: Environment, policy: Policy
    ) -> tuple[Moments, FilterInfo]:
        return _step(self._linearize, state, observation, environment, policy)

    def belief(self, state: Moments, environment: Environment) -> GaussianBelief:
        return GaussianBelief.of(state.mean, state.root, _box(environment))


class ExtendedKalmanFilter(_LinearizingFilter):
    """Linearises by derivatives: that of the motion at the mean, that of the reading at the predicted mean."""

    def _linearize(self, function: MomentFunction, d: int) -> AffineMap:
        return by_derivative(function, d)


class UnscentedKalmanFilter(_LinearizingFilter):
    """Linearises by regression on the 2d + 1 sigma points of the scaled unscented transform, which lie α·√(d + κ)
    deviations from the mean. The noise is that at the mean."""

    alpha: float = eqx.field(static=True, default=0.5)
    """α."""
    beta: float = eqx.field(static=True, default=2.0)
    """β, in the weight of the central point in covariances; 2 is best for Gaussians."""
    kappa: float | None = eqx.field(static=True, default=None)
    """κ; None is 3 + d."""

    def __check_init__(self) -> None:
        if not (0 < self.alpha < math.inf and math.isfinite(self.beta) and math.isfinite(self.kappa or 0.0)):
            raise InputError(
                "The unscented transform needs alpha above 0 and finite parameters; "
                f"got alpha={self.alpha}, beta={self.beta}, kappa={self.kappa}."
            )

    def _linearize(self, function: MomentFunction, d: int) -> AffineMap:
        if self.kappa is not None and d + self.kappa <= 0:
            raise InputError(f"With states of {d} numbers kappa must be above {-d}; got {self.kappa}.")
        rule = import_cuthbertlib().quadrature.unscented.weights(d, self.alpha, self.beta, self.kappa)
        return by_regression(function, d, rule)


class CubatureKalmanFilter(_LinearizingFilter):
    """Linearises by regression on the 2d points of the spherical cubature rule. The noise is that at the mean."""

    def _linearize(self, function: MomentFunction, d: int) -> AffineMap:
        return by_regression(function, d, import_cuthbertlib().quadrature.cubature.weights(d))


class EnsembleKalmanFilter(Filter):
    """The stochastic ensemble Kalman filter: members move by the environment's own `transition`, and each is corrected
    by the gain of the ensemble, with a perturbed observation of its own. The state is the members; the belief is the
    Gaussian of their mean and covariance."""

    num_particles: int = eqx.field(static=True)
    """Members of the ensemble."""

    def __check_init__(self) -> None:
        check_counts("An ensemble", least=2, num_particles=self.num_particles)

    def init(self, key: Key[Array, ""], environment: Environment) -> Float[Array, "n d"]:
        _dynamics(environment)
        return jax.vmap(environment.init)(jax.random.split(key, self.num_particles))

    def update(
        self,
        key: Key[Array, ""],
        state: Float[Array, "n d"],
        observation: Observation,
        environment: Environment,
        policy: Policy,
    ) -> tuple[Float[Array, "n d"], FilterInfo]:
        dynamics, space = _dynamics(environment), _box(environment)
        ensemble_kalman = import_cuthbertlib().ensemble_kalman
        move_key, noise_key = jax.random.split(key)

        def transition(state: Float[Array, " d"], key: Key[Array, ""]) -> Float[Array, " d"]:
            return environment.transition(key, state, policy)

        def correct(members: Float[Array, "n d"]) -> tuple[Float[Array, "n d"], Float[Array, ""]]:
            _, root = dynamics.observation_moments(jnp.mean(members, axis=0))
            corrected, log_evidence = ensemble_kalman.filter_update(
                noise_key, members, lambda x: dynamics.observation_moments(x)[0], triangular(root),
                dynamics.reading(observation),
            )  # fmt: skip
            return space.nearest(corrected), log_evidence

        predicted = ensemble_kalman.predict(move_key, state, transition)
        return _kept(
            state, predicted, correct, observation, environment,
            points=lambda members: members, ess=float(self.num_particles),
        )  # fmt: skip

    def belief(self, state: Float[Array, "n d"], environment: Environment) -> GaussianBelief:
        mean = jnp.mean(state, axis=0)
        return GaussianBelief.of(mean, (state - mean).T / math.sqrt(self.num_particles - 1), _box(environment))


def _start(environment: Environment) -> Moments:
    mean, root = _dynamics(environment).initial_moments()
    return Moments(mean, triangular(root))


def _step(
    linearize: Linearization, state: Moments, observation: Observation, environment: Environment, policy: Policy
) -> tuple[Moments, FilterInfo]:
    """Prediction and update of a Kalman filter in whitened coordinates z, x = mean + root·z."""
    dynamics, space = _dynamics(environment), _box(environment)
    kalman = import_cuthbertlib().kalman
    d = space.dimension
    whitened = jnp.zeros(d), jnp.eye(d)

    def correct(at: Moments) -> tuple[Moments, Float[Array, ""]]:
        sensor, shift, noise = linearize(lambda z: dynamics.observation_moments(at.mean + at.root @ z), d)
        (mean, root), log_evidence = kalman.filter_update(
            *whitened, sensor, shift, triangular(noise), dynamics.reading(observation)
        )
        return Moments(space.nearest(at.mean + at.root @ mean), at.root @ root), log_evidence

    moved = linearize(lambda z: dynamics.moments(state.mean + state.root @ z, policy), d)
    mean, root = kalman.predict(*whitened, *moved)
    predicted = Moments(space.nearest(mean), root)
    return _kept(
        state, predicted, correct, observation, environment,
        points=lambda at: GaussianBelief(at.mean, at.root, space).points(), ess=1.0,
    )  # fmt: skip


def _kept(
    state: Any,
    predicted: Any,
    correct: Callable[[Any], tuple[Any, Float[Array, ""]]],
    observation: Observation,
    environment: Environment,
    *,
    points: Callable[[Any], Float[Array, "k d"]],
    ess: float,
) -> tuple[Any, FilterInfo]:
    """The corrected state if it is finite and explains the observation, else the predicted one; if that is not finite,
    the state before the step. `points` of a state are where the likelihood is evaluated."""
    moved = _finite(predicted)
    predicted = _choose(moved, predicted, state)
    if observation is None:
        log_evidence = jnp.where(moved, 0.0, -jnp.inf)
        return predicted, FilterInfo(jnp.where(moved, ess, 0.0), log_evidence, jnp.int32(1), ~moved)
    corrected, log_evidence = correct(predicted)
    finite = moved & _finite((corrected, log_evidence))
    places = points(_choose(finite, corrected, predicted))
    likelihoods = log_likelihoods(environment, observation, places, places)
    sound = finite & jnp.any((likelihoods > -jnp.inf) & (likelihoods < jnp.inf))
    info = FilterInfo(
        ess=jnp.where(sound, ess, 0.0),
        log_evidence=jnp.where(sound, log_evidence, -jnp.inf),
        attempts=jnp.int32(1),
        recovered=~sound,
        invalid=jnp.sum(is_invalid(likelihoods), dtype=jnp.int32),
    )
    return _choose(sound, corrected, predicted), info


def _finite(tree: Any) -> Bool[Array, ""]:
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]))


def _choose(condition: Bool[Array, ""], these: Any, those: Any) -> Any:
    return jax.tree.map(lambda this, that: jnp.where(condition, this, that), these, those)


def _box(environment: Environment) -> ContinuousSpace:
    space = capability(environment.space, ContinuousSpace)
    if space is None:
        raise InputError(
            "A Gaussian filter needs states that are real vectors, in a Box; "
            f"{type(environment).__name__} has {environment.space.signature}. Use a particle filter."
        )
    if space.circular:
        raise InputError(
            f"A Gaussian filter knows no circular coordinates; {type(environment).__name__} has "
            f"{space.signature}. Use RegularizedParticleFilter, whose kernels wrap; or, if the belief is "
            "always narrow, leave `circular` out, let the angle run on beyond its ends, and wrap it where it is "
            "observed."
        )
    return space


def _dynamics(environment: Environment) -> GaussianDynamics:
    _box(environment)
    return require(environment, GaussianDynamics, "A Gaussian filter", "Use a particle filter.")


def _linear(environment: Environment) -> Environment:
    if not _dynamics(environment).linear:
        raise InputError(
            f"The Kalman filter needs linear moments; those of {type(environment).__name__} are not. "
            "Use ExtendedKalmanFilter, UnscentedKalmanFilter or CubatureKalmanFilter."
        )
    return environment
