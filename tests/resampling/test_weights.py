"""The normalisers of log weights agree but for rounding, and differ in what their table says."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special
from tolerances import FLOAT

from nbf.resampling.weights import log_normalized, mean_weights, normalize, normalized_weights

NORMALISERS = {
    "normalize": lambda logs: jnp.exp(normalize(logs)[0]),
    "normalized_weights": normalized_weights,
    "log_normalized": lambda logs: jnp.exp(log_normalized(jnp.exp(logs))),
    "mean_weights": mean_weights,
}


@pytest.mark.parametrize("name", NORMALISERS)
def test_all_normalise_to_the_softmax(name):
    logs = np.random.default_rng(3).normal(size=50).astype(np.float32)
    logs[::7] = -np.inf
    np.testing.assert_allclose(NORMALISERS[name](jnp.asarray(logs)), special.softmax(logs.astype(np.float64)), **FLOAT)


@pytest.mark.parametrize("name", NORMALISERS)
def test_without_any_weight_all_are_zero(name):
    np.testing.assert_array_equal(NORMALISERS[name](jnp.full(4, -jnp.inf)), np.zeros(4))


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_what_is_no_weight_is_hidden_from_filters_and_not_from_training(wrong):
    logs = jnp.asarray([0.0, wrong, 0.0])
    for name in ("normalize", "normalized_weights"):
        np.testing.assert_allclose(NORMALISERS[name](logs), [0.5, 0.0, 0.5], **FLOAT)
    assert np.isnan(mean_weights(logs)).any()
