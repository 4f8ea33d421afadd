"""One dictionary of named constructors for each kind of thing; a law in the tests runs over all entries.

A new transform, decoder, encoder or filter adds its line here and is then held to every law.
"""

from __future__ import annotations

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from nbf.environments.gridworld import GoalPolicy, Gridworld
from nbf.filters.approximate import ApproxBeliefs
from nbf.filters.branching import BranchingFilter
from nbf.filters.exact import ExactFilter
from nbf.filters.neural import NeuralBayesianFilter
from nbf.filters.particle import ParticleFilter
from nbf.models.attention import AttentionConfig
from nbf.models.autoregressive import AutoregressiveConfig
from nbf.models.belief_model import EnumeratedConfig, FlowConfig
from nbf.models.coupling import Coupling
from nbf.models.dequantization import DequantizedFlowConfig
from nbf.models.enumerated import EnumeratedDecoderConfig
from nbf.models.flow import CouplingFlowConfig
from nbf.models.flow_matching import FlowMatchingConfig
from nbf.models.mixture import MixtureConfig
from nbf.models.set_encoder import DeepSetsConfig, MeanConfig
from nbf.models.tabular import TabularModel
from nbf.models.transforms import Affine, NLSq, Spline
from nbf.spaces import Box, Lattice, Tokens

EMBEDDING = 3


def with_random_parameters(build, key, scale=0.4):
    """What `build(key)` makes, with every parameter drawn anew.

    Fresh layers start as the identity, of which all laws hold trivially. Only the shapes are built, and
    the numbers are NumPy's: compiling a model's own initialisation takes longer than any law.
    """
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))

    def draw(leaf):
        random = isinstance(leaf, jax.ShapeDtypeStruct) and jnp.issubdtype(leaf.dtype, jnp.floating)
        # `jnp.asarray` would compile a program for each shape.
        return jax.device_put(np.asarray(scale * rng.normal(size=leaf.shape), leaf.dtype)) if random else leaf

    return jax.tree.map(draw, eqx.filter_eval_shape(build, key))


MAPS = {"affine": Affine(), "nlsq": NLSq(), "spline": Spline(4)}
"""Monotone maps of the real line."""


def _coupling(transform):
    return lambda key, dimension: Coupling(key, dimension, EMBEDDING, transform=transform, layers=3, width=8, depth=2)


TRANSFORMS = {f"{name} coupling": _coupling(transform) for name, transform in MAPS.items()}
"""(key, dimension) -> a fresh transform of unbounded vectors, conditioned on `EMBEDDING` numbers."""


def _encoder(config):
    return lambda key, inputs: with_random_parameters(lambda key: config.build(key, inputs, EMBEDDING), key, scale=0.7)


ENCODERS = {
    "mean": _encoder(MeanConfig(width=8, depth=2)),
    "deep sets": _encoder(DeepSetsConfig(width=8, depth=2, after_width=8, after_depth=1)),
    "attention": _encoder(AttentionConfig(width=8, depth=2, heads=2, queries=3)),
}
"""(key, inputs) -> an encoder of states that are `inputs` numbers, whose parameters are all random."""

FLOW = {
    "embedding": EMBEDDING, "encoder_width": 8, "encoder_depth": 2, "noise_width": 8, "noise_depth": 1,
    "flow_width": 8, "flow_depth": 2, "flow_layers": 3, "quadrature": 24,
}  # fmt: skip
SOFTMAX = {"embedding": EMBEDDING, "encoder_width": 8, "encoder_depth": 2, "decoder_width": 8, "decoder_depth": 1}

CONFIGS = {
    "dequantized flow": lambda shape: FlowConfig(shape, **FLOW),
    "enumerated": lambda shape: EnumeratedConfig(shape, **SOFTMAX),
}
"""shape -> the config of a small model."""


def _flow(key, shape):
    """A flow that shrinks logits and does not stretch them: its density is smooth up to the box's edges,
    so that a quadrature is exact to three digits, and no mass is within 1e-6 of them, where logits end."""
    model = with_random_parameters(CONFIGS["dequantized flow"](shape).build, key)
    last = lambda model: (  # noqa: E731
        model.decoder.flow.networks.weights[-1], model.decoder.flow.networks.biases[-1], model.decoder.flow.projection
    )  # fmt: skip
    weights, biases, projection = (np.array(leaf) for leaf in last(model))
    weights[:, len(shape) :] *= 0.2
    biases[:, len(shape) :] = -0.6
    return eqx.tree_at(last, model, tuple(map(jnp.asarray, (weights, biases, 4.0 * projection))))


def _enumerated(key, shape):
    return with_random_parameters(CONFIGS["enumerated"](shape).build, key)


def _tabular(key, shape):
    return TabularModel(Lattice(shape))


MODELS = {"dequantized flow": _flow, "enumerated": _enumerated, "tabular": _tabular}
"""(key, shape) -> a belief model whose parameters are all random."""


def no_symbol_twice(prefix, context):
    """A rule for `Tokens`: permutations."""
    return jnp.ones(3, bool).at[prefix].set(False)


