"""Conditional flow matching: the paper's second model of the donuts.

Section "Illustrative Example using Conditional Flow Matching"; Lipman et al., arXiv 2210.02747; Tong et al.,
arXiv 2302.00482. A network is the velocity v(x, t, θ) of a flow that carries standard normal noise at t = 0 to states
at t = 1. It is learned by regression, without solving the flow: between a state x1 and noise x0

    x_t = (1 - t)·x0 + t·x1,    and v(x_t, t, θ) should be x1 - x0.

The minimum of the regression is the mean of x1 - x0 given x_t, and that velocity carries the noise to the belief. The
coupling determines which noise is paired with which state.

Sampling solves dx/dt = v; a density is the base's, minus the divergence of v along the path:

    log p(x1) = log N(x0; 0, 1) - ∫_0^1 div v(x_t, t, θ) dt

As in `networks`, the first axis holds the features of one example and all further axes are examples. What θ contributes
to the first layer is computed once per belief and shared by its samples.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from nbf.capabilities import ContinuousSpace
from nbf.capability import capability, require
from nbf.contracts import StateSpace
from nbf.errors import InputError, optional_imports
from nbf.models.flow import check_not_circular
from nbf.models.networks import Perceptron, columns
from nbf.models.parts import DecoderConfig

COUPLINGS = ("independent", "ot")
"""How training pairs noise with states."""
SOLVERS = ("fixed", "adaptive")
"""How step lengths are chosen."""

SHORTEST_STEP = 1e-4
"""An adaptive solver accepts steps of this length whatever their error. The divergence of a ReLU network jumps, and no
step across a jump would be short enough; the error of one of this length is a ten-thousandth of the jump."""
MAX_STEPS = 16_384
"""Most steps of an adaptive solver: more than `SHORTEST_STEP` allows, so that it always reaches the end."""

Values = TypeVar("Values")


class FlowMatching(eqx.Module):
    """The velocity network, and how it is trained and solved.

    A bounded box clips samples beyond its walls; `log_prob` is the density before clipping, in the state's units.
    """

    network: Perceptron
    """Velocity network; its inputs are x and, last, t."""
    projection: Float[Array, "width m"]
    """The first layer's weights for θ."""
    coupling: str = eqx.field(static=True)
    """One of `COUPLINGS`."""
    ot_group: int = eqx.field(static=True)
    """Samples paired at a time under `ot`."""
    solver: str = eqx.field(static=True)
    """One of `SOLVERS`."""
    steps: int = eqx.field(static=True)
    """Steps of the fixed solver."""
    rtol: float = eqx.field(static=True)
    """Relative tolerance of the adaptive solver."""
    atol: float = eqx.field(static=True)
    """Absolute tolerance of the adaptive solver."""

    def __init__(self, key: Key[Array, ""], dimension: int, condition: int, config: FlowMatchingConfig):
        """Draw the parameters.

        Args:
            key: Random key.
            dimension: Numbers per state.
            condition: Size of the condition.
            config: Settings.
        """
        inputs = dimension + 1
        network = Perceptron(
            key, inputs + condition, dimension, width=config.width, depth=config.depth, zero_output=True
        )
        first, self.projection = network.weights[0][:, :inputs], network.weights[0][:, inputs:]
        self.network = eqx.tree_at(lambda network: network.weights[0], network, first)
        self.coupling, self.ot_group = config.coupling, config.ot_group
        self.solver, self.steps, self.rtol, self.atol = config.solver, config.steps, config.rtol, config.atol

    def context(self, condition: Float[Array, "m *beliefs"]) -> Float[Array, "width *beliefs"]:
        """Compute what θ contributes to the first product of the network.

        Args:
            condition: θ of each belief.

        Returns:
            The context of `velocity`.
        """
        return jnp.tensordot(self.projection, condition, 1)

    def velocity(
        self, x: Float[Array, "d *n"], time: Float[Array, "*times"], context: Float[Array, "width *ctx"]
    ) -> Float[Array, "d *n"]:
        """Evaluate v(x, t, θ).

        Args:
            x: Points.
            time: t; its axes broadcast against the examples of x.
            context: From `context`; its trailing axes broadcast against the examples of x.

        Returns:
            The velocity at each point.
        """
        weight = self.network.weights[0]
        product = jnp.tensordot(weight[:, :-1], x, 1)
        return self.network.from_first(product + columns(weight[:, -1], product) * time + context)

    def objective(
        self, key: Key[Array, ""], conditions: Float[Array, "b m"], states: Float[Array, "b n d"], space: StateSpace
    ) -> Float[Array, "b n"]:
        """Minus the squared error |v(x_t, t, θ) - (x1 - x0)|² of each state, with one draw of its noise and time.

        A regression, not a bound of log p_θ: its optimum is the belief, but its value, which stays below zero however
        good the model, says little about the distance to it; `log_prob` does.

        Args:
            key: Random key.
            conditions: The condition of each belief.
            states: States of each belief.
            space: Of each environment.

        Returns:
            The objective of each state.
        """
        base_key, time_key = jax.random.split(key)
        targets = jax.vmap(jax.vmap(space.encode))(states)
        base = jax.random.normal(base_key, targets.shape)
        if self.coupling == "ot":
            base = jnp.take_along_axis(base, optimal_pairing(targets, base, self.ot_group)[..., None], axis=-2)
        x0, x1 = jnp.moveaxis(base, -1, 0), jnp.moveaxis(targets, -1, 0)
        time = jax.random.uniform(time_key, states.shape[:-1])
        velocity = self.velocity((1.0 - time) * x0 + time * x1, time, self.context(conditions.T)[..., None])
        return -jnp.sum((velocity - (x1 - x0)) ** 2, axis=0)

    def sample(
        self, key: Key[Array, ""], condition: Float[Array, " m"], n: int, space: StateSpace
    ) -> Float[Array, "n d"]:
        context = self.context(condition)[:, None]
        base = jax.random.normal(key, (_real(space).dimension, n))
        x = self._solve(lambda time, x: self.velocity(x, time, context), base, 0.0, 1.0)
        return jax.vmap(space.decode, in_axes=1)(x)

    def log_prob(
        self, condition: Float[Array, " m"], states: Float[Array, "n d"], space: StateSpace
    ) -> Float[Array, " n"]:
        space, context = _real(space), self.context(condition)[:, None]

        def field(time: Float[Array, ""], values: tuple) -> tuple[Float[Array, "d n"], Float[Array, " n"]]:
            return with_divergence(lambda x: self.velocity(x, time, context), values[0])

        x = jax.vmap(space.encode, out_axes=1)(states)
        # Backwards, so that the second value ends as minus the integral.
        base, log_det = self._solve(field, (x, jnp.zeros(x.shape[1:])), 1.0, 0.0)
        log_base = -0.5 * jnp.sum(base**2, axis=0) - 0.5 * space.dimension * math.log(2.0 * math.pi)
        return log_base + log_det - np.sum(np.log(space.scale))

    def _solve(
        self, field: Callable[[Float[Array, ""], Values], Values], start: Values, begin: float, end: float
    ) -> Values:
        """Where `field` carries `start`, whose last axes are samples, from time `begin` to time `end`.

        Fixed steps are the same for all samples: one product per layer serves them all. Adaptive steps are chosen for
        each sample separately, so that it does not depend on the others.

        The method has low order because the divergence jumps wherever a path crosses a kink of the network. On a
        trained donut 20 of its steps are off in log p by 0.019 nats, those of Tsit5 by 0.054 at twice the cost.
        """
        diffrax = import_diffrax()

        def solve(start: Values) -> Values:
            if self.solver == "fixed":
                most = self.steps
                controller = diffrax.StepTo(jnp.linspace(begin, end, self.steps + 1))
            else:
                most = MAX_STEPS
                controller = diffrax.PIDController(self.rtol, self.atol, dtmin=SHORTEST_STEP, force_dtmin=True)
            term = diffrax.ODETerm(lambda time, values, _: field(time, values))
            solution = diffrax.diffeqsolve(
                term,
                diffrax.Bosh3(),
                begin,
                end,
                None,
                start,
                stepsize_controller=controller,
                max_steps=most,
                throw=False,
            )
            return jax.tree.map(lambda leaf: leaf[0], solution.ys)

        if self.solver == "fixed":
            return solve(start)
        alone = jax.tree.map(lambda leaf: leaf[..., None, :], start)
        return jax.tree.map(lambda leaf: leaf[..., 0, :], jax.vmap(solve, in_axes=-1, out_axes=-1)(alone))


