"""The perfect model of the paper's theorem: a belief is embedded as its own table of probabilities."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from nbf import prng
from nbf.capabilities import FiniteSpace, ListedStates, MeanFeatures
from nbf.contracts import BeliefModel, Embedding, State, StateSpace
from nbf.resampling.weights import mean_weights


class TabularModel(BeliefModel, MeanFeatures, ListedStates):
    """θ[x] is the probability of cell x. Nothing is trained; for small lattices and for tests of filters."""

    space: FiniteSpace

    def embed(self, states: State, log_weights: Float[Array, " n"], space: StateSpace | None = None) -> Embedding:
        cells = jax.vmap(self.space.index)(states)
        return jnp.zeros(self.space.size).at[cells].add(mean_weights(log_weights))

    def sample(self, key: Key[Array, ""], embedding: Embedding, n: int, space: StateSpace) -> Int[Array, "n d"]:
        return jnp.asarray(self.space.points())[prng.categoricals(key, embedding, n)]

    def log_prob(self, embedding: Embedding, states: State, space: StateSpace) -> Float[Array, " n"]:
        return jnp.log(embedding[jax.vmap(self.space.index)(states)])

    def features(self, states: State, space: StateSpace) -> Float[Array, "m n"]:
        return jax.nn.one_hot(jax.vmap(self.space.index)(states), self.space.size, axis=0)

    def all_log_probs(self, embedding: Embedding, space: StateSpace) -> Float[Array, " states"]:
        return jnp.log(embedding)
