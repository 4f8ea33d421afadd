"""The kernel mean embedding: a mean in a space where products are the kernel, and what is decoded from it."""

from __future__ import annotations

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tolerances import EXACT, FLOAT

from nbf.errors import InputError
from nbf.files.checkpoint import load_model, save_model
from nbf.models.belief_model import MODELS
from nbf.models.kernel import BoxKernelConfig, LatticeKernelConfig
from nbf.models.kernel_features import Landmarks, gaussian_kernel, halton, pick_landmarks
from nbf.spaces import Box, Lattice
from nbf.testing import check_model

SHAPE = (3, 4)
GRID = LatticeKernelConfig(SHAPE, landmarks=12, bandwidth=0.7, ridge=1e-6, iterations=400)
"""As many landmarks as cells, and a kernel of full rank."""
PLANE = BoxKernelConfig((-3.0, -2.0), (3.0, 2.0), landmarks=24, candidates=128, herded=64)
UNBOUNDED = BoxKernelConfig((-1.0,), (1.0,), bounded=False, landmarks=8, candidates=32, herded=16)
CONFIGS = {"lattice": GRID, "box": PLANE, "reals": UNBOUNDED}


@functools.cache
def built(name):
    return CONFIGS[name].build(jax.random.key(0))


def some_points(rng, count=40):
    return rng.uniform(-2.0, 2.0, size=(count, 2))


def test_products_of_features_are_the_kernel():
    """Exactly, if one of two points is a landmark; never more than 1, the kernel of a point with itself."""
    points = some_points(np.random.default_rng(0))
    landmarks, root = pick_landmarks(points, 10)
    features = Landmarks(jnp.asarray(landmarks, jnp.float32), jnp.asarray(root, jnp.float32))
    found, at_landmarks = (
        np.asarray(eqx.filter_jit(features)(jnp.asarray(x, jnp.float32))) for x in (points, landmarks)
    )
    np.testing.assert_allclose(found @ at_landmarks.T, gaussian_kernel(points, landmarks), **FLOAT)
    assert np.all(np.sum(found**2, axis=1) <= 1.0 + FLOAT["rtol"])


def test_the_kernel_is_that_of_the_squared_distance():
    points = some_points(np.random.default_rng(1), 7)
    loop = [[np.exp(-np.sum((x - z) ** 2) / 2) for z in points] for x in points]
    np.testing.assert_allclose(gaussian_kernel(points, points), loop, **EXACT)


def test_each_landmark_is_the_point_that_is_explained_worst():
    """What is unexplained, by a linear solve for each point by itself."""
    points = some_points(np.random.default_rng(2))
    landmarks, _ = pick_landmarks(points, 8)
    for count in range(1, 8):
        before = landmarks[:count]
        cross, gram = gaussian_kernel(points, before), gaussian_kernel(before, before)
        left = 1.0 - np.sum(cross * np.linalg.solve(gram, cross.T).T, axis=1)
        np.testing.assert_allclose(points[np.argmax(left)], landmarks[count], **EXACT)


def test_points_that_explain_each_other_are_no_further_landmarks():
    same = np.zeros((5, 2))
    assert len(pick_landmarks(same, 5)[0]) == 1
    assert len(pick_landmarks(np.arange(6.0)[:, None], 100)[0]) == 6


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lattice", "box"])
def test_the_model_keeps_the_contract(name):
    model = built(name)
    report = check_model(model, model.space)
    assert report.passed, str(report)


def test_obstacles_have_no_probability():
    legal = np.arange(12) % 5 != 1
    probs = eqx.filter_jit(built("lattice").probabilities)(jnp.ones(12), Lattice(SHAPE, jnp.asarray(legal)))
    assert not np.any(np.asarray(probs)[~legal])


@pytest.mark.sampled
@pytest.mark.parametrize("name", CONFIGS)
def test_the_embedding_of_a_mixture_is_the_mixture_of_embeddings(name, key):
    model = built(name)
    space = model.space
    if isinstance(space, Lattice):
        states = jnp.asarray(space.points())
    else:
        assert isinstance(space, Box)
        low, high = jnp.asarray(space.low), jnp.asarray(space.high)
        states = jax.random.uniform(key, (12, space.dimension), minval=low, maxval=high)
    p, q = np.random.default_rng(np.asarray(jax.random.key_data(key))).dirichlet(np.ones(12), 2).astype(np.float32)
    one, other, mixed = jax.jit(jax.vmap(model.embed, (None, 0)))(states, np.log([p, q, 0.3 * p + 0.7 * q]))
    np.testing.assert_allclose(mixed, 0.3 * one + 0.7 * other, **FLOAT)


def test_beliefs_on_a_lattice_come_back(key):
    """With a kernel of full rank an embedding belongs to one belief alone. The ridge shrinks by ridge over the least
    eigenvalue of the kernel, which is told apart here."""
    model = built("lattice")
    points = jnp.asarray(model.space.points())
    scaled = np.asarray(points) / GRID.bandwidth
    least = np.linalg.eigvalsh(gaussian_kernel(scaled, scaled))
    slack = FLOAT["atol"] + FLOAT["rtol"] + 2.0 * GRID.ridge / least[0]
    assert slack < 1e-3
    logits = 3.0 * np.random.default_rng(np.asarray(jax.random.key_data(key))).normal(size=(4, 12))
    beliefs = [*np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True), np.eye(12)[5], np.full(12, 1 / 12)]
    decode = eqx.filter_jit(lambda p: model.probabilities(model.embed(points, jnp.log(p)), model.space))
    for p in beliefs:
        np.testing.assert_allclose(decode(p), p, rtol=0, atol=slack)


