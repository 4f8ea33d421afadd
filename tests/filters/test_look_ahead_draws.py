"""However many particles there are, a look-ahead has something to choose from."""

from __future__ import annotations

import jax
import pytest

import nbf
from nbf.errors import InputError
from nbf.filters.neural import LookAheadProposal, look_ahead


class AskedError(Exception):
    """Carries how many draws were asked for."""


@pytest.mark.parametrize(("particles", "draws"), [(16, 128), (32, 128), (64, 256), (128, 512), (512, 2048)])
def test_there_are_several_draws_for_each_particle(particles, draws, key, monkeypatch):
    """Up to 32 particles as many as the tables were made with."""
    world = nbf.environment(
        init=lambda key: jax.random.randint(key, (1,), 0, 3),
        transition=lambda key, state, policy: state,
        observe=lambda key, state, next_state: 0.0,
        log_likelihood=lambda observation, state, next_state: 0.0,
        space=nbf.Lattice((3,)),
        look_ahead=lambda observation, state, policy: 0.0,
    )
    filter = nbf.NeuralBayesianFilter(nbf.TabularModel(nbf.Lattice((3,))), particles)

    def asked(key, prior, count):
        raise AskedError(count)

    monkeypatch.setattr(look_ahead, "decoded", asked)
    with pytest.raises(AskedError) as error:
        jax.eval_shape(lambda: filter.update(key, filter.init(key, world), 0.0, world, None))
    assert error.value.args == (draws,)


def test_no_draws_are_refused():
    with pytest.raises(InputError, match="draws_per_particle of at least 1"):
        LookAheadProposal(draws_per_particle=0)
