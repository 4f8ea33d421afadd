"""Monotone maps of the real line whose parameters a network computes: they move one coordinate in a coupling layer.

Each maps a base coordinate z to a state coordinate x, elementwise, given `parameters` raw numbers per coordinate along
a leading axis. Raw numbers may be any real numbers; all zero is the identity. Slopes are softly bounded.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from nbf.errors import InputError
from nbf.models.networks import bounded

LOG_SCALE_LIMIT = 2.0
"""One map scales by at most e^2. AdaGrad at 0.1 takes large first steps: without a bound their loss reached 1e23, and
AdaGrad's sums of squared gradients froze the model for good."""


def log_scale_of(raw: Float[Array, "*any"]) -> Float[Array, "*any"]:
    """Bound a log scale softly by ±`LOG_SCALE_LIMIT`.

    Args:
        raw: Any numbers.

    Returns:
        Log scales.
    """
    return bounded(raw, LOG_SCALE_LIMIT)


def unstacked(raw: Float[Array, "p *any"]) -> list[Float[Array, "*any"]]:
    """Split a leading axis. The gradient of a split is one concatenation, that of indexing a padded sum.

    Args:
        raw: An array.

    Returns:
        Its parts.
    """
    return [jnp.squeeze(part, 0) for part in jnp.split(raw, raw.shape[0])]


class Transform(ABC):
    """A family of increasing maps. Compared and hashed by value, as it is a static part of a model.

    Arguments of the methods:
        raw: Raw numbers from a network; all axes but the first broadcast against the coordinates.
        z: Base coordinates.
        x: State coordinates.
    """

    @property
    @abstractmethod
    def parameters(self) -> int:
        """Number of raw numbers per coordinate."""

    @abstractmethod
    def forward(self, raw: Float[Array, "p *n"], z: Float[Array, "*m"]) -> Float[Array, "*out"]:
        """Map base coordinates to state coordinates."""

    @abstractmethod
    def inverse(
        self, raw: Float[Array, "p *n"], x: Float[Array, "*m"]
    ) -> tuple[Float[Array, "*out"], Float[Array, "*out"]]:
        """Map state coordinates to base coordinates, with log |dz/dx| of each."""


@dataclass(frozen=True)
class Affine(Transform):
    """x = shift + scale · z (Dinh et al., arXiv 1605.08803). Raw: shift, log scale."""

    @property
    def parameters(self) -> int:
        return 2

    def forward(self, raw: Float[Array, "2 *n"], z: Float[Array, "*m"]) -> Float[Array, "*out"]:
        shift, log_scale = unstacked(raw)
        return z * jnp.exp(log_scale_of(log_scale)) + shift

    def inverse(
        self, raw: Float[Array, "2 *n"], x: Float[Array, "*m"]
    ) -> tuple[Float[Array, "*out"], Float[Array, "*n"]]:
        shift, log_scale = unstacked(raw)
        log_slope = -log_scale_of(log_scale)
        return (x - shift) * jnp.exp(log_slope), log_slope


LARGEST_HUMP = 0.95
"""Largest hump of an NLSq map, relative to `HUMP_LIMIT`: its slope is nowhere below 0.05 b."""
HUMP_LIMIT = 8.0 * 3.0**0.5 / 9.0
"""The map u + r / (1 + u²) increases if |r| is below this."""
FAR_FROM_HUMP = 4.0
"""For |y| above this, u = y - r / (1 + y²) is a better start for Newton's method than the cubic's root in float32."""