def test_the_projection_is_the_best_one_that_is_not_negative(key):
    """Conditions of optimality (Karush, Kuhn, Tucker), for an embedding that no belief has: the slope is zero where
    p > 0, and not negative where p = 0. Up to the normalisation, which a multiple undoes."""
    model = LatticeKernelConfig(SHAPE, landmarks=6, ridge=0.05, iterations=500).build(key)
    embedding = jax.random.normal(key, (6,))
    probs = np.asarray(model.probabilities(embedding, model.space), np.float64)
    table, theta = np.asarray(model.table, np.float64), np.asarray(embedding, np.float64)
    curved = (table @ table.T + 0.05 * np.eye(12)) @ probs
    scale = probs @ (table @ theta) / (probs @ curved)
    slope = scale * curved - table @ theta
    assert scale > 0
    assert np.any(probs == 0)
    np.testing.assert_allclose(slope[probs > 0], 0.0, atol=1e-3)
    assert np.all(slope[probs == 0] > -1e-3)


def test_an_embedding_of_nothing_is_a_belief_all_the_same():
    model = built("lattice")
    legal = jnp.arange(12) < 6
    probs = model.probabilities(-jnp.ones(12), Lattice(SHAPE, legal))
    np.testing.assert_allclose(jnp.sum(probs), 1.0, **FLOAT)
    assert np.all(np.isfinite(probs))


def herding_error(model, embedding, count):
    """|mean embedding of the herded - θ|."""
    return float(jnp.linalg.norm(jnp.mean(model.table[model.herd(embedding, count)], axis=0) - embedding))


@pytest.mark.slow
def test_herding_nears_the_embedding_as_the_inverse_of_the_number(key):
    """A mean of candidates is met with an error of at most 1/√t by chance and of order 1/t by herding: from 4 to 64
    points it falls further than chance, by √16."""
    model = built("box")
    weights = jax.random.normal(key, model.table.shape[:1])
    embedding = jax.nn.softmax(weights) @ model.table
    errors = [herding_error(model, embedding, count) for count in (1, 4, 16, 64)]
    assert errors == sorted(errors, reverse=True)
    assert errors[1] / errors[3] > 16**0.5
    drawn = jax.random.categorical(key, weights, shape=(200, 64))
    chance = jnp.linalg.norm(jnp.mean(model.table[drawn], axis=1) - embedding, axis=1)
    assert errors[3] < float(jnp.min(chance))


def test_herded_points_are_chosen_greedily(key):
    """Against a loop that lists what every candidate would leave of θ."""
    model = built("reals")
    table = np.asarray(model.table, np.float64)
    embedding = np.asarray(jax.nn.softmax(jax.random.normal(key, (32,))) @ model.table, np.float64)
    chosen: list[int] = []
    for step in range(6):
        spent = table[chosen].sum(axis=0) / (step + 1)
        chosen.append(int(np.argmax([row @ (embedding - spent) for row in table])))
    assert np.asarray(model.herd(jnp.asarray(embedding, jnp.float32), 6)).tolist() == chosen


def test_the_density_of_a_box_integrates_to_one():
    """By a fine grid that reaches beyond the walls, as the kernels do."""
    model = built("reals")
    grid = np.linspace(-2.0, 2.0, 4001, dtype=np.float32)[:, None]

    @jax.jit
    def log_probs(grid):
        return model.log_prob(model.embed(jnp.asarray([[0.2], [-0.5]]), jnp.zeros(2)), grid, model.space)

    total = np.trapezoid(np.exp(np.asarray(log_probs(grid))), grid[:, 0])
    np.testing.assert_allclose(total, 1.0, **FLOAT)


def test_halton_fills_the_square():
    """The first points, worked by hand; and every one of 8 x 9 boxes holds exactly one of 72."""
    np.testing.assert_allclose(halton(3, 2), [[1 / 2, 1 / 3], [1 / 4, 2 / 3], [3 / 4, 1 / 9]], **EXACT)
    boxes = np.floor(halton(72, 2) * [8, 9] + 1e-9).astype(int)
    assert len({tuple(box) for box in boxes.tolist()}) == 72


@pytest.mark.parametrize("name", CONFIGS)
def test_a_checkpoint_keeps_it(name, tmp_path):
    save_model(tmp_path / "model.safetensors", built(name), CONFIGS[name])
    loaded, config, _ = load_model(tmp_path / "model.safetensors", MODELS)
    assert config == CONFIGS[name]
    assert eqx.tree_equal(*jax.device_get((loaded, built(name))))


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("config", "message"),
    [
        (LatticeKernelConfig(SHAPE, landmarks=0), "landmarks must be a whole number from 1 to 1024; got 0"),
        (LatticeKernelConfig(SHAPE, bandwidth=0.0), "bandwidth must be above 0; got 0.0"),
        (LatticeKernelConfig(SHAPE, ridge=float("nan")), "ridge must be above 0; got nan"),
        (LatticeKernelConfig((100, 100)), r"at most 4096 cells; shape \(100, 100\)"),
        (BoxKernelConfig((0.0,), (1.0,), herded=5000), "herded must be a whole number from 1 to 4096; got 5000"),
        (BoxKernelConfig((0.0,), (1.0,), smoothing=-1.0), "smoothing must be above 0; got -1.0"),
    ],
)
def test_bad_settings_are_refused(config, message):
    with pytest.raises(InputError, match=message):
        config.build(jax.random.key(0))
