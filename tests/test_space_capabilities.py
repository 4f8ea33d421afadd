"""What spaces claim, and that whoever claims it gets it: spaces of one's own, of no class of the library."""

from __future__ import annotations

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Bool
from tolerances import FLOAT

import nbf
from nbf.beliefs.gaussian_kernels import GaussianKernels, has_kernels, kernel_space
from nbf.beliefs.particles import ParticleBelief
from nbf.capabilities import ContinuousSpace, DealSpace, FiniteSpace, SequenceSpace
from nbf.capability import capability, require
from nbf.contracts import StateSpace
from nbf.errors import InputError
from nbf.filters.particle import ParticleFilter
from nbf.filters.regularized import RegularizedParticleFilter
from nbf.filters.run import run
from nbf.fitting.fit import decoder_for
from nbf.models.maximum_entropy import MaximumEntropyDeals
from nbf.models.space_configs import space_config
from nbf.spaces import Box, Deals, Lattice, Legal, Tokens

KINDS = (ContinuousSpace, DealSpace, FiniteSpace, SequenceSpace)
POSE = Box((0.0, -np.pi), (2.0, np.pi), circular=(1,))
GRID = Lattice((2, 3))
WORDS = Tokens(3, 4, lambda prefix, context: jnp.arange(4) > (prefix[-1] - 1 if len(prefix) else 1))
HANDS = Deals(jnp.ones((5, 3), bool).at[2, 0].set(False), (2, 1))


class Borrowed(StateSpace):
    """The contract of a space, fulfilled by one of the library's."""

    @property
    @abstractmethod
    def lender(self) -> StateSpace: ...

    @property
    def context(self):
        return None

    @property
    def signature(self):
        return f"my {self.lender.signature}"

    @property
    def num_features(self):
        return self.lender.num_features

    def encode(self, state):
        return self.lender.encode(state)

    def decode(self, numbers):
        return self.lender.decode(numbers)

    def contains(self, state):
        return self.lender.contains(state)


class Vectors(Borrowed, ContinuousSpace):
    low: tuple[float, ...] = eqx.field(static=True)
    high: tuple[float, ...] = eqx.field(static=True)
    bounded: bool = eqx.field(static=True)

    @property
    def circular(self):
        return (1,)

    @property
    def lender(self):
        return Box(self.low, self.high, self.bounded, circular=self.circular)


class Cells(Borrowed, FiniteSpace):
    shape: tuple[int, ...] = eqx.field(static=True)
    legal: Bool[Array, " cells"] | None = None

    @property
    def ordered(self):
        return True

    @property
    def lender(self):
        return Lattice(self.shape, self.legal)


class Sentences(Borrowed, SequenceSpace):
    length: int = eqx.field(static=True)
    categories: int = eqx.field(static=True)
    legal: Legal | None = eqx.field(static=True)

    @property
    def lender(self):
        return Tokens(self.length, self.categories, self.legal)

    def mask(self, prefix):
        return self.lender.mask(prefix)


class Hands(Borrowed, DealSpace):
    allowed: Bool[Array, "cards owners"]
    quotas: tuple[int, ...] = eqx.field(static=True)

    @property
    def lender(self):
        return Deals(self.allowed, self.quotas)


PAIRS = [
    (POSE, Vectors(POSE.low, POSE.high, POSE.bounded)),
    (GRID, Cells(GRID.shape)),
    (WORDS, Sentences(WORDS.length, WORDS.categories, WORDS.legal)),
    (HANDS, Hands(HANDS.allowed, HANDS.quotas)),
]
each_pair = pytest.mark.parametrize(("known", "own"), PAIRS, ids=lambda space: type(space).__name__)


def same(first, second):
    first, second = jax.tree.leaves(first), jax.tree.leaves(second)
    assert len(first) == len(second) > 0
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)


@each_pair
def test_each_space_claims_one_capability_and_only_that(known, own):
    claimed = [kind for kind in KINDS if capability(known, kind) is not None]
    assert [kind in type(own).__bases__ for kind in claimed] == [True]
    assert claimed == [kind for kind in KINDS if capability(own, kind) is not None]
    assert has_kernels(known) == (claimed[0] in (ContinuousSpace, FiniteSpace))


@each_pair
def test_what_follows_from_the_facts_is_the_same_whoever_tells_them(known, own):
    (kind,) = known.capabilities
    facts = [name for name, value in vars(kind).items() if isinstance(value, property)]
    for name in facts:
        np.testing.assert_array_equal(getattr(own, name), getattr(known, name))


