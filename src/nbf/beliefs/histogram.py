"""Beliefs on a plane as masses of cells: the posterior of a point-mass filter, and how beliefs are compared.

Motion that is stopped by walls puts atoms on them, so a histogram of r x r cells has two more places along each
axis: index 0 is the lower wall itself, 1..r are the cells, r + 1 is the upper wall. Within a cell the density is
constant, as it is along a stretch of a wall; in a corner the mass is one atom.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from nbf.beliefs.gaussian import GaussianBelief
from nbf.beliefs.kde import KernelDensityBelief
from nbf.beliefs.particles import ParticleBelief
from nbf.capabilities import ContinuousSpace
from nbf.contracts import Belief
from nbf.errors import InputError
from nbf.resampling import schemes as resampling
from nbf.resampling.weights import normalize, scaled

PAD = 0.5
"""How far beyond the walls the density of a model is still counted, in the outermost cells."""


class HistogramBelief(Belief):
    """Masses of the cells and walls of a box of two dimensions.

    Samples are uniform within cells, and exactly on a wall where its mass is drawn. `log_prob` is a density: the mass
    of a wall counts in the cells next to it. `expectation` takes the middle of each cell.
    """

    masses: Float[Array, "places places"]
    """Normalised."""
    space: ContinuousSpace

    @property
    def resolution(self) -> int:
        """Cells along each axis."""
        return self.masses.shape[0] - 2

    @property
    def side(self) -> Float[Array, " 2"]:
        """Lengths of the sides of a cell."""
        return jnp.asarray(2.0 * self.space.scale / self.resolution)

    def sample(self, key: Key[Array, ""], n: int) -> Float[Array, "n 2"]:
        place_key, jitter_key = jax.random.split(key)
        drawn = resampling.draw(place_key, jnp.log(self.masses.ravel()), n)
        place = jnp.stack(jnp.divmod(drawn, self.masses.shape[1]), axis=-1)
        low, high = jnp.asarray(self.space.low), jnp.asarray(self.space.high)
        inside = low + (place - 1 + jax.random.uniform(jitter_key, (n, 2))) * self.side
        return jnp.where(place == 0, low, jnp.where(place > self.resolution, high, jnp.clip(inside, low, high)))

    def log_prob(self, state: Float[Array, " 2"]) -> Float[Array, ""]:
        row, column = _cell(state, self.space, self.resolution)
        density = self.coarsen(self.resolution)[row, column] / jnp.prod(self.side)
        return jnp.where(self.space.contains(state), jnp.log(density), -jnp.inf)

    def expectation(self, function: Callable[[Any], Any]) -> Any:
        rows, columns = places(self.space, self.resolution)
        points = jnp.stack(jnp.meshgrid(rows, columns, indexing="ij"), axis=-1).reshape(-1, 2)
        return jax.tree.map(lambda value: jnp.tensordot(self.masses.ravel(), value, 1), jax.vmap(function)(points))

    def coarsen(self, cells: int) -> Float[Array, "c c"]:
        """Add up the masses of larger cells. The outermost ones contain the walls.

        Args:
            cells: How many along each axis; divides the resolution.

        Returns:
            Their masses.
        """
        if cells < 1 or self.resolution % cells:
            raise InputError(f"cells must divide the resolution {self.resolution}; got {cells}.")
        owner = jnp.clip(jnp.arange(self.resolution + 2) - 1, 0, self.resolution - 1) // (self.resolution // cells)
        gather = jnp.asarray(owner[:, None] == jnp.arange(cells), self.masses.dtype)
        return gather.T @ self.masses @ gather


def places(space: ContinuousSpace, resolution: int) -> tuple[Float[Array, " places"], Float[Array, " places"]]:
    """List the coordinates of the places of a histogram.

    Args:
        space: A box of two dimensions.
        resolution: Cells along each axis.

    Returns:
        Along each axis: the lower wall, the middle of each cell, the upper wall.
    """
    ends = zip(space.low, space.high, strict=True)
    middle = (jnp.arange(resolution) + 0.5) / resolution
    rows, columns = (
        jnp.concatenate([jnp.asarray([low]), low + (high - low) * middle, jnp.asarray([high])]) for low, high in ends
    )
    return rows, columns


def _cell(state: Float[Array, " 2"], space: ContinuousSpace, cells: int) -> Int[Array, " 2"]:
    """The row and column of the cell in which a point lies; points beyond the walls count as the nearest one inside."""
    place = jnp.floor((space.rescale(space.nearest(state) if space.circular else state) + 1.0) * (cells / 2.0))
    return jnp.clip(place, 0, cells - 1).astype(jnp.int32)


def cell_probabilities(belief: Belief, space: ContinuousSpace, cells: int = 100) -> Float[Array, " cells"]:
    """Compute the mass that a belief gives to each cell of a plane.

    That of particles is their weighted histogram; that of a histogram, a kernel density or a Gaussian is exact or
    nearly so; that of any other belief is its density at the centres of the cells, normalised, where density up to
    `PAD` beyond the walls counts in the outermost cells.

    Args:
        belief: Over states of the space.
        space: A box of two dimensions.
        cells: How many along each axis.

    Returns:
        The probability of each of the cells² equal cells, row by row.
    """
    if space.dimension != 2 or cells < 1:
        raise InputError(f"Cells of a plane need 2 dimensions and at least 1 cell; got {space.dimension} and {cells}.")
    if isinstance(belief, HistogramBelief):
        return belief.coarsen(cells).ravel()
    if isinstance(belief, KernelDensityBelief | GaussianBelief):
        return belief.cell_masses(cells).ravel()
    if isinstance(belief, ParticleBelief):
        rows, columns = jax.vmap(lambda state: _cell(state, space, cells))(belief.states).T
        weights = jnp.exp(normalize(belief.log_weights)[0])
        return jnp.zeros(cells * cells).at[rows * cells + columns].add(weights)
    return _centre_masses(belief, space, cells)


def _centre_masses(belief: Belief, space: ContinuousSpace, cells: int) -> Float[Array, " cells"]:
    """The normalised density at the centres of the cells, and of those beyond the walls."""
    more = [
        0 if wraps else round(PAD / (2.0 * float(scale) / cells))
        for wraps, scale in zip(space.wraps, space.scale, strict=True)
    ]
    grids = [jnp.arange(-extra, cells + extra) for extra in more]
    steps = jnp.stack(jnp.meshgrid(*grids, indexing="ij"), axis=-1).reshape(-1, 2)
    log_density = belief.log_probs((2.0 * (steps + 0.5) / cells - 1.0) * space.scale + space.middle)
    masses, _ = scaled(log_density)
    rows, columns = jnp.clip(steps, 0, cells - 1).T
    folded = jnp.zeros(cells * cells).at[rows * cells + columns].add(masses)
    return folded / jnp.maximum(jnp.sum(folded), jnp.finfo(folded.dtype).tiny)
