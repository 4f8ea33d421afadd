"""Monotone maps of the real line whose parameters a network computes: what a coupling layer moves a coordinate by.

Each maps a base coordinate z to a coordinate x of the state, elementwise, given `parameters` raw numbers for
every coordinate along a leading axis. Raw numbers may be any; all zero is the identity. Slopes are softly
bounded, whatever a network says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from nbf.errors import InputError

LOG_SCALE_LIMIT = 2.0
"""One map scales by at most e^2. AdaGrad at 0.1 takes large first steps: without a bound the loss of the
first steps reached 1e23, and the sums of squared gradients that AdaGrad keeps froze the model for good."""


def bounded(log_scale: Float[Array, "*any"]) -> Float[Array, "*any"]:
    """A logarithm of a scale, softly bounded to ±`LOG_SCALE_LIMIT`."""
    return LOG_SCALE_LIMIT * jnp.tanh(log_scale / LOG_SCALE_LIMIT)


def unstacked(raw: Float[Array, "p *any"]) -> list[Float[Array, "*any"]]:
    """The parts of a leading axis. The gradient of a split is one concatenation, that of an index a padded sum."""
    return [jnp.squeeze(part, 0) for part in jnp.split(raw, raw.shape[0])]


@runtime_checkable
class Transform(Protocol):
    """A family of increasing maps. Compared and hashed by value: it is a static part of a model."""

    @property
    def parameters(self) -> int:
        """How many raw numbers each coordinate takes."""
        ...

    def forward(self, raw: Float[Array, "p *n"], z: Float[Array, "*n"], /) -> Float[Array, "*n"]:
        """From base to state."""
        ...

    def inverse(
        self, raw: Float[Array, "p *n"], x: Float[Array, "*n"], /
    ) -> tuple[Float[Array, "*n"], Float[Array, "*n"]]:
        """From state to base, and log |dz/dx| of each coordinate."""
        ...


@dataclass(frozen=True)
class Affine:
    """x = shift + scale · z (Dinh et al., arXiv 1605.08803). Raw: shift, log scale."""

    @property
    def parameters(self) -> int:
        return 2

    def forward(self, raw: Float[Array, "2 *n"], z: Float[Array, "*m"]) -> Float[Array, "*out"]:
        shift, log_scale = unstacked(raw)
        return z * jnp.exp(bounded(log_scale)) + shift

    def inverse(
        self, raw: Float[Array, "2 *n"], x: Float[Array, "*m"]
    ) -> tuple[Float[Array, "*out"], Float[Array, "*n"]]:
        shift, log_scale = unstacked(raw)
        log_slope = -bounded(log_scale)
        return (x - shift) * jnp.exp(log_slope), log_slope


STEEPEST = 0.95
"""How near the hump of an NLSq map comes to making it flat: its slope is nowhere below 0.05 of b."""
FLAT = 8.0 * 3.0**0.5 / 9.0
"""u + r / (1 + u²) increases for |r| below this."""
FAR = 4.0
"""From here on u = y - r / (1 + y²) is a better start for Newton's method than the roots of a cubic in float32."""