PLANE, GRID = Box((-3.0, -2.0), (3.0, 2.0), bounded=False), Lattice((3, 4))
CYLINDER = Box((-3.0, -2.0), (3.0, 2.0), bounded=False, circular=(1,))
DECODERS = {
    **{
        f"{name} flow, {base} base": (space, CouplingFlowConfig(name, base, layers=3, width=8, depth=1, bins=4))
        for base, space in (("normal", PLANE), ("uniform", Box((-3.0, -2.0), (3.0, 2.0))))
        for name in MAPS
    },
    "mixture": (PLANE, MixtureConfig(components=3, width=8, depth=1)),
    "mixture of one dimension": (Box((-3.0,), (3.0,), bounded=False), MixtureConfig(components=3, width=8, depth=1)),
    "mixture on a cylinder": (CYLINDER, MixtureConfig(components=3, width=8, depth=1)),
    "flow matching": (PLANE, FlowMatchingConfig(width=8, depth=1, steps=10)),
    "dequantized flow, mlp noise": (GRID, DequantizedFlowConfig(layers=3, width=8, depth=1, quadrature=24)),
    "dequantized flow, coupling noise, normal base": (
        GRID, DequantizedFlowConfig("nlsq", "normal", "coupling", layers=3, width=8, depth=1, quadrature=24)
    ),
    "dequantized flow, uniform noise": (
        GRID, DequantizedFlowConfig("spline", noise="uniform", layers=3, width=8, depth=1, bins=4, quadrature=24)
    ),
    "dequantized flow on tokens": (
        Tokens(2, 3),
        DequantizedFlowConfig("nlsq", "normal", "coupling", layers=3, width=8, depth=1, importance_samples=4096),
    ),
    "dequantized flow, noise of the state alone": (
        GRID,
        DequantizedFlowConfig(
            "nlsq", "normal", "coupling", layers=3, width=8, depth=1, quadrature=24, noise_conditioned=False
        ),
    ),
    "enumerated": (Lattice((3, 4), jnp.arange(12) % 5 != 1), EnumeratedDecoderConfig(width=8, depth=1)),
    "autoregressive": (Tokens(3, 3), AutoregressiveConfig(width=8, depth=1)),
    "autoregressive, masked": (Tokens(3, 3, no_symbol_twice), AutoregressiveConfig(width=8, depth=1)),
}  # fmt: skip
"""A space, and the config of a small decoder that fits it: every decoder with every kind of space it is for."""


@eqx.filter_jit
def an_embedding(model, key):
    """An embedding of the kind that the model makes: of a random weighted set of all of its cells."""
    points = jnp.asarray(model.space.points())
    return model.embed(points, jax.random.normal(key, points.shape[:1]))


def small_grid(*, error=0.3, temperature=1.0) -> tuple[Gridworld, GoalPolicy]:
    """3 x 3 with an obstacle in the middle of an edge: small enough to list every trajectory."""
    legal = jnp.ones(9, bool).at[1].set(False)
    environment = Gridworld(Lattice((3, 3), legal), jnp.asarray(error))
    return environment, GoalPolicy(jnp.asarray([2, 0]), jnp.asarray(temperature))


def all_walks(environment, policy, observations) -> tuple[np.ndarray, float]:
    """p(x_T | y_1:T) and p(y_1:T) of a 2-D Gridworld: every start and every sequence of actions, by itself."""
    side, walls = environment.space.shape, ~np.asarray(environment.free).reshape(environment.space.shape)
    error, temperature, goal = float(environment.error), float(policy.temperature), np.asarray(policy.goal)
    actions = [(-1, 0), (1, 0), (0, -1), (0, 1)]

    def destination(cell, action):
        target = (cell[0] + action[0], cell[1] + action[1])
        inside = 0 <= target[0] < side[0] and 0 <= target[1] < side[1]
        return target if inside and not walls[target] else cell

    mass = np.zeros(side)
    starts = [cell for cell in np.ndindex(side) if not walls[cell]]
    for start, chosen in itertools.product(starts, itertools.product(range(4), repeat=len(observations))):
        cell, probability = start, 1.0 / len(starts)
        for action, symbol in zip(chosen, observations, strict=True):
            ends = [destination(cell, a) for a in actions]
            scores = [np.exp(-np.abs(np.subtract(end, goal)).sum() / temperature) for end in ends]
            right = 4 if ends[action] == cell else action
            probability *= scores[action] / sum(scores) * (1 - error if symbol == right else error / 4)
            cell = ends[action]
        mass[cell] += probability
    return mass.ravel() / mass.sum(), float(mass.sum())


FILTERS = {
    "neural, tabular": lambda: NeuralBayesianFilter(TabularModel(Lattice((3, 3))), 16),
    "particle": lambda: ParticleFilter(16),
    "branching": lambda: BranchingFilter(16),
    "neural, dequantized flow": lambda: NeuralBayesianFilter(MODELS["dequantized flow"](jax.random.key(1), (3, 3)), 16),
    "approx": lambda: ApproxBeliefs(TabularModel(Lattice((3, 3))), 16),
    "exact": ExactFilter,
}
"""() -> a filter for `small_grid`. Of `sampled` tests the first and the last run by default."""
