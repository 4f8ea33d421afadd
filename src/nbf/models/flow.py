"""Conditional coupling flows over boxes of real vectors (section "Conditional Normalizing Flow").

    z ~ p(z),   x = f_ψ(z; θ),      p_θ(x) = p(f_ψ⁻¹(x; θ)) |det ∂f_ψ⁻¹(x; θ)/∂x|

With a normal base the flow acts on the encoding of a state. With a uniform base it acts on the logits of the box's
coordinates, and maps the box to itself: an affine map of the box itself would leave the support of the base.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from nbf import prng
from nbf.capabilities import ContinuousSpace, EvenDraws, FiniteSpace
from nbf.capability import capability, require
from nbf.contracts import StateSpace
from nbf.errors import InputError
from nbf.models.coupling import Coupling
from nbf.models.networks import ACTIVATIONS, columns
from nbf.models.parts import DecoderConfig
from nbf.models.transforms import Transform, transform_of

EDGE = 1e-6
"""Numbers are clipped to [EDGE, 1 - EDGE] before a logit; float32 resolves no finer near 1."""


def logit(x: Float[Array, "d *n"]) -> Float[Array, "d *n"]:
    """Logit of numbers in [0, 1], clipped by `EDGE`.

    Args:
        x: Numbers in [0, 1].

    Returns:
        log(x / (1 - x)).
    """
    clipped = jnp.clip(x, EDGE, 1.0 - EDGE)
    return jnp.log(clipped) - jnp.log1p(-clipped)


def log_logistic(x: Float[Array, "d *n"]) -> Float[Array, "*n"]:
    """Log density of d independent standard logistic variables, the logits of uniform ones.

    Args:
        x: Points.

    Returns:
        The log density at each point.
    """
    return -jnp.sum(jnp.abs(x) + 2.0 * jnp.log1p(jnp.exp(-jnp.abs(x))), axis=0)


def log_normal(x: Float[Array, "d *n"]) -> Float[Array, "*n"]:
    """Log density of d independent standard normal variables.

    Args:
        x: Points.

    Returns:
        The log density at each point.
    """
    return -0.5 * jnp.sum(x * x + math.log(2.0 * math.pi), axis=0)


def _logits_of_uniform(key: Key[Array, ""], shape: tuple[int, ...]) -> Float[Array, "d *n"]:
    return logit(jax.random.uniform(key, shape))


Draw = Callable[[Key[Array, ""], tuple[int, ...]], Float[Array, "d *n"]]
LogDensity = Callable[[Float[Array, "d *n"]], Float[Array, "*n"]]
BASES: dict[str, tuple[Draw, LogDensity]] = {
    "uniform": (_logits_of_uniform, log_logistic),
    "normal": (jax.random.normal, log_normal),
}
"""Sampler and log density of each base, in the coordinates that a flow acts on."""
QUANTILES: dict[str, Callable[[Float[Array, "d *n"]], Float[Array, "d *n"]]] = {
    "uniform": logit,
    "normal": jax.scipy.special.ndtri,
}
"""Quantile function of each base, in the same coordinates."""


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise `InputError` unless an option of a config is one of the choices.

    Args:
        name: Name of the option.
        value: Its value.
        choices: What it may be.
    """
    if value not in choices:
        raise InputError(f"{name} must be one of {', '.join(choices)}; got {value!r}.")


def check_coupling(space: ContinuousSpace | FiniteSpace) -> None:
    """Raise `InputError` for a space of one dimension, where a masked coupling has nothing to keep.

    Args:
        space: Space of the states.
    """
    if space.dimension < 2:
        listed = capability(space, FiniteSpace) is not None
        others = "an enumerated decoder" if listed else "a mixture or flow matching"
        raise InputError(
            f"space must have 2 dimensions or more for a masked coupling; {space.signature} has dimension "
            f"{space.dimension}, so that every other layer would do nothing: use {others}."
        )


def check_not_circular(what: str, space: ContinuousSpace) -> None:
    """Raise `InputError` for a space with circular coordinates.

    Args:
        what: The decoder that knows none, as the message's subject.
        space: Space of the states.
    """
    if space.circular:
        raise InputError(
            f"{what} has no density that wraps round circular coordinates; it does not fit {space.signature}: use "
            "MixtureConfig(), the mixture of wrapped Gaussians."
        )


def unit_log_density(
    flow: Coupling, base: str, unit: Float[Array, "d *n"], context: Float[Array, "layers width *ctx"]
) -> Float[Array, "*n"]:
    """Log density, at points of the unit cube, of a flow that acts on their logits.

    Args:
        flow: Coupling layers.
        base: One of `BASES`.
        unit: Points of the unit cube.
        context: From `Coupling.condition`.

    Returns:
        The log density at each point.
    """
    logits = logit(unit)
    z, log_det = flow.inverse(logits, context)
    return BASES[base][1](z) + log_det - log_logistic(logits)


