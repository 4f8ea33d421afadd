"""What a decoded embedding is as a belief: normalised over legal states, whatever the decoder puts on illegal ones."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constructors import EMBEDDING, an_embedding, no_symbol_twice, with_random_parameters
from tolerances import FLOAT, monte_carlo

from nbf.beliefs.model import DRAWS, ModelBelief
from nbf.beliefs.particles import ParticleBelief
from nbf.environments.gridworld import Gridworld
from nbf.evaluation.divergence import state_probabilities
from nbf.filters.neural import MomentMatching, NeuralState
from nbf.models.belief_model import EnumeratedConfig, FlowConfig, ModelConfig, space_config
from nbf.models.dequantization import DequantizedFlowConfig
from nbf.models.set_encoder import MeanConfig
from nbf.resampling.weights import uniform_log_weights
from nbf.spaces import Lattice, Tokens

LEGAL = np.arange(20) % 3 != 1
WALLS = Lattice((4, 5), jnp.asarray(LEGAL))


@eqx.filter_jit
def log_probs(belief, states):
    return belief.log_probs(states)


@pytest.fixture(scope="module")
def decoded():
    """A flow of random parameters, with an embedding; it knows nothing of the walls."""
    build = FlowConfig((4, 5), embedding=EMBEDDING, encoder_width=8, flow_width=8, flow_layers=2, quadrature=4).build
    model = with_random_parameters(build, jax.random.key(5), scale=0.3)
    return model, eqx.filter_jit(an_embedding)(model, jax.random.key(6))


@eqx.filter_jit
def decoded_log_probs(model, embedding, states, space):
    return model.log_prob(embedding, states, space)


def test_the_probabilities_of_legal_cells_add_up_to_one(decoded):
    belief, points = ModelBelief(decoded[0], decoded[1], WALLS), jnp.asarray(WALLS.points())
    found = np.exp(np.asarray(log_probs(belief, points), np.float64))
    own = np.exp(np.asarray(decoded_log_probs(decoded[0], decoded[1], points, WALLS), np.float64))
    assert own[LEGAL].sum() < 0.9
    np.testing.assert_array_equal(found[~LEGAL], 0.0)
    np.testing.assert_allclose(found, np.where(LEGAL, own, 0.0) / own[LEGAL].sum(), **FLOAT)


def test_the_models_mass_on_walls_counts_as_its_error(decoded):
    """Scores look at what the decoder says, walls included."""
    environment = Gridworld(WALLS, jnp.asarray(0.1))
    found = eqx.filter_jit(lambda belief: state_probabilities(belief, environment))(
        ModelBelief(decoded[0], decoded[1], WALLS)
    )
    points = jnp.asarray(environment.states())
    np.testing.assert_allclose(found, np.exp(decoded_log_probs(decoded[0], decoded[1], points, WALLS)), **FLOAT)
    assert np.asarray(found)[~LEGAL].sum() > 0.1


def test_where_states_cannot_be_listed_the_legal_mass_is_estimated(key):
    """With the standard error that the docstring states."""
    legal = Tokens(2, 3, no_symbol_twice)
    decoder = DequantizedFlowConfig("nlsq", "normal", "coupling", layers=2, width=8, depth=1, importance_samples=4096)
    config = ModelConfig(space_config(legal), decoder, MeanConfig(width=8, depth=1), embedding=EMBEDDING)
    model = with_random_parameters(config.build, key, scale=0.1)
    states = jnp.asarray([[first, second] for first in range(3) for second in range(3)])
    allowed = np.asarray([first != second for first in range(3) for second in range(3)])

    @eqx.filter_jit
    def both(model):
        embedding = model.embed(states[:4], jnp.zeros(4), legal)
        own = model.log_prob(embedding, states, legal)
        return ModelBelief(model, embedding, legal).log_probs(states), own, jax.vmap(legal.contains)(states)

    told, own, contained = both(model)
    np.testing.assert_array_equal(contained, allowed)
    found = np.exp(np.asarray(told, np.float64))
    mass = float(np.exp(np.asarray(own))[allowed].sum())
    assert 0.3 < mass < 0.95
    np.testing.assert_array_equal(found[~allowed], 0.0)
    assert abs(np.log(found.sum())) < monte_carlo(np.sqrt((1 - mass) / mass), DRAWS)


def test_a_flat_listing_is_no_set_of_draws(key):
    """An untrained softmax is exactly flat. Its embedding of three cells still says where the mass is: the listing was
    not drawn, so nothing keeps the tilt from it."""
    config = EnumeratedConfig((5, 5), embedding=16, encoder_width=32, encoder_depth=2, decoder_width=8)
    model = eqx.filter_jit(config.build)(key)
    space, cells = Lattice((5, 5)), jnp.asarray([[0, 0], [2, 3], [4, 4]])
    weights = uniform_log_weights(3)

    @eqx.filter_jit
    def tilted(model):
        embedding = model.embed(cells, weights, space)
        state = NeuralState(embedding, ParticleBelief(cells, weights), jnp.zeros(()), jnp.zeros(()), None)
        tilt = MomentMatching().of_density(model, state, space)
        return ModelBelief(model, embedding, space, tilt).log_probs(jnp.asarray(space.points()))

    found = np.exp(tilted(model))
    np.testing.assert_allclose(found.sum(), 1.0, **FLOAT)
    assert found[[0, 13, 24]].sum() > 0.5