def test_the_message_names_the_facts_that_are_to_be_told():
    with pytest.raises(InputError, match=r"FiniteSpace \(nbf\.capabilities: legal, ordered, shape\), which Box does"):
        require(POSE, FiniteSpace, "Who", "Do this.")


# Differences


def test_a_difference_leads_from_one_state_to_the_other():
    points = np.random.default_rng(0).uniform(-8.0, 8.0, (200, 2)).astype(np.float32)
    one, other = POSE.nearest(jnp.asarray(points)), POSE.nearest(jnp.asarray(points[::-1]))
    apart = POSE.difference(one, other)
    np.testing.assert_allclose(POSE.difference(other + apart, one), np.zeros_like(points), **FLOAT)
    np.testing.assert_allclose(POSE.difference(other, one), -apart, **FLOAT)
    assert np.all(np.abs(apart[:, 1]) <= np.pi * (1 + FLOAT["rtol"]))
    np.testing.assert_array_equal(POSE.nearest(one), one)
    assert np.all(jax.vmap(POSE.contains)(one))
    cells = jnp.asarray(GRID.points())
    steps = GRID.difference(cells[:, None], cells)
    index = np.arange(GRID.size)
    np.testing.assert_array_equal(steps @ np.array(GRID.strides), index[:, None] - index)


# What each buys


def wandering(space):
    def init(key):
        return jnp.asarray([1.0, 0.0]) + 0.1 * jax.random.normal(key, (2,))

    def transition(key, state, policy):
        return POSE.nearest(state + 0.3 * jax.random.normal(key, (2,)))

    def log_likelihood(observation, state, next_state):
        return -0.5 * jnp.sum(POSE.difference(next_state, observation) ** 2)

    return nbf.environment(
        space=space, init=init, transition=transition, observe=lambda key, state, next_state: next_state,
        log_likelihood=log_likelihood,
    )  # fmt: skip


@pytest.mark.parametrize("filter", [ParticleFilter(16), RegularizedParticleFilter(16)], ids=lambda f: type(f).__name__)
def test_particles_in_a_continuous_space_have_a_kernel_density(key, filter):
    observations = jnp.asarray([[1.0, 3.0], [1.5, -3.0]])
    found = []
    for space in PAIRS[0]:
        environment = wandering(space)
        states, _ = run(filter, key, observations, environment, None)
        last = jax.tree.map(lambda leaf: leaf[-1], states)
        belief = filter.belief(last, environment)
        found.append((last.states, last.log_weights, belief.log_probs(observations)))
    same(*found)
    assert np.all(np.isfinite(found[0][2]))


@pytest.mark.parametrize(("known", "own"), PAIRS[:2], ids=lambda space: type(space).__name__)
def test_kernels_where_nearby_states_are_alike(key, known, own):
    states = known.decode(jnp.asarray([0.1, 0.2, 0.3])) if known is POSE else jnp.asarray([1, 1])
    states = jnp.stack([states, states])
    found = []
    for space in (known, own):
        belief = GaussianKernels.of(ParticleBelief(states, jnp.zeros(2)), space)
        found.append((belief.sample(key, 8), belief.log_probs(states)))
    same(*found)


def test_no_kernels_elsewhere():
    with pytest.raises(InputError, match="A kernel density needs a Box or a Lattice"):
        kernel_space(WORDS)


@pytest.mark.parametrize(("known", "own"), PAIRS[:3], ids=lambda space: type(space).__name__)
def test_the_decoder_that_fit_takes(key, known, own):
    config = decoder_for(known)
    assert decoder_for(own) == config
    found = []
    for space in (known, own):
        config.check(space)
        decoder = config.build(key, space, 3)
        states = decoder.sample(key, jnp.ones(3), 5, space)
        found.append((decoder, states, decoder.log_prob(jnp.ones(3), states, space)))
    same(*found)


def test_a_config_is_of_the_librarys_spaces_alone():
    """It builds the space anew, which one's own would not survive."""
    for known, own in PAIRS[:3]:
        assert space_config(known).build().signature == known.signature
        with pytest.raises(InputError, match="No config is known for my "):
            space_config(own)


def test_deals_of_largest_entropy(key):
    found = []
    for space in PAIRS[3]:
        model = MaximumEntropyDeals(space)
        states = model.sample(key, jnp.full(15, 1 / 3), 6, space)
        found.append((states, model.log_prob(jnp.full(15, 1 / 3), states, space)))
    same(*found)
    with pytest.raises(
        InputError, match=r"largest entropy needs the capability DealSpace \(nbf.capabilities: allowed, q"
    ):
        MaximumEntropyDeals(HANDS).sample(key, jnp.zeros(15), 6, GRID)
