"""Which filters apply to a problem: the rows of `nbf.compare`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax

from nbf import prng
from nbf.capabilities import ContinuousSpace, Enumerable, GaussianDynamics, KnownTransitions, Prefixes
from nbf.capability import capability
from nbf.contracts import BeliefModel, Environment, Filter, Policy
from nbf.errors import InputError
from nbf.evaluation.belief_scores import LISTABLE, num_states
from nbf.filters.approximate import ApproxBeliefs
from nbf.filters.branching import BranchingFilter
from nbf.filters.checks import check_space
from nbf.filters.exact import ExactFilter
from nbf.filters.gaussian import EnsembleKalmanFilter, ExtendedKalmanFilter, KalmanFilter, UnscentedKalmanFilter
from nbf.filters.neural import NeuralBayesianFilter
from nbf.filters.particle import ParticleFilter
from nbf.filters.prediction import PredictionFilter
from nbf.filters.prefixes import PrefixFilter
from nbf.filters.regeneration import KernelSmoother
from nbf.filters.regularized import RegularizedParticleFilter
from nbf.fitting.fitted import FittedModel
from nbf.fitting.rows import Kind
from nbf.fitting.trust import MeasuredTrust

AFFORDABLE = 2**18
"""Branches of all states together up to which the exact filter runs."""
PRIOR_PARTICLES = 4096
"""Of the prior, where it is not exact."""
CEILING_SAMPLES = 512
"""Of the reference belief, embedded at each step."""


@dataclass(frozen=True)
class Contender:
    """One row to be: a filter, or the filters of several models."""

    name: str
    kind: Kind
    filters: tuple[Filter, ...]
    """One for each model; a single one where there is no model."""
    particles: int | None = None
    calls: float | None = None
    """Simulator calls of an update that succeeds at once."""
    timed: bool = True
    """Whether its time matters."""


def exact_filter(environment: Environment, policy: Policy) -> tuple[Filter, int] | None:
    """Choose the exact filter, where it is affordable.

    Args:
        environment: One of the family.
        policy: Of its first step.

    Returns:
        The filter and the branches that it follows at each step; None if there are too many, or none are known.
    """
    enumerable = capability(environment, Enumerable)
    if enumerable is None or num_states(environment) > LISTABLE:
        return None
    branches = num_states(environment) * _branches(enumerable, policy)
    if branches > AFFORDABLE:
        return None
    return PrefixFilter() if capability(environment, Prefixes) is not None else ExactFilter(), branches


def _branches(environment: Enumerable, policy: Policy) -> int:
    one = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), jax.eval_shape(environment.states)
    )
    return jax.eval_shape(lambda state: environment.successors(state, policy)[1], one).shape[0]


def prior(exact: Filter | None) -> Contender:
    """Choose the prior, which no observation reaches.

    Args:
        exact: The exact filter, if there is one.

    Returns:
        Its row.
    """
    filter = PredictionFilter(ParticleFilter(PRIOR_PARTICLES) if exact is None else exact)
    return Contender("prior", "prior", (filter,), timed=False)


def classical(
    environment: Environment,
    policy: Policy,
    budgets: Sequence[int],
    particles: Sequence[int],
    trust: MeasuredTrust | None = None,
) -> tuple[list[Contender], list[str]]:
    """List the filters without a network.

    Args:
        environment: One of the family.
        policy: Of its first step.
        budgets: Simulator calls at which filters are compared.
        particles: More sizes of particle filters.
        trust: In a model that is compared with them: the width of its kernel is theirs too.

    Returns:
        The rows, what was left out and why, and what was chosen.
    """
    found, notes = [], []
    exact = exact_filter(environment, policy)
    if exact is not None:
        found.append(Contender(f"{type(exact[0]).__name__}()", "exact", (exact[0],), None, float(exact[1])))
    elif capability(environment, Enumerable) is not None:
        notes.append(f"The exact filter was left out: it would follow more than {AFFORDABLE:,} branches at each step.")
    found += _kalman(environment, max(budgets))
    found += _branching(environment, policy, budgets)
    sizes = sorted({*budgets, *particles})
    found += [Contender(f"ParticleFilter({n})", "particle", (ParticleFilter(n),), n, float(n)) for n in sizes]
    if capability(environment.space, ContinuousSpace) is None:
        return found, notes
    found += [
        Contender(f"RegularizedParticleFilter({n})", "regularised", (_regularised(n, trust),), n, float(n))
        for n in sorted(budgets)
    ]
    if trust is not None:
        scales = ", ".join(f"{trust.at(n).kernel_scale:.2g}" for n in sorted(budgets))
        notes.append(f"Regularised filters have the kernels of the neural ones: {scales} times Silverman's width.")
    return found, notes


def _regularised(n: int, trust: MeasuredTrust | None) -> RegularizedParticleFilter:
    plain = RegularizedParticleFilter(n)
    return plain if trust is None else replace(plain, smoother=KernelSmoother(trust.at(n).kernel_scale))


def _kalman(environment: Environment, members: int) -> list[Contender]:
    """The filters of Gaussian moments; a call is an evaluation of the moments, or a move of a member."""
    dynamics, space = capability(environment, GaussianDynamics), capability(environment.space, ContinuousSpace)
    if dynamics is None or space is None:
        return []
    if dynamics.linear:
        return [Contender("KalmanFilter()", "kalman", (KalmanFilter(),), None, 1.0)]
    points, members = 2 * space.dimension + 1, max(members, 2)
    ensemble = EnsembleKalmanFilter(members)
    return [
        Contender("ExtendedKalmanFilter()", "kalman", (ExtendedKalmanFilter(),), None, 1.0),
        Contender("UnscentedKalmanFilter()", "kalman", (UnscentedKalmanFilter(),), None, float(points)),
        Contender(f"EnsembleKalmanFilter({members})", "kalman", (ensemble,), members, float(members)),
    ]


def _branching(environment: Environment, policy: Policy, budgets: Sequence[int]) -> list[Contender]:
    enumerable = capability(environment, Enumerable)
    if enumerable is None or num_states(environment) > LISTABLE:
        return []
    least = 1 if capability(environment, KnownTransitions) is not None else _branches(enumerable, policy)
    return [
        Contender(f"BranchingFilter({n})", "branching", (BranchingFilter(n),), n, float(n))
        for n in sorted(budgets)
        if n >= least
    ]


def neural(
    models: Sequence[FittedModel | BeliefModel],
    environment: Environment,
    budgets: Sequence[int],
    reference: Filter,
    seed: int,
) -> tuple[list[Contender], list[str]]:
    """List the neural filters, the same untrained, and their ceiling.

    Args:
        models: Trained models of one kind.
        environment: One of the family.
        budgets: Particle counts.
        reference: The filter whose beliefs the ceiling embeds.
        seed: Root seed of the untrained parameters.

    Returns:
        The rows, and what was left out and why.
    """
    if not models:
        return [], []
    for model in models:
        check_space(_belief_model(model), environment)
    found = [
        Contender(f"neural ({n})", "neural", tuple(_filter(model, n) for model in models), n, float(n))
        for n in sorted(budgets)
    ]
    notes, middle = [], sorted(budgets)[len(budgets) // 2]
    fitted = [model for model in models if isinstance(model, FittedModel)]
    if len(fitted) == len(models):
        fresh = [
            replace(model, model=model.config.build(prng.stream(seed, "compare", "untrained", place)))
            for place, model in enumerate(fitted)
        ]
        filters = tuple(model.filter(middle) for model in fresh)
        found.append(Contender(f"untrained ({middle})", "untrained", filters, middle, float(middle), timed=False))
    else:
        notes.append("The untrained network was left out: only a model of nbf.fit tells how it was built.")
    ceilings = tuple(ApproxBeliefs(_belief_model(model), CEILING_SAMPLES, truth=reference) for model in models)
    return [*found, Contender("ceiling", "ceiling", ceilings, timed=False)], notes


def _belief_model(model: FittedModel | BeliefModel) -> BeliefModel:
    return model.model if isinstance(model, FittedModel) else model


def _filter(model: FittedModel | BeliefModel, n: int) -> Filter:
    return model.filter(n) if isinstance(model, FittedModel) else NeuralBayesianFilter(model, n)


def as_models(fitted: object) -> tuple[FittedModel | BeliefModel, ...]:
    """Read what `nbf.compare` was given as trained models.

    Args:
        fitted: None, a model, or several.

    Returns:
        The models.
    """
    if fitted is None:
        return ()
    several: tuple[Any, ...] = tuple(fitted) if isinstance(fitted, list | tuple) else (fitted,)
    for model in several:
        if not isinstance(model, FittedModel | BeliefModel):
            raise InputError(
                f"nbf.compare takes a model of nbf.fit, a belief model, several of them, or None; got {model!r:.60}."
            )
    return several


def check_call_cost(cost: object) -> float:
    """Raise unless a cost is a finite number of 0 or more.

    Args:
        cost: Microseconds.

    Returns:
        The same as a float.
    """
    if isinstance(cost, bool) or not isinstance(cost, int | float) or not (math.isfinite(cost) and cost >= 0):
        raise InputError(f"The cost of a call is a number of microseconds, 0 or more; got call_cost={cost!r}.")
    return float(cost)
