"""The tables that an environment claims are compared with the rest of it."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import nbf
from nbf.environments.matrices import FiniteEnvironment
from nbf.testing import check_environment


class Skewed(FiniteEnvironment):
    """Tells of other tables than it draws from."""

    skew: Float[Array, "3 3"]
    shift: Float[Array, " 3"]

    def transition_matrix(self, policy):
        return super().transition_matrix(policy) + self.skew

    def log_likelihood_table(self, observation):
        return super().log_likelihood_table(observation) + self.shift


def skewed(skew=0.0, shift=0.0):
    rng = np.random.default_rng(1)
    moves, symbols, start = rng.dirichlet(np.ones(3), (2, 3)), rng.dirichlet(np.ones(4), 3), rng.dirichlet(np.ones(3))
    sound = nbf.from_matrices(moves, symbols, start)
    fields = {field.name: getattr(sound, field.name) for field in dataclasses.fields(sound)}
    return Skewed(**fields, skew=skew * jnp.asarray([[1.0, -1.0, 0.0]] * 3), shift=jnp.full(3, shift))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, []),
        ({"skew": 0.01}, ["transition_matrix agrees with successors"]),
        ({"shift": 0.1}, ["log_likelihood_table agrees with log_likelihood"]),
    ],
    ids=str,
)
def test_tables_that_say_something_else_are_found(settings, expected):
    report = check_environment(skewed(**settings), jnp.asarray([0.3, 0.7]))
    assert [check.name for check in report.failures] == expected
    assert "TransitionMatrix" in report.capabilities
