"""Conformance checks of a belief model.

Its embedding must not depend on the order, size or padding of a set; its samples must be states of its space, and
`log_prob` must be the log probability of these samples.
"""

from __future__ import annotations

import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PyTree

from nbf import prng
from nbf.capabilities import FiniteSpace, SequenceSpace
from nbf.capability import benefits, capability
from nbf.contracts import BeliefModel, Environment, State, StateSpace
from nbf.errors import InputError
from nbf.testing import simulation
from nbf.testing.report import Checks, ConformanceReport, Failure, first, kinds, take
from nbf.testing.statistics import smallest_found, worst_frequency

SET, DRAWS = 16, 4096
"""States that are embedded, and samples that are drawn."""
LISTED = 4096
"""Spaces of up to this many states are enumerated."""
TOLERANCE = 1e-3
"""Of float32 sums in another order, relative to the largest component of an embedding."""
QUADRATURE = 0.02
"""How far probabilities may be from summing to one: a dequantized flow computes them by quadrature."""


def check_model(
    model: BeliefModel, where: Environment | StateSpace, *, key: Key[Array, ""] | None = None
) -> ConformanceReport:
    """Check a belief model on states of an environment or of a space.

    Args:
        model: The model.
        where: The environment or the space that it is to be used on.
        key: The randomness of all draws; by default always the same.

    Returns:
        The report.
    """
    subject = _Subject(model, where, prng.stream(0, "check_model") if key is None else key)
    checks = Checks(type(model).__name__)
    checks.run("space", subject.fits)
    checks.need()
    checks.run("embed", subject.embeds)
    checks.need()
    for name in ("order", "size", "padding", "scale of the weights", "prepared"):
        checks.run(f"embed: {name}", subject.invariant, name)
    checks.run("vmap", subject.batches)
    checks.run("samples are states", subject.samples)
    checks.need("samples are states")
    checks.run("log_prob is a number", subject.probabilities)
    if subject.listed is not None:
        checks.run("probabilities sum to one", subject.normalised)
        checks.run("samples agree with log_prob", subject.frequencies)
    checks.run("objective", subject.objective)
    return checks.report(benefits(model))


class _Subject:
    """A model under test, and the results of earlier checks."""

    def __init__(self, model: BeliefModel, where: Environment | StateSpace, key: Key[Array, ""]):
        self.model, self.key = model, key
        self.space = where.space if isinstance(where, Environment) else where
        self.states = some_states(where, key, 2 * SET)
        self.listed = every_state(self.space)
        self.embeddings: dict[str, np.ndarray] = {}
        self.drawn: Any = None

    def fits(self) -> None:
        mine, theirs = self.model.space.signature, self.space.signature
        if mine != theirs:
            raise Failure("the model is for another state space", expected=theirs, found=mine)

    def embeds(self) -> None:
        log_weights = jax.random.normal(self.key, (SET,))
        found = _embeddings(self.model, self.states, log_weights, self.space)
        self.embeddings = {name: np.asarray(value) for name, value in found.items()}
        plain = self.embeddings["plain"]
        if plain.ndim != 1 or plain.dtype.kind != "f" or not np.all(np.isfinite(plain)):
            raise Failure("an embedding must be a vector of finite numbers", found=f"{kinds(plain)}: {plain}")

    def invariant(self, name: str) -> None:
        plain, other = self.embeddings["plain"], self.embeddings[name]
        if not np.abs(plain - other).max() <= TOLERANCE * max(1.0, float(np.abs(plain).max())):
            raise Failure(f"the embedding of a set of {SET} is not invariant to it", expected=plain, found=other)

    def batches(self) -> None:
        embedding = jnp.asarray(self.embeddings["plain"])
        batch, keys = jnp.stack([embedding, embedding]), jax.random.split(self.key)
        sample = jax.vmap(lambda key, embedding: self.model.sample(key, embedding, SET, self.space))
        states = jax.eval_shape(sample, keys, batch)
        found = jax.eval_shape(jax.vmap(self.model.log_prob, (0, 0, None)), batch, states, self.space)
        if found.shape != (2, SET):
            raise Failure("log_prob of a batch of sets has another shape", expected=(2, SET), found=found.shape)

    def samples(self) -> str:
        drawn = _samples(self.model, self.key, jnp.asarray(self.embeddings["plain"]), self.space)
        self.drawn, log_probs, inside, legal = drawn
        place = first(~np.asarray(inside))
        if place is not None:
            raise Failure("a sample is not a state of the model's space", state=take(self.drawn, *place))
        self.log_probs = np.asarray(log_probs, np.float64)
        illegal = 1.0 - float(np.mean(np.asarray(legal)))
        return f"{illegal:.1%} of them on illegal states" if illegal else ""

    def probabilities(self) -> None:
        place = first(~np.isfinite(self.log_probs))
        if self.log_probs.shape != (DRAWS,):
            raise Failure("log_prob must be one number for each state", expected=(DRAWS,), found=self.log_probs.shape)
        if place is not None:
            raise Failure(
                "log_prob of the model's own sample is not finite",
                state=take(self.drawn, *place),
                found=self.log_probs[place],
            )

    def normalised(self) -> str:
        total = float(self._probs().sum())
        if not abs(total - 1.0) <= QUADRATURE:
            raise Failure(
                "the probabilities of all states do not sum to one", expected=f"1 ± {QUADRATURE}", found=total
            )
        return f"{total:.4f}"

    def frequencies(self) -> str:
        probs = self._probs()
        listed, drawn = (simulation.rows(states, axes=1)[0] for states in (self.listed, self.drawn))
        place = {row.tobytes(): number for number, row in enumerate(listed)}
        counts = np.bincount([place[row.tobytes()] for row in drawn], minlength=len(listed)).astype(float)
        worst = worst_frequency(counts, probs, slack=QUADRATURE)
        if worst is not None:
            raise Failure(
                "the frequency of a state among the samples is not its probability",
                state=take(self.listed, worst[0]),
                expected=float(probs[worst[0]]),
                found=worst[1],
            )
        return f"would detect a probability wrong by {smallest_found(DRAWS) + QUADRATURE:.2f}"

    def objective(self) -> None:
        batch = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), (self.embeddings["plain"], self.states, self.space))
        (_, values), gradient = _objective(self.model, self.key, *batch)
        if values.shape != (2, 2 * SET):
            raise Failure(
                "the objective must be one number for each state of each belief",
                expected=(2, 2 * SET),
                found=values.shape,
            )
        if np.any(np.isnan(values)) or np.any(np.asarray(values) == np.inf):
            raise Failure("the objective is NaN or +inf", found=values)
        if not all(bool(np.all(np.isfinite(np.asarray(leaf)))) for leaf in jax.tree.leaves(gradient)):
            raise Failure("the gradient of the objective is not finite, so training would stop")

    def _probs(self) -> np.ndarray:
        log_probs = eqx.filter_jit(self.model.log_prob)(
            jnp.asarray(self.embeddings["plain"]), jax.tree.map(jnp.asarray, self.listed), self.space
        )
        return np.exp(np.asarray(log_probs, np.float64))


