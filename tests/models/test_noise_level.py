"""Embeddings that say how noisy they are."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constructors import with_random_parameters
from tolerances import FLOAT

from nbf.contracts import BeliefSource
from nbf.errors import InputError
from nbf.files.checkpoint import load_model, save_model
from nbf.models.belief_model import MODELS, BoxConfig, LatticeConfig, ModelConfig
from nbf.models.enumerated import EnumeratedDecoderConfig
from nbf.models.mixture import MixtureConfig
from nbf.models.noise_level import NoiseLevelConfig
from nbf.models.set_encoder import MeanConfig, OneHotConfig
from nbf.spaces import Box
from nbf.training.config import FitConfig
from nbf.training.fit import train

SMALL = MeanConfig(width=8, depth=1)
CONFIGS = {
    "mean": ModelConfig(
        BoxConfig((-1.0,), (1.0,)), MixtureConfig(2, 8, 1), NoiseLevelConfig(SMALL, largest=16), embedding=5
    ),
    "one-hot": ModelConfig(
        LatticeConfig((3,)), EnumeratedDecoderConfig(8, 1), NoiseLevelConfig(OneHotConfig((3,), 8, 1), 16), embedding=5
    ),
}


@pytest.fixture(params=CONFIGS)
def model(request, key):
    return with_random_parameters(CONFIGS[request.param].build, key)


def states_of(model, n: int):
    numbers = np.arange(n)[:, None] % 3
    return jnp.asarray(numbers / 4.0, jnp.float32) if isinstance(model.space, Box) else jnp.asarray(numbers)


@eqx.filter_jit
def embedded(model, states, log_weights):
    return model.embed(states, log_weights), model.encoder.encoder(states, log_weights, model.space)


@pytest.mark.parametrize("prepared", [False, True])
def test_the_last_number_is_the_log_of_the_effective_sample_size(model, prepared):
    model = model.prepared() if prepared else model
    states = states_of(model, 32)
    for weights, size in (
        (np.r_[np.ones(1), np.zeros(31)], 1.0),
        (np.r_[np.full(4, 3.0), np.zeros(28)], 4.0),
        (np.r_[1.0, 2.0, 3.0, np.zeros(29)], 36.0 / 14.0),
        (np.ones(32), 16.0),  # the largest that is told apart
    ):
        with np.errstate(divide="ignore"):
            theta, inner = embedded(model, states, jnp.asarray(np.log(weights), jnp.float32))
        np.testing.assert_allclose(theta[-1], 2.0 * np.log(size) / np.log(16.0) - 1.0, **FLOAT)
        np.testing.assert_allclose(theta[:-1], inner, **FLOAT)


def test_features_are_those_whose_mean_the_embedding_begins_with(model):
    states, weights = states_of(model, 3), np.asarray([0.2, 0.3, 0.5], np.float32)
    features = eqx.filter_jit(lambda model, states: model.features(states, model.space))(model, states)
    np.testing.assert_allclose(embedded(model, states, np.log(weights))[0][:-1], features @ weights, **FLOAT)


def test_a_model_is_saved_and_loaded(model, tmp_path):
    config = CONFIGS["mean" if isinstance(model.space, Box) else "one-hot"]
    save_model(tmp_path / "model.safetensors", model, config)
    loaded, again, _ = load_model(tmp_path / "model.safetensors", MODELS)
    assert again == config
    assert eqx.tree_equal(*jax.device_get((loaded, model)))


@pytest.mark.parametrize(("encoder", "embedding"), [(NoiseLevelConfig(largest=1), 8), (NoiseLevelConfig(), 1)])
def test_what_cannot_be_built_is_refused(encoder, embedding):
    config = ModelConfig(BoxConfig((-1.0,), (1.0,)), MixtureConfig(), encoder, embedding=embedding)
    with pytest.raises(InputError, match="at least 2"):
        config.build(jax.random.key(0))


class Gaussians(BeliefSource):
    """Normal beliefs of one width, with a mean that may be anywhere."""

    space: Box = Box((-1.0,), (1.0,), bounded=False)

    def sample(self, key, n):
        mean_key, sample_key = jax.random.split(key)
        mean = jax.random.uniform(mean_key, minval=-1.0, maxval=1.0)
        return mean + 0.1 * jax.random.normal(sample_key, (n, 1)), self.space


@pytest.mark.slow
def test_a_decoder_that_is_told_knows_how_far_a_mean_may_be_off(key):
    """Given n samples of a normal belief of width σ, the next one has a deviation of σ√(1 + 1/n)."""
    config = ModelConfig(
        BoxConfig((-1.0,), (1.0,), bounded=False), MixtureConfig(1, 32, 1), NoiseLevelConfig(MeanConfig(32, 1), 32),
        embedding=9,
    )  # fmt: skip
    training = FitConfig(
        steps=3000, batch=64, samples=64, optimizer="adam", learning_rate=3e-3, schedule="cosine", random_sets=True
    )
    model = train(config.build(key), Gaussians(), training, key=key, progress=False).model

    def width(size: int) -> float:
        states = jnp.zeros((32, 1))  # all at the mean, so that the set itself tells nothing of its size
        embedding = model.embed(states, jnp.where(jnp.arange(32) < size, 0.0, -jnp.inf))
        return float(jnp.std(model.sample(key, embedding, 20_000, Gaussians().space)))

    for size in (4, 8, 32):
        assert width(size) == pytest.approx(0.1 * np.sqrt(1.0 + 1.0 / size), rel=0.04)
    assert width(4) > 1.06 * width(32)
