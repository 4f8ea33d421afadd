"""The classical Gaussian filters, for environments that give the mean and the noise of a step and of a reading.

A belief is a mean and a root of the covariance. A step replaces the environment's moments by an affine map with
Gaussian noise, by their derivative at the mean (extended) or by regression on sigma points (unscented, cubature), and
is then a Kalman filter's; where the moments are affine themselves, all of these are exact. The mathematics is that of
cuthbertlib, in square-root form, hence no covariance loses its sign to rounding. What to regress on is whitened first,
x = mean + root·z with z ~ N(0, I), so that a covariance may be singular.

A Gaussian has no weights: `ess` is 1 after a sound step (for an ensemble, its members), and 0 after one whose
observation nothing explains or whose moments were not finite; the prediction is then kept. Impossible is what has no
likelihood anywhere on the sigma points (the members) of the updated belief. In a bounded box a mean (a member) that an
observation would take beyond the walls is put on them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from nbf.beliefs.gaussian import GaussianBelief
from nbf.capabilities import GaussianDynamics
from nbf.capability import require
from nbf.contracts import Environment, Filter, FilterInfo, Observation, Policy
from nbf.errors import InputError
from nbf.spaces import Box

MomentFunction = Callable[[Float[Array, " d"]], tuple[Float[Array, " e"], Float[Array, "e e"]]]
"""The mean, and a root of the covariance, of something given a vector."""
Linearization = Callable[[MomentFunction, int], tuple[Float[Array, "e d"], Float[Array, " e"], Float[Array, "e k"]]]
"""(function, d) -> F, c and a root: the noisy affine map F z + c that stands for the function where z ~ N(0, I)."""


class Moments(eqx.Module):
    """What a Gaussian filter carries."""

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
        return _step(_derivative, state, observation, _linear(environment), policy)

    def belief(self, state: Moments, environment: Environment) -> GaussianBelief:
        return GaussianBelief.of(state.mean, state.root, _box(environment))


class ExtendedKalmanFilter(Filter):
    """Moments by their derivative: that of the motion at the mean, that of the reading at the predicted mean."""

    def init(self, key: Key[Array, ""], environment: Environment) -> Moments:
        return _start(environment)

    def update(
        self, key: Key[Array, ""], state: Moments, observation: Observation, environment: Environment, policy: Policy
    ) -> tuple[Moments, FilterInfo]:
        return _step(_derivative, state, observation, environment, policy)

    def belief(self, state: Moments, environment: Environment) -> GaussianBelief:
        return GaussianBelief.of(state.mean, state.root, _box(environment))


class UnscentedKalmanFilter(Filter):
    """Moments by regression on 2d + 1 sigma points of the scaled unscented transform, noise as it is at the mean.

    The points lie α·√(d + κ) deviations from the mean. κ is 3 + d if None.
    """

    alpha: float = eqx.field(static=True, default=0.5)
    beta: float = eqx.field(static=True, default=2.0)
    kappa: float | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        if not (0 < self.alpha < math.inf and math.isfinite(self.beta) and math.isfinite(self.kappa or 0.0)):
            raise InputError(
                "The unscented transform needs alpha above 0 and finite parameters; "
                f"got alpha={self.alpha}, beta={self.beta}, kappa={self.kappa}."
            )

    def init(self, key: Key[Array, ""], environment: Environment) -> Moments:
        return _start(environment)

    def update(
        self, key: Key[Array, ""], state: Moments, observation: Observation, environment: Environment, policy: Policy
    ) -> tuple[Moments, FilterInfo]:
        return _step(self._regression, state, observation, environment, policy)

    def belief(self, state: Moments, environment: Environment) -> GaussianBelief:
        return GaussianBelief.of(state.mean, state.root, _box(environment))

    def _regression(
        self, function: MomentFunction, d: int
    ) -> tuple[Float[Array, "e d"], Float[Array, " e"], Float[Array, "e k"]]:
        if self.kappa is not None and d + self.kappa <= 0:
            raise InputError(f"With states of {d} numbers kappa must be above {-d}; got {self.kappa}.")
        rule = import_cuthbertlib().quadrature.unscented.weights(d, self.alpha, self.beta, self.kappa)
        return _regression(function, d, rule)


class CubatureKalmanFilter(Filter):
    """Moments by regression on the 2d points of the spherical cubature rule, noise as it is at the mean."""

    def init(self, key: Key[Array, ""], environment: Environment) -> Moments:
        return _start(environment)

    def update(
        self, key: Key[Array, ""], state: Moments, observation: Observation, environment: Environment, policy: Policy
    ) -> tuple[Moments, FilterInfo]:
        return _step(self._regression, state, observation, environment, policy)

    def belief(self, state: Moments, environment: Environment) -> GaussianBelief:
        return GaussianBelief.of(state.mean, state.root, _box(environment))

    @staticmethod
    def _regression(
        function: MomentFunction, d: int
    ) -> tuple[Float[Array, "e d"], Float[Array, " e"], Float[Array, "e k"]]:
        return _regression(function, d, import_cuthbertlib().quadrature.cubature.weights(d))


class EnsembleKalmanFilter(Filter):
    """Members that move by the environment's own `transition`, and to which a reading is a regression on theirs, each
    with noise of its own (the stochastic ensemble Kalman filter). The state is the members; the belief the Gaussian
    of their mean and covariance."""

    num_particles: int = eqx.field(static=True)

    def __check_init__(self) -> None:
        if self.num_particles < 2:
            raise InputError(f"An ensemble needs num_particles of at least 2; got {self.num_particles}.")

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
                noise_key, members, lambda x: dynamics.observation_moments(x)[0], _triangular(root),
                dynamics.reading(observation),
            )  # fmt: skip
            return _inside(corrected, space), log_evidence

        predicted = ensemble_kalman.predict(move_key, state, transition)
        return _kept(
            state, predicted, correct, observation, environment,
            look=lambda members: members, ess=float(self.num_particles),
        )  # fmt: skip

    def belief(self, state: Float[Array, "n d"], environment: Environment) -> GaussianBelief:
        mean = jnp.mean(state, axis=0)
        return GaussianBelief.of(mean, (state - mean).T / math.sqrt(self.num_particles - 1), _box(environment))


def _start(environment: Environment) -> Moments:
    mean, root = _dynamics(environment).initial_moments()
    return Moments(mean, _triangular(root))


def _step(
    linearize: Linearization, state: Moments, observation: Observation, environment: Environment, policy: Policy
) -> tuple[Moments, FilterInfo]:
    """Prediction and update of a Kalman filter in z, of which x = mean + root·z."""
    dynamics, space = _dynamics(environment), _box(environment)
    kalman = import_cuthbertlib().kalman
    d = space.dimension
    whitened = jnp.zeros(d), jnp.eye(d)

    def correct(at: Moments) -> tuple[Moments, Float[Array, ""]]:
        sensor, shift, noise = linearize(lambda z: dynamics.observation_moments(at.mean + at.root @ z), d)
        (mean, root), log_evidence = kalman.filter_update(
            *whitened, sensor, shift, _triangular(noise), dynamics.reading(observation)
        )
        return Moments(_inside(at.mean + at.root @ mean, space), at.root @ root), log_evidence

    def points(at: Moments) -> Float[Array, "k d"]:
        return GaussianBelief(at.mean, at.root, space).points()

    moved = linearize(lambda z: dynamics.moments(state.mean + state.root @ z, policy), d)
    mean, root = kalman.predict(*whitened, *moved)
    predicted = Moments(_inside(mean, space), root)
    return _kept(state, predicted, correct, observation, environment, look=points, ess=1.0)


def _kept(
    state: Any,
    predicted: Any,
    correct: Callable[[Any], tuple[Any, Float[Array, ""]]],
    observation: Observation,
    environment: Environment,
    *,
    look: Callable[[Any], Float[Array, "k d"]],
    ess: float,
) -> tuple[Any, FilterInfo]:
    """The corrected state, if it is sound; else the predicted one; if even that is not finite, the one before."""
    moved = _finite(predicted)
    predicted = _choose(moved, predicted, state)
    if observation is None:
        log_evidence = jnp.where(moved, 0.0, -jnp.inf)
        return predicted, FilterInfo(jnp.where(moved, ess, 0.0), log_evidence, jnp.int32(1), ~moved)
    corrected, log_evidence = correct(predicted)
    finite = moved & _finite((corrected, log_evidence))
    points = look(_choose(finite, corrected, predicted))
    likelihoods = jax.vmap(lambda x: environment.log_likelihood(observation, x, x))(points)
    sound = finite & jnp.any((likelihoods > -jnp.inf) & (likelihoods < jnp.inf))
    info = FilterInfo(
        ess=jnp.where(sound, ess, 0.0),
        log_evidence=jnp.where(sound, log_evidence, -jnp.inf),
        attempts=jnp.int32(1),
        recovered=~sound,
    )
    return _choose(sound, corrected, predicted), info


def _derivative(
    function: MomentFunction, d: int
) -> tuple[Float[Array, "e d"], Float[Array, " e"], Float[Array, "e k"]]:
    return import_cuthbertlib().linearize.linearize_moments(function, jnp.zeros(d))


def _regression(
    function: MomentFunction, d: int, rule: Any
) -> tuple[Float[Array, "e d"], Float[Array, " e"], Float[Array, "e k"]]:
    """The affine regression on sigma points; what it leaves unexplained is noise too.

    The function's own noise is kept out of cuthbertlib's sums: their covariance weights, which for the unscented
    transform do not sum to one, would multiply it. Rounding may leave the residual slightly indefinite.
    """
    mean, noise = function(jnp.zeros(d))
    none = jnp.zeros((mean.shape[0],) * 2)
    matrix, shift, residual = import_cuthbertlib().quadrature.conditional_moments(
        lambda z: function(z)[0], lambda z: none, jnp.zeros(d), jnp.eye(d), rule
    )
    values, vectors = jnp.linalg.eigh(residual)
    return matrix, shift, jnp.concatenate([vectors * jnp.sqrt(jnp.maximum(values, 0.0)), noise], axis=1)


def _triangular(root: Float[Array, "e k"]) -> Float[Array, "e e"]:
    """A lower triangular root of the same covariance; k is at least e."""
    return import_cuthbertlib().linalg.tria(root)


def _finite(tree: Any) -> Bool[Array, ""]:
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]))


def _choose(condition: Bool[Array, ""], these: Any, those: Any) -> Any:
    return jax.tree.map(lambda this, that: jnp.where(condition, this, that), these, those)


def _inside(states: Float[Array, "*n d"], space: Box) -> Float[Array, "*n d"]:
    return jnp.clip(states, jnp.asarray(space.low), jnp.asarray(space.high)) if space.bounded else states


def _box(environment: Environment) -> Box:
    if not isinstance(environment.space, Box):
        raise InputError(
            "A Gaussian filter needs states that are real vectors, in a Box; "
            f"{type(environment).__name__} has {environment.space.signature}. Use a particle filter."
        )
    return environment.space


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


def import_cuthbertlib() -> Any:
    """cuthbertlib, whose mathematics these filters are; imported where it is needed, as nothing else needs it."""
    try:
        import cuthbertlib
    except ImportError as error:
        raise InputError(
            "The Gaussian filters compute with cuthbertlib, which is not installed: "
            "pip install neural-bayesian-filtering[classical]."
        ) from error
    return cuthbertlib