@dataclass(frozen=True)
class NLSq:
    """x = a + b z + c / (1 + (d z + g)²) (Ziegler and Rush, arXiv 1901.10548): an affine map with a hump.

    Raw: a, log b, c, log d, g. With u = d z + g and r = c d / b it reads u + r / (1 + u²) = y, one increasing
    function of u for every r in (-8√3/9, 8√3/9), so that the inverse is one cubic in u.
    """

    @property
    def parameters(self) -> int:
        return 5

    def forward(self, raw: Float[Array, "5 *n"], z: Float[Array, "*m"]) -> Float[Array, "*out"]:
        a, log_b, r, log_d, g = self._parameters(raw)
        u = jnp.exp(log_d) * z + g
        return a + jnp.exp(log_b) * z + r * jnp.exp(log_b - log_d) / (1.0 + u * u)

    def inverse(
        self, raw: Float[Array, "5 *n"], x: Float[Array, "*m"]
    ) -> tuple[Float[Array, "*out"], Float[Array, "*out"]]:
        a, log_b, r, log_d, g = self._parameters(raw)
        u = _hump_inverse((x - a) * jnp.exp(log_d - log_b) + g, r)
        share = 1.0 / (1.0 + u * u)
        # Not (u - g) / d: where z is small beside g, that would lose its digits.
        z = (x - a - r * jnp.exp(log_b - log_d) * share) * jnp.exp(-log_b)
        return z, -log_b - jnp.log1p(-2.0 * r * u * share * share)

    def _parameters(self, raw: Float[Array, "5 *n"]) -> list[Float[Array, "*n"]]:
        """a, log b, r, log d, g."""
        a, log_b, hump, log_d, g = unstacked(raw)
        return [a, bounded(log_b), STEEPEST * FLAT * jnp.tanh(hump), bounded(log_d), g]


def _hump_inverse(y: Float[Array, "*n"], r: Float[Array, "*m"]) -> Float[Array, "*out"]:
    """The u for which u + r / (1 + u²) = y.

    A good start and two steps of Newton's method. The derivative is that of the last step, which is the
    implicit one: neither a cube root nor the start is differentiated.
    """
    start = jax.lax.stop_gradient(jnp.where(jnp.abs(y) < FAR, _cubic(jnp.clip(y, -FAR, FAR), r), y - r / (1.0 + y * y)))
    return _newton(jax.lax.stop_gradient(_newton(start, y, r)), y, r)


def _newton(u: Float[Array, "*n"], y: Float[Array, "*n"], r: Float[Array, "*m"]) -> Float[Array, "*n"]:
    share = 1.0 / (1.0 + u * u)
    return u - (u + r * share - y) / (1.0 - 2.0 * r * u * share * share)


def _cubic(y: Float[Array, "*n"], r: Float[Array, "*m"]) -> Float[Array, "*out"]:
    """The one real root of u³ - y u² + u + r - y, by Cardano's formula, for |y| <= `FAR`."""
    p = 1.0 - y * y / 3.0
    q = r - 2.0 * y * (y * y / 27.0 + 1.0 / 3.0)
    root = jnp.cbrt(jnp.abs(q) / 2.0 + jnp.sqrt(jnp.maximum(q * q / 4.0 + p**3 / 27.0, 0.0)))
    larger = jnp.where(q < 0, root, -root)
    return larger - p / (3.0 * larger) + y / 3.0


EVENNESS = 0.1
"""A bin of a spline is at least this part of an equal share wide and high; so no slope of one is 0 or infinite."""


