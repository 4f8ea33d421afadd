"""What is measured of one belief: likelihood of held-out samples, energy distance, and two kinds of ranks."""

from __future__ import annotations

import operator

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from nbf.beliefs.categorical import CategoricalBelief
from nbf.capabilities import ExactSource
from nbf.capability import capability
from nbf.contracts import BeliefModel, BeliefSource, Embedding, State, StateSpace
from nbf.errors import InputError
from nbf.evaluation.divergence import jensen_shannon

TIE = 1e-3
"""Log-probabilities are ranked in steps of this many nats: rounding may give one state two log-probabilities within a
program, and a rank must not see that. Ranks of any score are uniform, so nothing is lost."""


class Sizes(eqx.Module):
    """Numbers of samples of one belief."""

    embed: int = eqx.field(static=True)
    """Samples embedded."""
    held_out: int = eqx.field(static=True)
    """Samples held out."""
    draws: int = eqx.field(static=True)
    """Draws from the decoded belief."""


class Scores(eqx.Module):
    """What is measured of one belief; of many beliefs, every field has a leading axis."""

    nll: Float[Array, ""]
    """Mean negative log-likelihood of the held-out samples."""
    impossible: Float[Array, ""]
    """Share of the held-out samples to which the model gives probability zero."""
    energy: Float[Array, ""]
    """Energy distance between draws and held-out samples."""
    js: Float[Array, ""] | None
    """Jensen-Shannon divergence from the exact belief, if the source knows it."""
    pit: Float[Array, "h d"]
    """Rank of each coordinate of each held-out sample among the draws."""
    density: Float[Array, " h"]
    """Share of draws that are more probable than each held-out sample."""
    broken: Int[Array, ""]
    """Number of states with a NaN encoding or log-probability, or an infinite density."""


@eqx.filter_jit
def measure(model: BeliefModel, source: BeliefSource, sizes: Sizes, keys: Key[Array, " b"]) -> Scores:
    """Measure a batch of random beliefs of a source, compiled.

    Args:
        model: Model to judge.
        source: Where the beliefs come from.
        sizes: Numbers of samples.
        keys: One random key per belief.

    Returns:
        The scores of each belief.
    """
    return jax.vmap(lambda key: _score(key, model, source, sizes))(keys)


def _score(key: Key[Array, ""], model: BeliefModel, source: BeliefSource, sizes: Sizes) -> Scores:
    belief_key, draw_key, pit_key, density_key = jax.random.split(key, 4)
    states, space, exact = _belief(belief_key, source, sizes.embed + sizes.held_out)
    if space.signature != model.space.signature:
        raise InputError(
            f"The model is for {model.space.signature} and the source's beliefs are over {space.signature}: "
            "calibrate a model on beliefs over its own space."
        )
    known, held = (
        jax.tree.map(operator.itemgetter(part), states) for part in (slice(sizes.embed), slice(sizes.embed, None))
    )
    embedding = model.embed(known, jnp.zeros(sizes.embed), space)
    drawn = model.sample(draw_key, embedding, sizes.draws, space)
    # Draws and held-out samples go through one program together, so that equal states give equal numbers.
    both = jax.tree.map(lambda *parts: jnp.concatenate(parts), drawn, held)
    numbers, log_probs = jax.lax.optimization_barrier(
        (jax.vmap(space.encode)(both), model.log_prob(embedding, both, space))
    )
    js = None if exact is None else _divergence(model, embedding, exact)
    broken = ~(jnp.all(jnp.isfinite(numbers), axis=1) & (log_probs < jnp.inf))
    likelihood = log_probs[sizes.draws :]
    steps = -jnp.round(log_probs / TIE)[:, None]
    return Scores(
        nll=-jnp.mean(likelihood),
        impossible=jnp.mean(likelihood == -jnp.inf),
        energy=energy_distance(numbers[: sizes.draws], numbers[sizes.draws :]),
        js=js,
        pit=ranks(pit_key, numbers[: sizes.draws], numbers[sizes.draws :]),
        density=ranks(density_key, steps[: sizes.draws], steps[sizes.draws :])[:, 0],
        broken=jnp.sum(broken) + (0 if js is None else jnp.isnan(js)),
    )


def _belief(key: Key[Array, ""], source: BeliefSource, n: int) -> tuple[State, StateSpace, CategoricalBelief | None]:
    """Samples of a random belief, its space, and the belief itself if the source knows it exactly."""
    exact = capability(source, ExactSource)
    if exact is None:
        return *source.sample(key, n), None
    belief_key, sample_key = jax.random.split(key)
    belief = exact.posterior(belief_key)
    return belief.sample(sample_key, n), belief.environment.space, belief


def _divergence(model: BeliefModel, embedding: Embedding, exact: CategoricalBelief) -> Float[Array, ""]:
    environment = exact.environment
    table = jnp.exp(model.log_prob(embedding, environment.states(), environment.space))
    return jensen_shannon(exact.probs, table)


def ranks(key: Key[Array, ""], draws: Float[Array, "n d"], samples: Float[Array, "h d"]) -> Float[Array, "h d"]:
    """Randomised ranks (r + U) / (n + 1) of samples among draws, where r of the n draws are below a sample.

    They are uniform on [0, 1] if draws and samples have one distribution. Every draw and every sample carries a random
    number that breaks ties.

    Args:
        key: Random key.
        draws: Draws from the model, one per row.
        samples: Samples to rank, one per row.

    Returns:
        The rank of each coordinate of each sample.
    """
    draw_key, sample_key, slot_key = jax.random.split(key, 3)
    n, h = draws.shape[0], samples.shape[0]
    first = jax.random.uniform(draw_key, (n,)) < jax.random.uniform(sample_key, (h, 1))
    below = draws < samples[:, None]
    tied = (draws == samples[:, None]) & first[:, :, None]
    return (jnp.sum(below | tied, axis=1) + jax.random.uniform(slot_key, (h, 1))) / (n + 1)


def energy_distance(one: Float[Array, "n d"], other: Float[Array, "h d"]) -> Float[Array, ""]:
    """Estimate 2 E|X - Y| - E|X - X'| - E|Y - Y'| without bias: no sample is paired with itself.

    Args:
        one: Samples of X, one per row; at least 2.
        other: Samples of Y, one per row; at least 2.

    Returns:
        The energy distance.
    """
    n, h = one.shape[0], other.shape[0]
    within = _distances(one, one) / (n * (n - 1)) + _distances(other, other) / (h * (h - 1))
    return 2.0 * _distances(one, other) / (n * h) - within


def _distances(one: Float[Array, "n d"], other: Float[Array, "h d"]) -> Float[Array, ""]:
    return jnp.sum(jnp.sqrt(jnp.sum((one[:, None] - other) ** 2, axis=-1)))
