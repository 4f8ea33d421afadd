"""Beliefs on a plane as masses of cells: the truth of a point-mass filter, and how beliefs are compared.

Motion that is stopped by walls puts atoms on them, so a histogram of r x r cells has two more places along each
axis: index 0 is the lower wall itself, 1..r are the cells, r + 1 is the upper wall. Within a cell the density is
constant; on a wall the mass is spread along it in the same way, and in the corners it sits in one point.
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
from nbf.contracts import Belief
from nbf.errors import InputError
from nbf.resampling import schemes as resampling
from nbf.resampling.weights import normalize
from nbf.spaces import Box

PAD = 0.5
"""How far beyond the walls the mass of a model still counts, in the outermost cells."""


class HistogramBelief(Belief):
    """Masses of the cells and walls of a box of two dimensions."""

    masses: Float[Array, "places places"]
    """Normalised."""
    space: Box

    @property
    def resolution(self) -> int:
        """Cells along each axis."""
        return self.masses.shape[0] - 2

    @property
    def side(self) -> Float[Array, " 2"]:
        """Of a cell."""
        return jnp.asarray(2.0 * self.space.scale / self.resolution)

    def sample(self, key: Key[Array, ""], n: int) -> Float[Array, "n 2"]:
        """Uniform within cells, and exactly on a wall where the mass is."""
        place_key, jitter_key = jax.random.split(key)
        drawn = resampling.draw(place_key, jnp.log(self.masses.ravel()), n)
        place = jnp.stack(jnp.divmod(drawn, self.masses.shape[1]), axis=-1)
        low, high = jnp.asarray(self.space.low), jnp.asarray(self.space.high)
        inside = low + (place - 1 + jax.random.uniform(jitter_key, (n, 2))) * self.side
        return jnp.where(place == 0, low, jnp.where(place > self.resolution, high, jnp.clip(inside, low, high)))

    def log_prob(self, state: Float[Array, " 2"]) -> Float[Array, ""]:
        """The density, where the walls' mass is spread over the cells next to them."""
        row, column = _cell(state, self.space, self.resolution)
        density = self.coarsen(self.resolution)[row, column] / jnp.prod(self.side)
        return jnp.where(self.space.contains(state), jnp.log(density), -jnp.inf)

    def log_probs(self, states: Float[Array, "n 2"]) -> Float[Array, " n"]:
        return jax.vmap(self.log_prob)(states)

    def expectation(self, function: Callable[[Any], Any]) -> Any:
        """Σ mass · f, at the middle of each cell and on the walls."""
        rows, columns = places(self.space, self.resolution)
        points = jnp.stack(jnp.meshgrid(rows, columns, indexing="ij"), axis=-1).reshape(-1, 2)
        return jax.tree.map(lambda value: jnp.tensordot(self.masses.ravel(), value, 1), jax.vmap(function)(points))

    def coarsen(self, cells: int) -> Float[Array, "c c"]:
        """The masses of cells x cells equal cells, the walls' in the outermost ones."""
        if cells < 1 or self.resolution % cells:
            raise InputError(f"cells must divide the resolution {self.resolution}; got {cells}.")
        owner = jnp.clip(jnp.arange(self.resolution + 2) - 1, 0, self.resolution - 1) // (self.resolution // cells)
        gather = jnp.asarray(owner[:, None] == jnp.arange(cells), self.masses.dtype)
        return gather.T @ self.masses @ gather


def places(space: Box, resolution: int) -> tuple[Float[Array, " places"], Float[Array, " places"]]:
    """Along each axis: the lower wall, the middle of each cell, the upper wall."""
    ends = zip(space.low, space.high, strict=True)
    middle = (jnp.arange(resolution) + 0.5) / resolution
    rows, columns = (
        jnp.concatenate([jnp.asarray([low]), low + (high - low) * middle, jnp.asarray([high])]) for low, high in ends
    )
    return rows, columns


def _cell(state: Float[Array, " 2"], space: Box, cells: int) -> Int[Array, " 2"]:
    """The row and column of the cell that a point lies in; points beyond count as the nearest one inside."""
    place = jnp.floor((space.encode(state) + 1.0) * (cells / 2.0))
    return jnp.clip(place, 0, cells - 1).astype(jnp.int32)


def cell_probabilities(belief: Belief, space: Box, cells: int = 100) -> Float[Array, " cells"]:
    """What a belief gives to each of cells x cells equal cells of a plane, row by row.

    Particles count as their weighted histogram, a histogram as its own masses, a kernel density and a Gaussian as
    their mass in each cell, and any other belief as its density at the cells' centres, normalised, where what lies up
    to `PAD` beyond the walls counts in the outermost cells.
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


def _centre_masses(belief: Belief, space: Box, cells: int) -> Float[Array, " cells"]:
    more = [round(PAD / (2.0 * float(scale) / cells)) for scale in space.scale]
    grids = [jnp.arange(-extra, cells + extra) for extra in more]
    steps = jnp.stack(jnp.meshgrid(*grids, indexing="ij"), axis=-1).reshape(-1, 2)
    log_density = belief.log_probs((2.0 * (steps + 0.5) / cells - 1.0) * space.scale + space.middle)
    masses, _ = resampling.scaled(log_density)
    rows, columns = jnp.clip(steps, 0, cells - 1).T
    folded = jnp.zeros(cells * cells).at[rows * cells + columns].add(masses)
    return folded / jnp.maximum(jnp.sum(folded), jnp.finfo(folded.dtype).tiny)