@dataclass(frozen=True)
class Spline:
    """A monotone rational-quadratic spline on [-bound, bound], the identity beyond (Durkan et al., arXiv 1906.04032).

    Raw: the logits of the widths and of the heights of the bins, and the log slopes at the inner knots.
    """

    bins: int = 8
    bound: float = 5.0

    def __post_init__(self) -> None:
        if self.bins < 1 or not 0.0 < self.bound < float("inf"):
            raise InputError(f"A spline needs bins >= 1 and a finite bound > 0; got {self.bins} and {self.bound}.")

    @property
    def parameters(self) -> int:
        return 3 * self.bins - 1

    def forward(self, raw: Float[Array, "p *n"], z: Float[Array, "*m"]) -> Float[Array, "*out"]:
        xs, ys, slopes = self._knots(raw)
        # Evaluated within the interval everywhere: beyond it the formula is NaN, and so would be its gradient.
        inside = jnp.clip(z, -self.bound, self.bound)
        x0, width, y0, height, d0, d1 = _bin(inside, xs, xs, ys, slopes)
        share = (inside - x0) / width
        slope, both = height / width, share * (1.0 - share)
        rise = (slope * share * share + d0 * both) / (slope + (d0 + d1 - 2.0 * slope) * both)
        return jnp.where(jnp.abs(z) < self.bound, y0 + height * rise, z)

    def inverse(
        self, raw: Float[Array, "p *n"], x: Float[Array, "*m"]
    ) -> tuple[Float[Array, "*out"], Float[Array, "*out"]]:
        xs, ys, slopes = self._knots(raw)
        inside = jnp.clip(x, -self.bound, self.bound)
        x0, width, y0, height, d0, d1 = _bin(inside, ys, xs, ys, slopes)
        rise = (inside - y0) / height
        slope = height / width
        excess = d0 + d1 - 2.0 * slope
        # The share of the bin that solves a s² + b s = c, in the form that does not cancel.
        a, b, c = slope - d0 + rise * excess, d0 - rise * excess, slope * rise
        share = 2.0 * c / (b + jnp.sqrt(jnp.maximum(b * b + 4.0 * a * c, jnp.finfo(x.dtype).tiny)))
        both = share * (1.0 - share)
        steepness = d1 * share * share + 2.0 * slope * both + d0 * (1.0 - share) ** 2
        log_slope = 2.0 * jnp.log(slope + excess * both) - 2.0 * jnp.log(slope) - jnp.log(steepness)
        within = jnp.abs(x) < self.bound
        return jnp.where(within, x0 + width * share, x), jnp.where(within, log_slope, 0.0)

    def _knots(
        self, raw: Float[Array, "p *n"]
    ) -> tuple[Float[Array, "K1 *n"], Float[Array, "K1 *n"], Float[Array, "K1 *n"]]:
        """Where the knots lie, where they are mapped to, and the slopes there."""
        widths, heights, slopes = jnp.split(raw, [self.bins, 2 * self.bins])
        ends = jnp.ones((1, *raw.shape[1:]), raw.dtype)
        return self._places(widths), self._places(heights), jnp.concatenate([ends, jnp.exp(bounded(slopes)), ends])

    def _places(self, logits: Float[Array, "K *n"]) -> Float[Array, "K1 *n"]:
        shares = EVENNESS / self.bins + (1.0 - EVENNESS) * jax.nn.softmax(logits, axis=0)
        inner = 2.0 * self.bound * jnp.cumsum(shares[:-1], axis=0) - self.bound
        end = jnp.full((1, *logits.shape[1:]), self.bound, logits.dtype)
        return jnp.concatenate([-end, inner, end])


def _bin(
    at: Float[Array, "*m"],
    along: Float[Array, "K1 *n"],
    xs: Float[Array, "K1 *n"],
    ys: Float[Array, "K1 *n"],
    slopes: Float[Array, "K1 *n"],
) -> list[Float[Array, "*out"]]:
    """x, width, y, height, and both slopes of the bin that a place lies in, counted along x or along y."""
    above: Bool[Array, "K *out"] = at >= along[1:-1]
    first, last = (jnp.full((1, *above.shape[1:]), value) for value in (True, False))
    # One-hot, not a gather, whose gradient would be a scatter.
    here = jnp.concatenate([first, above]) & ~jnp.concatenate([above, last])

    def pick(table: Float[Array, "K *n"]) -> Float[Array, "*out"]:
        return jnp.sum(jnp.where(here, table, 0.0), axis=0)

    parts = (xs[:-1], jnp.diff(xs, axis=0), ys[:-1], jnp.diff(ys, axis=0), slopes[:-1], slopes[1:])
    return [pick(table) for table in parts]


TRANSFORMS = ("affine", "nlsq", "spline")
"""The names that configs give them."""


def transform_of(name: str, bins: int) -> Transform:
    """The transform of a name; `bins` are a spline's."""
    if name not in TRANSFORMS:
        raise InputError(f"transform must be one of {', '.join(TRANSFORMS)}; got {name!r}.")
    return {"affine": Affine(), "nlsq": NLSq(), "spline": Spline(bins)}[name]