def _real(space: StateSpace) -> ContinuousSpace:
    return require(space, ContinuousSpace, "Flow matching", "Use a Box.")


def with_divergence(
    function: Callable[[Float[Array, "d n"]], Float[Array, "d n"]], x: Float[Array, "d n"]
) -> tuple[Float[Array, "d n"], Float[Array, " n"]]:
    """Evaluate a vector field and its exact divergence: one derivative along each axis.

    Args:
        function: Vector field on n points.
        x: Points.

    Returns:
        The field and its divergence at each point.
    """
    value, derivative = jax.linearize(function, x)
    directions = jnp.broadcast_to(jnp.eye(x.shape[0])[..., None], (x.shape[0], *x.shape))
    along = [derivative(direction)[axis] for axis, direction in enumerate(directions)]
    return value, jnp.sum(jnp.stack(along), axis=0)


def optimal_pairing(targets: Float[Array, "*b n d"], base: Float[Array, "*b n d"], group: int) -> Int[Array, "*b n"]:
    """Pair base draws with targets at the least summed squared distance, within groups of one belief's samples.

    Only within one belief: across beliefs a target's noise would depend on its belief, and the flow of each belief
    would no longer start at the whole base. The solver is SciPy's (shortest augmenting paths, exact), on the host.

    Args:
        targets: States of each belief.
        base: As many base draws of each belief.
        group: Samples paired at a time.

    Returns:
        For each target, the index of its base draw.
    """
    points = jax.lax.stop_gradient((targets, base))
    shape = jax.ShapeDtypeStruct(targets.shape[:-1], jnp.int32)
    # The points, not the many times larger costs: JAX copies small arguments of a callback at once.
    return jax.pure_callback(functools.partial(_pair, group), shape, *points, vmap_method="broadcast_all")


