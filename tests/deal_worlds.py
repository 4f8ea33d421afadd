"""Deals that never move, with a likelihood that is a known function of one hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from nbf.capabilities import StaticState
from nbf.spaces import Deals

CARDS, QUOTAS = 10, (3, 3)


class Linear(StaticState):
    """Deals whose likelihood is a known function of the first owner's cards."""

    space: Deals
    slope: Array
    wrong: Array
    """Instead of the likelihood, where the first owner has card 0."""

    def init(self, key):
        return self.space.sample(key)

    def transition(self, key, state, policy):
        return state

    def observe(self, key, state, next_state):
        return jnp.int32(0)

    def log_likelihood(self, observation, state, next_state):
        told = jnp.log(0.1 + jax.nn.sigmoid(self.slope @ self.relevant(next_state)))
        return jnp.where((self.wrong != 0) & (state[0] == 0), self.wrong, told)

    def check_observation(self, observation):
        return

    def relevant(self, state):
        return (state == 0).astype(jnp.float32)


def world(wrong=0.0):
    space = Deals.of(jnp.ones((CARDS, 3), bool), QUOTAS)
    return Linear(space, jnp.asarray(np.linspace(-1.0, 1.0, CARDS), jnp.float32), jnp.float32(wrong))
