"""The ring of beliefs that were met: against a list that is kept by hand."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tolerances import monte_carlo

from nbf.errors import InputError
from nbf.sources.met import MetBeliefs
from nbf.spaces import Lattice

PLACES, SAMPLES = 5, 6


def empty(truth_share: float = 0.0) -> MetBeliefs:
    space = Lattice((1000,), jnp.ones(1000, bool))
    return MetBeliefs.empty(jax.ShapeDtypeStruct((1,), jnp.int32), space, PLACES, SAMPLES, truth_share)


def numbered(first: int, count: int) -> tuple[np.ndarray, np.ndarray, Lattice]:
    """Beliefs whose samples are all their own number, in truth 500 more, and whose space allows that number alone."""
    numbers = np.arange(first, first + count, dtype=np.int32)
    states = np.broadcast_to(numbers[:, None, None], (count, SAMPLES, 1))
    spaces = jax.vmap(lambda legal: Lattice((1000,), legal))(jnp.asarray(np.eye(1000, dtype=bool)[numbers]))
    return states, numbers[:, None] + 500, spaces


@pytest.mark.parametrize("parts", [(2,), (3, 1), (4, 4), (5,), (2, 9), (12, 1)])
def test_the_newest_beliefs_are_kept(parts, key):
    beliefs, first = empty(), 1
    for count in parts:
        beliefs, first = beliefs.add(*numbered(first, count)), first + count
    kept = set(range(1, first)[-PLACES:])
    drawn, spaces = jax.vmap(lambda key: beliefs.sample(key, 4))(jax.random.split(key, 200))
    assert set(np.unique(drawn)) == kept
    assert int(beliefs.filled) == len(kept)
    assert isinstance(spaces, Lattice)
    assert spaces.legal is not None
    np.testing.assert_array_equal(np.argmax(spaces.legal, axis=1), drawn[:, 0, 0])  # a belief with its own space


def test_true_states_are_a_share_of_what_is_scored(key):
    beliefs = empty(0.25).add(*numbered(1, 5))
    n, draws = 6, 4000
    drawn, _ = jax.vmap(lambda key: beliefs.sample(key, n))(jax.random.split(key, draws))
    told = np.asarray(drawn)[..., 0] > 500
    assert not told[:, : n // 2].any(), "the true state was embedded"
    share = told[:, n // 2 :].mean()
    assert abs(share - 0.25) < monte_carlo(np.sqrt(0.25 * 0.75), draws * n // 2)
    own = np.where(told, drawn[..., 0] - 500, drawn[..., 0])
    assert (own == own[:, :1]).all(), "the true state is that of another belief"


def test_unknown_true_states_are_never_scored(key):
    states, _, spaces = numbered(1, 5)
    beliefs = empty(1.0).add(states, None, spaces)
    drawn, _ = jax.vmap(lambda key: beliefs.sample(key, 6))(jax.random.split(key, 50))
    assert set(np.unique(drawn)) == {1, 2, 3, 4, 5}
    # Those that are added later are known.
    beliefs = beliefs.add(*numbered(6, 1))
    drawn, _ = jax.vmap(lambda key: beliefs.sample(key, 6))(jax.random.split(key, 200))
    assert set(np.unique(drawn)) == {2, 3, 4, 5, 6, 506}


def test_the_shapes_do_not_change():
    """So that one compiled program serves however full the ring is."""
    before = empty()
    after = before.add(*numbered(1, 3))
    shapes = [jax.tree.map(jnp.shape, eqx.filter(each, eqx.is_array)) for each in (before, after)]
    assert shapes[0] == shapes[1]


def test_bad_draws_and_shares_are_refused(key):
    with pytest.raises(InputError, match="6 samples each; 7 were asked for"):
        empty().sample(key, 7)
    with pytest.raises(InputError, match="between 0 and 1"):
        empty(1.5)