class CouplingFlow(EvenDraws):
    """The paper's Triangulation decoder: coupling layers over real vectors.

    A bounded box clips the samples of a normal base, which makes atoms on its walls. `log_prob` is the density before
    clipping, in the state's units; the clipped mass lies outside of the box.
    """

    space: ContinuousSpace
    """Where the states lie."""
    flow: Coupling
    """Coupling layers."""
    base: str = eqx.field(static=True)
    """One of `BASES`."""

    def __init__(
        self,
        key: Key[Array, ""],
        space: ContinuousSpace,
        condition: int,
        *,
        transform: Transform,
        base: str,
        layers: int,
        width: int,
        depth: int,
        activation: str = "relu",
    ):
        """Draw the parameters.

        Args:
            key: Random key.
            space: Space of the states.
            condition: Size of the condition.
            transform: What moves a coordinate.
            base: One of `BASES`.
            layers: Coupling layers.
            width: Hidden units of each layer's network.
            depth: Hidden layers of each layer's network.
            activation: Of those networks.
        """
        self.space, self.base = space, base
        self.flow = Coupling(
            key,
            space.dimension,
            condition,
            transform=transform,
            layers=layers,
            width=width,
            depth=depth,
            activation=activation,
        )

    def sample(
        self, key: Key[Array, ""], condition: Float[Array, " m"], n: int, space: StateSpace
    ) -> Float[Array, "n d"]:
        return self._states(BASES[self.base][0](key, (self.space.dimension, n)), condition)

    def draw(
        self, key: Key[Array, ""], condition: Float[Array, " m"], n: int, space: StateSpace
    ) -> tuple[Float[Array, "n d"], Float[Array, " n"]]:
        return self._states(QUANTILES[self.base](prng.evenly(key, n, self.space.dimension)), condition), jnp.zeros(n)

    def _states(self, z: Float[Array, "d n"], condition: Float[Array, " m"]) -> Float[Array, "n d"]:
        """The images of base points."""
        moved = self.flow.forward(z, self.flow.condition(condition)[..., None])
        numbers = moved if self.base == "normal" else jnp.tanh(moved / 2.0)  # 2 sigmoid - 1
        return jax.vmap(self.space.decode, in_axes=1)(numbers)

    def log_prob(
        self, condition: Float[Array, " m"], states: Float[Array, "n d"], space: StateSpace
    ) -> Float[Array, " n"]:
        return self.log_density(condition[:, None], states.T)

    def objective(
        self, key: Key[Array, ""], conditions: Float[Array, "b m"], states: Float[Array, "b n d"], space: StateSpace
    ) -> Float[Array, "b n"]:
        return self.log_density(conditions.T[..., None], jnp.moveaxis(states, -1, 0))

    def log_density(self, condition: Float[Array, "m *beliefs"], points: Float[Array, "d *n"]) -> Float[Array, "*n"]:
        """Log density at points of any number of beliefs.

        Args:
            condition: θ of each belief.
            points: States; all axes but the first broadcast against those of `condition`.

        Returns:
            The log density at each point, in the state's units.
        """
        scale, middle = (columns(part, points) for part in (self.space.scale, self.space.middle))
        encoded = (points - middle) / scale
        context = self.flow.condition(condition)
        if self.base == "uniform":
            return unit_log_density(self.flow, self.base, (encoded + 1.0) / 2.0, context) - jnp.sum(
                jnp.log(2.0 * scale)
            )
        z, log_det = self.flow.inverse(encoded, context)
        return log_normal(z) + log_det - jnp.sum(jnp.log(scale))


@dataclass(frozen=True)
class CouplingFlowConfig(DecoderConfig):
    """Config of coupling layers over a Box."""

    transform: str = "affine"
    """What moves a coordinate: affine, nlsq or spline."""
    base: str = "normal"
    """normal, or uniform on the box, which must then be bounded."""
    layers: int = 8
    """Coupling layers."""
    width: int = 32
    """Hidden units of each layer's network."""
    depth: int = 3
    """Hidden layers of each layer's network."""
    bins: int = 8
    """Bins of a spline."""
    activation: str = field(default="relu", metadata={"added later": True})
    """Activation of those networks: relu, as in the paper, or silu, which makes smoother densities."""

    def check(self, space: StateSpace) -> None:
        continuous = capability(space, ContinuousSpace)
        if continuous is None:
            raise InputError(
                f"The coupling flow is a density over a Box; it does not fit {space.signature}. For a Lattice "
                "there is the dequantized flow."
            )
        check_not_circular("The coupling flow", continuous)
        check_coupling(continuous)
        transform_of(self.transform, self.bins)
        check_choice("base", self.base, tuple(BASES))
        check_choice("activation", self.activation, tuple(ACTIVATIONS))
        if self.base == "uniform" and not continuous.bounded:
            raise InputError(f"base 'uniform' needs a bounded box; {space.signature} has no ends: use base 'normal'.")

    def build(self, key: Key[Array, ""], space: StateSpace, condition: int) -> CouplingFlow:
        return CouplingFlow(
            key,
            require(space, ContinuousSpace, "The coupling flow", "Use a Box."),
            condition,
            transform=transform_of(self.transform, self.bins),
            base=self.base,
            layers=self.layers,
            width=self.width,
            depth=self.depth,
            activation=self.activation,
        )
