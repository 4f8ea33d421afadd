"""One way to ask what an object can do beyond its contract, and what the answer says."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from constructors import DECODERS, EMBEDDING, small_grid

import nbf
from nbf.calls import space_of
from nbf.capabilities import Drifting, Enumerable, EvenDraws, ListedStates, StateEmission
from nbf.capability import capability, require
from nbf.contracts import Environment
from nbf.environments.functional import One
from nbf.environments.gridworld import Gridworld
from nbf.errors import InputError
from nbf.filters.neural import Correction, Proposal, RegeneratingProposal
from nbf.fitting.teacher import belief_source, exact_work
from nbf.models.belief_model import ModelConfig, space_config
from nbf.models.set_encoder import MeanConfig
from nbf.sources.filtered import FilterPosteriors
from nbf.spaces import Box, Lattice


def test_what_is_required_names_methods_if_there_are_any():
    grid, _ = small_grid()
    with pytest.raises(InputError, match=r"^Who needs the capability Drifting \(nbf.capabilities: drift\), which"):
        require(grid, Drifting, "Who", "Do this.")
    with pytest.raises(InputError, match=r"StateEmission \(nbf\.capabilities\), which Gridworld does not claim\. Do"):
        require(grid, StateEmission, "Who", "Do this.")


def test_names_that_proposals_of_ones_own_need_are_public():
    assert nbf.RegeneratingProposal is RegeneratingProposal
    assert (nbf.Proposal, nbf.Correction, nbf.StateEmission) == (Proposal, Correction, StateEmission)
    assert {"RegeneratingProposal", "Proposal", "Correction", "StateEmission"} <= set(dir(nbf))


def built(name):
    space, decoder = DECODERS[name]
    config = ModelConfig(space_config(space), decoder, MeanConfig(width=8, depth=1), embedding=EMBEDDING)
    return eqx.filter_eval_shape(config.build, jax.random.key(0))


@pytest.mark.parametrize("name", DECODERS)
def test_a_model_can_do_what_its_decoder_claims(name):
    model = built(name)
    for kind, method in ((EvenDraws, "draw"), (ListedStates, "all_log_probs")):
        claimed = capability(model.decoder, kind) is not None
        assert claimed == hasattr(model.decoder, method)
        assert (capability(model, kind) is not None) == claimed


class Plain(eqx.Module):
    """A decoder that has a `draw` of another kind, and claims nothing."""

    def sample(self, key, condition, n, space):
        return jnp.arange(n)[:, None]

    def log_prob(self, condition, states, space):
        return jnp.zeros(len(states))

    def objective(self, key, conditions, states, space):
        return jnp.zeros(states.shape[:2])

    def draw(self):
        raise AssertionError


def test_a_part_that_claims_nothing_is_not_asked(key):
    model = eqx.tree_at(lambda model: model.decoder, built("enumerated"), Plain())
    assert capability(model.decoder, EvenDraws) is None
    states, log_weights = model.draw(key, jnp.zeros(EMBEDDING), 4, Lattice((3, 4)))
    assert states[:, 0].tolist() == [0, 1, 2, 3]
    assert log_weights.tolist() == [0.0] * 4


class Unlisted(Gridworld):
    """Has all methods of `Enumerable`, but does not claim it."""

    @property
    def capabilities(self):
        return frozenset()


def test_a_teacher_is_chosen_by_what_is_claimed():
    grid, policy = small_grid()
    hidden = Unlisted(grid.space, grid.error)
    assert isinstance(hidden, Enumerable)
    source, _ = belief_source(One(hidden, policy), hidden, horizon=2, particles=8, teacher=None, wall_band=0.0)
    assert isinstance(source, FilterPosteriors)
    with pytest.raises(InputError, match=r"Enumerable.*Unlisted does not claim"):
        exact_work(One(hidden, policy))


def test_a_space_says_what_its_states_share():
    assert space_of(Box((0.0,), (1.0,))) == Box((0.0,), (1.0,)).signature
    assert space_of(Box((0.0,), (1.0,), bounded=False)) == space_of(Box((-5.0,), (1.0,), bounded=False)) == "reals"
    circle = Box((0.0,), (1.0,), bounded=False, circular=(0,))
    assert space_of(circle) == circle.signature
    assert space_of(Lattice((2, 3))) == "lattice(2, 3)"

    class Own(Lattice):
        @property
        def state_signature(self):
            return "mine"

    assert space_of(Own((2, 3))) == "mine"


class Guessed(Proposal):
    """A proposal of one's own."""

    def check(self, environment: Environment, num_particles: int) -> None:
        return

    def __call__(self, key, prior, observation, environment, policy):
        raise NotImplementedError


def test_a_proposal_of_ones_own_takes_nothing_from_trust():
    assert Guessed().trusted(Lattice((3,))) == ()