@dataclass(frozen=True)
class NLSq(Transform):
    """An affine map with a hump, x = a + b z + c / (1 + (d z + g)²) (Ziegler and Rush, arXiv 1901.10548).

    Raw: a, log b, c, log d, g. With u = d z + g and r = c d / b it reads u + r / (1 + u²) = y, an increasing function
    of u for every r in (-8√3/9, 8√3/9), so that the inverse solves one cubic in u.
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
        r = LARGEST_HUMP * HUMP_LIMIT * jnp.tanh(hump)
        return [a, log_scale_of(log_b), r, log_scale_of(log_d), g]


def _hump_inverse(y: Float[Array, "*n"], r: Float[Array, "*m"]) -> Float[Array, "*out"]:
    """Solve u + r / (1 + u²) = y.

    Two steps of Newton's method from a good start. The derivative is that of the last step, which is the implicit one:
    neither a cube root nor the start is differentiated.
    """
    near = _cubic(jnp.clip(y, -FAR_FROM_HUMP, FAR_FROM_HUMP), r)
    start = jax.lax.stop_gradient(jnp.where(jnp.abs(y) < FAR_FROM_HUMP, near, y - r / (1.0 + y * y)))
    return _newton(jax.lax.stop_gradient(_newton(start, y, r)), y, r)


def _newton(u: Float[Array, "*n"], y: Float[Array, "*n"], r: Float[Array, "*m"]) -> Float[Array, "*n"]:
    share = 1.0 / (1.0 + u * u)
    return u - (u + r * share - y) / (1.0 - 2.0 * r * u * share * share)


def _cubic(y: Float[Array, "*n"], r: Float[Array, "*m"]) -> Float[Array, "*out"]:
    """The one real root of u³ - y u² + u + r - y, by Cardano's formula, for |y| <= `FAR_FROM_HUMP`."""
    p = 1.0 - y * y / 3.0
    q = r - 2.0 * y * (y * y / 27.0 + 1.0 / 3.0)
    root = jnp.cbrt(jnp.abs(q) / 2.0 + jnp.sqrt(jnp.maximum(q * q / 4.0 + p**3 / 27.0, 0.0)))
    larger = jnp.where(q < 0, root, -root)
    return larger - p / (3.0 * larger) + y / 3.0


LEAST_BIN_SHARE = 0.1
"""Least width and height of a spline's bin, relative to an equal share: no slope is 0 or infinite."""


@dataclass(frozen=True)
class Spline(Transform):
    """A monotone rational-quadratic spline on [-bound, bound], the identity beyond (Durkan et al., arXiv 1906.04032).

    Raw: the logits of the widths and of the heights of the bins, and the log slopes at the inner knots.
    """

    bins: int = 8
    """Number of bins."""
    bound: float = 5.0
    """End of the interval that the spline moves."""

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
        """Positions of the knots, their images, and the slopes there."""
        widths, heights, slopes = jnp.split(raw, [self.bins, 2 * self.bins])
        ends = jnp.ones((1, *raw.shape[1:]), raw.dtype)
        inner = jnp.exp(log_scale_of(slopes))
        return self._places(widths), self._places(heights), jnp.concatenate([ends, inner, ends])

    def _places(self, logits: Float[Array, "K *n"]) -> Float[Array, "K1 *n"]:
        shares = LEAST_BIN_SHARE / self.bins + (1.0 - LEAST_BIN_SHARE) * jax.nn.softmax(logits, axis=0)
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
    """x, width, y, height and both slopes of the bin that contains a coordinate, located along x or along y."""
    above: Bool[Array, "K *out"] = at >= along[1:-1]
    first, last = (jnp.full((1, *above.shape[1:]), value) for value in (True, False))
    # One-hot, not a gather, whose gradient would be a scatter.
    here = jnp.concatenate([first, above]) & ~jnp.concatenate([above, last])

    def pick(table: Float[Array, "K *n"]) -> Float[Array, "*out"]:
        return jnp.sum(jnp.where(here, table, 0.0), axis=0)

    parts = (xs[:-1], jnp.diff(xs, axis=0), ys[:-1], jnp.diff(ys, axis=0), slopes[:-1], slopes[1:])
    return [pick(table) for table in parts]


TRANSFORMS = ("affine", "nlsq", "spline")
"""Names of the transforms, for configs."""


def transform_of(name: str, bins: int) -> Transform:
    """Make a transform by its name.

    Args:
        name: One of `TRANSFORMS`.
        bins: Bins of a spline; the others have none.

    Returns:
        The transform.
    """
    if name not in TRANSFORMS:
        raise InputError(f"transform must be one of {', '.join(TRANSFORMS)}; got {name!r}.")
    return {"affine": Affine(), "nlsq": NLSq(), "spline": Spline(bins)}[name]
