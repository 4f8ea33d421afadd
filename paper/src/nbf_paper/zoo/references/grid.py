"""Bayes' rule for the masses of the cells of a fine grid (Bucy, Senne 1971), for one to three coordinates.

A problem says how masses move (`predict`), mostly by matrices along each axis from `reflecting` or `circular`. Two
approximations: the density is taken as constant within a cell, and the likelihood is that of a cell's centre. Both
errors are of second order in the side of a cell.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Array, Float, Key

from nbf import prng
from nbf.contracts import Belief, Environment, Filter, FilterInfo, Observation, Policy
from nbf.resampling.weights import scaled

POINTS = np.array([-0.375, -0.125, 0.125, 0.375])
"""Starts within a cell over which a move is averaged."""


class Grid(eqx.Module):
    """Equal cells between `low` and `high`, in coordinates of their own: a state is `chart` of them."""

    low: tuple[float, ...] = eqx.field(static=True)
    high: tuple[float, ...] = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)
    """Cells along each axis."""
    chart: Callable = eqx.field(static=True, default=lambda coordinates: coordinates)
    """Coordinates to a state."""
    inverse: Callable = eqx.field(static=True, default=lambda state: state)
    """A state to coordinates."""
    log_volume: Callable = eqx.field(static=True, default=lambda coordinates: jnp.zeros(()))
    """log of the volume that a unit of coordinates has among states."""

    @property
    def side(self) -> np.ndarray:
        """Sides of a cell."""
        return (np.asarray(self.high) - np.asarray(self.low)) / np.asarray(self.shape)

    def centres(self) -> Float[Array, "cells d"]:
        """Coordinates of the centres of all cells, in row-major order."""
        axes = [low + (np.arange(n) + 0.5) * side for low, n, side in zip(self.low, self.shape, self.side, strict=True)]
        return jnp.asarray(np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes)), jnp.float32)


class GridBelief(Belief):
    """Masses of cells: uniform within each in the grid's coordinates."""

    masses: Float[Array, " cells"]
    grid: Grid

    def sample(self, key: Key[Array, ""], n: int) -> Float[Array, "n d"]:
        cell_key, place_key = jax.random.split(key)
        chosen = prng.categoricals(cell_key, self.masses, n)
        cells = jnp.stack(jnp.unravel_index(chosen, self.grid.shape), axis=-1)
        places = cells + jax.random.uniform(place_key, cells.shape)
        return jax.vmap(self.grid.chart)(jnp.asarray(self.grid.low) + places * jnp.asarray(self.grid.side, jnp.float32))

    def log_prob(self, state: Float[Array, " d"]) -> Float[Array, ""]:
        coordinates = self.grid.inverse(state)
        cell = jnp.floor((coordinates - jnp.asarray(self.grid.low)) / jnp.asarray(self.grid.side)).astype(jnp.int32)
        sizes = jnp.asarray(self.grid.shape)
        inside = jnp.all((cell >= 0) & (cell < sizes))
        mass = self.masses.reshape(self.grid.shape)[tuple(jnp.clip(cell, 0, sizes - 1))]
        log_density = jnp.log(mass) - float(np.sum(np.log(self.grid.side))) - self.grid.log_volume(coordinates)
        return jnp.where(inside, log_density, -jnp.inf)

    def log_probs(self, states: Float[Array, "n d"]) -> Float[Array, " n"]:
        return jax.vmap(self.log_prob)(states)

    def expectation(self, function: Callable[[Any], Any]) -> Any:
        values = jax.vmap(lambda centre: function(self.grid.chart(centre)))(self.grid.centres())
        return jax.tree.map(lambda value: jnp.tensordot(self.masses, value, 1), values)


class GridFilter(Filter):
    """The posterior on a grid, for an emission that depends on the new state alone."""

    grid: Grid
    prior: Callable = eqx.field(static=True)
    """`prior(coordinates)`: log density of p0 at the centre of a cell, up to a constant."""
    predict: Callable = eqx.field(static=True)
    """`predict(masses, policy)`: the masses after a move, as an array of the grid's shape."""

    def init(self, key: Key[Array, ""], environment: Environment) -> Float[Array, " cells"]:
        return jax.nn.softmax(jax.vmap(self.prior)(self.grid.centres()))

    def update(
        self,
        key: Key[Array, ""],
        state: Float[Array, " cells"],
        observation: Observation,
        environment: Environment,
        policy: Policy,
    ) -> tuple[Float[Array, " cells"], FilterInfo]:
        moved = self.predict(state.reshape(self.grid.shape), policy).ravel()
        moved = moved / jnp.sum(moved)
        size = jnp.asarray(float(state.size))
        if observation is None:
            return moved, FilterInfo(size, jnp.zeros(()), jnp.int32(1), jnp.bool_(False))

        def at(centre: Float[Array, " d"]) -> Float[Array, ""]:
            place = self.grid.chart(centre)
            return environment.log_likelihood(observation, place, place)

        weights, log_scale = scaled(jnp.where(moved > 0, jax.vmap(at)(self.grid.centres()), -jnp.inf))
        evidence = jnp.sum(moved * weights)
        impossible = ~(evidence > 0)
        posterior = jnp.where(impossible, moved, moved * weights / jnp.where(impossible, 1.0, evidence))
        log_evidence = jnp.where(impossible, -jnp.inf, jnp.log(evidence) + log_scale)
        return posterior, FilterInfo(size, log_evidence, jnp.int32(1), impossible)

    def belief(self, state: Float[Array, " cells"], environment: Environment) -> GridBelief:
        return GridBelief(state, self.grid)


def _kernel(cells: int, mean: Any, deviation: Any) -> Float[Array, " offsets"]:
    """Mass that a Gaussian move puts on the cell at each offset -2·cells..2·cells, in units of a cell."""
    edges = jnp.arange(-2 * cells, 2 * cells + 2) - 0.5 - mean
    below = jnp.mean(ndtr((edges[:, None] - jnp.asarray(POINTS, jnp.float32)) / deviation), axis=1)
    return jnp.diff(below)


def reflecting(cells: int, mean: Any, deviation: Any) -> Float[Array, "cells cells"]:
    """Transition matrix along an axis with walls that reflect: row i has the masses after a move from cell i. Mean and
    deviation are in units of a cell, and less than `cells`."""
    kernel = _kernel(cells, mean, deviation)
    start, end = jnp.arange(cells)[:, None], jnp.arange(cells)
    images = (end - start, -1 - end - start, 2 * cells - 1 - end - start)
    return sum((kernel[image + 2 * cells] for image in images), jnp.zeros(()))


def circular(cells: int, mean: Any, deviation: Any) -> Float[Array, "cells cells"]:
    """Transition matrix along an axis that closes on itself."""
    kernel = _kernel(cells, mean, deviation)
    apart = jnp.arange(cells) - jnp.arange(cells)[:, None]
    return sum((kernel[apart + turn * cells + 2 * cells] for turn in (-1, 0, 1)), jnp.zeros(()))