def _pair(group: int, targets: Any, base: Any) -> Int[np.ndarray, "*b n"]:
    batch, (n, d) = targets.shape[:-2], targets.shape[-2:]
    targets, base = (np.asarray(points).reshape(-1, n, d) for points in (targets, base))
    pairing = np.empty(targets.shape[:-1], np.int32)
    for first in range(0, n, group):
        block = slice(first, first + group)
        # The squared distance, up to terms that every pairing pays. With the draws as rows the solver takes
        # 0.6 of its time with the targets as rows. It raises at what is not a number, which nothing may do
        # inside a compiled function; such a state's objective is NaN however it is paired.
        costs = np.nan_to_num(-base[:, block] @ np.swapaxes(targets[:, block], 1, 2))
        parts = _threads().map(_assign, np.array_split(costs, os.cpu_count() or 1))
        pairing[:, block] = first + np.argsort(np.concatenate(list(parts)), axis=-1)
    return pairing.reshape(*batch, n)


def _assign(costs: Float[np.ndarray, "b n n"]) -> Int[np.ndarray, "b n"]:
    """The column assigned to each row of each matrix."""
    from scipy.optimize import linear_sum_assignment

    return np.asarray([linear_sum_assignment(cost)[1] for cost in costs], np.int32).reshape(costs.shape[:-1])


@functools.cache
def _threads() -> ThreadPoolExecutor:
    """One thread per core: the solver releases Python's lock."""
    return ThreadPoolExecutor(os.cpu_count())


def import_diffrax() -> Any:
    """Import diffrax, which solves the flow, where it is needed."""
    with optional_imports("Flow matching"):
        import diffrax
    return diffrax


@dataclass(frozen=True)
class FlowMatchingConfig(DecoderConfig):
    """Config of flow matching; the defaults are the paper's table for the donuts."""

    coupling: str = "independent"
    """How training pairs noise with states: `independent`, or `ot`, by optimal transport among one belief's
    samples, which straightens the paths."""
    ot_group: int = 32
    """Samples of a belief paired at a time under `ot`. 32 beliefs of 64 samples take 8 ms of one core in groups of 64,
    3 ms in groups of 32; with optax's solver, all in JAX, 28 and 11."""
    width: int = 64
    """Hidden units of the velocity network."""
    depth: int = 4
    """Hidden layers of the velocity network."""
    solver: str = "fixed"
    """`fixed` takes `steps` steps of one length, `adaptive` as many as `rtol` and `atol` require."""
    steps: int = 20
    """Steps of the fixed solver, each of three evaluations of the network."""
    rtol: float = 1e-4
    """Relative tolerance of the adaptive solver."""
    atol: float = 1e-4
    """Absolute tolerance of the adaptive solver."""

    def check(self, space: StateSpace) -> None:
        continuous = capability(space, ContinuousSpace)
        if continuous is None:
            raise InputError(f"Flow matching moves the vectors of a Box; it does not fit {space.signature}.")
        check_not_circular("Flow matching", continuous)
        for name, value, known in (("coupling", self.coupling, COUPLINGS), ("solver", self.solver, SOLVERS)):
            if value not in known:
                raise InputError(f"{name} must be one of {', '.join(known)}; got {value!r}.")
        for name, value in (("rtol", self.rtol), ("atol", self.atol)):
            if not 0.0 < value < math.inf:
                raise InputError(f"{name} must be a positive number, for example 1e-4; got {value}.")
        import_diffrax()

    def build(self, key: Key[Array, ""], space: StateSpace, condition: int) -> FlowMatching:
        return FlowMatching(key, _real(space).dimension, condition, self)
