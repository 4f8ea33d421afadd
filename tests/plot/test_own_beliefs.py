"""Figures of a user's own beliefs show the numbers that they are given."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from matplotlib.animation import FuncAnimation
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from matplotlib.patches import StepPatch
from PIL import Image
from tolerances import EXACT

import nbf
from nbf.errors import InputError

RNG = np.random.default_rng(3)


def steps_of(figure: Figure) -> list[tuple[np.ndarray, np.ndarray]]:
    patches = [patch for axis in figure.axes for patch in axis.patches if isinstance(patch, StepPatch)]
    data: list[Any] = [patch.get_data() for patch in patches]
    return [(each.values, each.edges) for each in data]


def test_a_line_is_a_density_of_the_weights():
    samples, repeats = RNG.normal(size=(50, 1)), RNG.integers(1, 5, 50)
    bounds = (-6.0, 6.0)
    weighted = nbf.plot.marginals_figure({"x": samples}, weights={"x": 7.0 * repeats}, bounds=bounds)
    repeated = nbf.plot.marginals_figure({"x": np.repeat(samples, repeats, axis=0)}, bounds=bounds)
    ((heights, edges),) = steps_of(weighted)
    np.testing.assert_allclose(np.sum(heights * np.diff(edges)), 1.0, **EXACT)
    np.testing.assert_allclose(heights, steps_of(repeated)[0][0], **EXACT)


def test_a_map_shows_where_the_samples_are():
    """A sample of weight zero leaves no trace; x is to the right and y upwards."""
    figure = nbf.plot.marginals_figure(
        {"here": [[0.9, 0.1], [0.1, 0.9]], "there": [[0.5, 0.5]]}, weights={"here": [1.0, 0.0]}, bounds=(0.0, 1.0)
    )
    for axis, (x, y) in zip(figure.axes, [(0.9, 0.1), (0.5, 0.5)], strict=True):
        (mesh,) = [each for each in axis.collections if isinstance(each, QuadMesh)]
        values, corners = np.asarray(mesh.get_array()), np.asarray(mesh.get_coordinates())
        ((row, column),) = np.argwhere(values > 0)
        assert corners[row, column, 0] <= x < corners[row + 1, column + 1, 0]
        assert corners[row, column, 1] <= y < corners[row + 1, column + 1, 1]
        assert values[row, column] == 1.0


@pytest.mark.parametrize("d", [3, 6])
def test_more_coordinates_are_drawn_in_pairs(d):
    samples = RNG.normal(size=(40, d))
    figure = nbf.plot.marginals_figure({"one": samples, "two": 2 * samples}, truth=np.zeros(d))
    shown = [axis for axis in figure.axes if axis.get_visible()]
    assert len(shown) == d * (d + 1) // 2
    assert len(steps_of(figure)) == 2 * d
    below = iter(axis for axis in shown if axis.collections)
    for row in range(1, d):
        for column in range(row):
            points = next(below).collections[0].get_offsets()
            np.testing.assert_allclose(np.asarray(points), samples[:, [column, row]], **EXACT)


@pytest.mark.parametrize("shape", [(7,), (3, 5), (4, 3, 2)])
def test_a_lattice_shows_each_probability_at_its_cell(shape):
    probs = {name: RNG.dirichlet(np.ones(int(np.prod(shape)))).reshape(shape) for name in ("first", "second")}
    truth = [size - 1 for size in shape]
    figure = nbf.plot.lattice_figure(probs, truth=truth, walls=np.zeros(shape, bool))
    if len(shape) == 1:
        for (values, _), wanted in zip(steps_of(figure), probs.values(), strict=True):
            np.testing.assert_allclose(values, wanted, **EXACT)
        return
    images = [np.asarray(axis.images[0].get_array()) for axis in figure.axes]
    wanted = [layer for probability in probs.values() for layer in (probability if len(shape) == 3 else [probability])]
    for image, part in zip(images, wanted, strict=True):
        np.testing.assert_allclose(image, part, **EXACT)
    marked = [place for place, axis in enumerate(figure.axes) if axis.lines]
    layers = shape[0] if len(shape) == 3 else 1
    assert marked == [layers - 1, 2 * layers - 1]
    for place in marked:
        mark: Any = figure.axes[place].lines[0]
        assert [float(mark.get_ydata()[0]), float(mark.get_xdata()[0])] == truth[-2:]


def test_symbols_are_counted_at_their_places():
    sequences = np.array(list(itertools.product(range(3), repeat=2)))
    weights = RNG.random(9)
    found = nbf.plot.token_marginals(sequences, 4, weights)
    for place, symbol in itertools.product(range(2), range(4)):
        wanted = sum(w for w, each in zip(weights, sequences, strict=True) if each[place] == symbol) / sum(weights)
        np.testing.assert_allclose(found[place, symbol], wanted, **EXACT)
    figure = nbf.plot.tokens_figure({"x": found}, truth=[2, 0], symbols="abcd")
    np.testing.assert_allclose(np.asarray(figure.axes[0].images[0].get_array()), found.T, **EXACT)
    np.testing.assert_allclose(np.asarray(figure.axes[0].collections[0].get_offsets()), [[0, 2], [1, 0]], **EXACT)


def test_an_animation_has_a_frame_for_each_step(tmp_path):
    beliefs = np.eye(3)[:, None, :]

    def draw(step, figure):
        nbf.plot.lattice_figure({"x": beliefs[step]}, title=f"step {step}", figure=figure)

    moving = nbf.plot.animation(draw, 3, size=(2.0, 1.5))
    assert isinstance(moving, FuncAnimation)
    moving.save(tmp_path / "moving.gif", writer="pillow")
    with Image.open(tmp_path / "moving.gif") as film:
        assert film.n_frames == 3  # pyright: ignore[reportAttributeAccessIssue]
        frames = []
        for number in range(3):
            film.seek(number)
            frames.append(np.asarray(film.convert("RGB")))
    assert all(np.any(one != two) for one, two in itertools.combinations(frames, 2))


def test_an_episode_is_animated(tmp_path):
    episode = nbf.plot.Episode(
        walls=np.zeros((2, 2), bool), goal=np.array([1, 1]), path=np.array([[0, 0], [0, 1]]), symbols=np.array([3]),
        beliefs={"exact": np.full((2, 2, 2), 0.25)}, js={},
    )  # fmt: skip
    nbf.plot.episode_animation(episode).save(tmp_path / "episode.gif", writer="pillow", dpi=40)
    with Image.open(tmp_path / "episode.gif") as film:
        assert film.n_frames == 2  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    ("draw", "said"),
    [
        (lambda: nbf.plot.marginals_figure({}), "no belief"),
        (lambda: nbf.plot.marginals_figure({"x": np.zeros(3)}), "float"),
        (lambda: nbf.plot.marginals_figure({"x": np.zeros((3, 7))}), "states have 7"),
        (lambda: nbf.plot.marginals_figure({"x": np.full((3, 2), np.nan)}), "NaN"),
        (lambda: nbf.plot.marginals_figure({"x": np.zeros((3, 2))}, weights={"x": [-1, 1, 1]}), "below 0"),
        (lambda: nbf.plot.marginals_figure({"x": np.zeros((3, 2))}, weights={"y": [1]}), "no samples"),
        (lambda: nbf.plot.marginals_figure({"x": np.zeros((3, 2))}, truth=[1.0]), "as the truth"),
        (lambda: nbf.plot.marginals_figure({"x": np.zeros((3, 1))}, bounds=(1.0, 0.0)), "below the highest"),
        (lambda: nbf.plot.lattice_figure({"x": np.zeros((2, 2, 2, 2))}), "1 to 3 dimensions"),
        (lambda: nbf.plot.lattice_figure({"x": np.zeros(2), "y": np.zeros(3)}), "one shape"),
        (lambda: nbf.plot.lattice_figure({"x": np.zeros((2, 2))}, truth=[2, 0]), "must fit"),
        (lambda: nbf.plot.lattice_figure({"x": np.array([0.5, -0.5])}), "below 0"),
        (lambda: nbf.plot.tokens_figure({"x": np.zeros((2, 3))}, symbols="ab"), "one name a symbol"),
        (lambda: nbf.plot.tokens_figure({"x": np.zeros((2, 3))}, truth=[0, 3]), "from 0 to 2"),
        (lambda: nbf.plot.token_marginals([[0, 3]], 3), "0 to 2"),
        (lambda: nbf.plot.token_marginals([[0, 1]], 3, [0.0]), "not all 0"),
        (lambda: nbf.plot.animation(lambda step, figure: None, 0), "at least 1 frame"),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw, said):
    with pytest.raises(InputError, match=said):
        draw()