def some_states(where: Environment | StateSpace, key: Key[Array, ""], n: int) -> State:
    """Draw legal states: initial ones of an environment, or random ones of a space.

    Args:
        where: The environment or the space.
        key: The randomness of the draws.
        n: Number of states.

    Returns:
        n states.
    """
    if isinstance(where, Environment):
        return jax.vmap(where.init)(jax.random.split(key, n))
    numbers = jax.random.uniform(key, (LISTED, where.num_features), minval=-1.0, maxval=1.0)
    states = jax.vmap(where.decode)(numbers)
    legal = np.flatnonzero(np.asarray(jax.vmap(where.contains)(states)))
    if len(legal) == 0:
        raise InputError(
            f"None of {LISTED} random states of {where.signature} is legal; pass the environment instead of its space."
        )
    return jax.tree.map(lambda leaf: leaf[np.resize(legal, n)], states)


def every_state(space: StateSpace) -> State | None:
    """Enumerate a small discrete space, including illegal states.

    Args:
        space: The space.

    Returns:
        All states; None for a large or continuous space.
    """
    finite, sequences = capability(space, FiniteSpace), capability(space, SequenceSpace)
    if finite is not None and finite.size <= LISTED:
        return finite.points()
    if sequences is not None and sequences.categories**sequences.length <= LISTED:
        return np.array(list(itertools.product(range(sequences.categories), repeat=sequences.length)), np.int32)
    return None


@eqx.filter_jit
def _embeddings(
    model: BeliefModel, states: State, log_weights: Float[Array, " n"], space: StateSpace
) -> dict[str, Array]:
    """Embeddings of one weighted set in several equivalent forms."""
    one, other = jax.tree.map(lambda leaf: leaf[:SET], states), jax.tree.map(lambda leaf: leaf[SET:], states)
    both = lambda a, b: jax.tree.map(lambda x, y: jnp.concatenate([x, y]), a, b)  # noqa: E731
    return {
        "plain": model.embed(one, log_weights, space),
        "order": model.embed(jax.tree.map(lambda leaf: leaf[::-1], one), log_weights[::-1], space),
        "size": model.embed(both(one, one), both(log_weights, log_weights), space),
        "padding": model.embed(both(one, other), both(log_weights, jnp.full(SET, -jnp.inf)), space),
        "scale of the weights": model.embed(one, log_weights - 7.0, space),
        "prepared": model.prepared().embed(one, log_weights, space),
    }


@eqx.filter_jit
def _samples(
    model: BeliefModel, key: Key[Array, ""], embedding: Float[Array, " m"], space: StateSpace
) -> tuple[State, Array, Array, Array]:
    """Samples, their log probabilities, whether the model's space contains them, and whether they are legal."""
    states = model.sample(key, embedding, DRAWS, space)
    inside, legal = jax.vmap(model.space.contains)(states), jax.vmap(space.contains)(states)
    return states, model.log_prob(embedding, states, space), inside, legal


@eqx.filter_jit
def _objective(
    model: BeliefModel, key: Key[Array, ""], embeddings: Float[Array, "b m"], states: State, space: StateSpace
) -> PyTree:
    def total(model: BeliefModel) -> tuple[Array, Array]:
        values = model.objective(key, embeddings, states, space)
        return jnp.sum(jnp.where(values > -jnp.inf, values, 0.0)), values

    return eqx.filter_value_and_grad(total, has_aux=True)(model)
