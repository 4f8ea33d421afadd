"""Which proposal and correction a filter takes where none is named: by static facts of environment and model alone."""

from __future__ import annotations

from dataclasses import fields
from typing import NamedTuple

from nbf.capabilities import KnownTransitions, LookAhead, MeanFeatures, StateEmission, StaticState
from nbf.capability import capability
from nbf.contracts import BeliefModel, Environment, StateSpace
from nbf.errors import InputError
from nbf.filters.neural.branch import BranchProposal
from nbf.filters.neural.correction import Correction, NoCorrection
from nbf.filters.neural.even import EvenProposal
from nbf.filters.neural.interpolating import InterpolatingProposal
from nbf.filters.neural.look_ahead import LookAheadProposal
from nbf.filters.neural.moment_matching import MomentMatching
from nbf.filters.neural.proposal import Proposal
from nbf.filters.neural.regenerating import RegeneratingProposal
from nbf.filters.neural.trust import Trust
from nbf.filters.regeneration import KernelSmoother

UNMEASURED = Trust()
"""In a model that nothing was measured of."""


class Picked(NamedTuple):
    """A proposal, and why it is the one that is used."""

    proposal: Proposal
    reason: str


def default_correction(model: BeliefModel) -> Correction:
    """Pick the correction for a model.

    Args:
        model: A belief model.

    Returns:
        Moment matching, where the embedding is a mean of features; else none.
    """
    return NoCorrection() if capability(model, MeanFeatures) is None else MomentMatching()


def default_proposal(environment: Environment, num_particles: int, trust: Trust = UNMEASURED) -> Proposal:
    """Pick the proposal for an environment.

    Args:
        environment: Of the filter.
        num_particles: Of the filter.
        trust: In the model.

    Returns:
        That of `picked`.
    """
    return picked(environment, num_particles, trust).proposal


def picked(environment: Environment, num_particles: int, trust: Trust = UNMEASURED) -> Picked:
    """Pick the proposal for an environment, and say why.

    Args:
        environment: Of the filter.
        num_particles: Of the filter.
        trust: In the model.

    Returns:
        Branches where their probabilities are known and particles suffice, else interpolation where the state never
        moves, else look-ahead where there is one, else regeneration where an observation depends on the new state
        alone, else even draws.
    """
    name, known = type(environment).__name__, capability(environment, KnownTransitions)
    if known is not None and known.num_branches <= num_particles:
        reason = f"{name} has KnownTransitions, so the likeliest branches are followed"
        return Picked(BranchProposal(trust.carry), reason)
    if capability(environment, StaticState) is not None:
        many = InterpolatingProposal()
        reason = f"{name} has StaticState, so {many.size(environment, num_particles)} draws are weighed by these calls"
        return Picked(many, reason)
    if capability(environment, LookAhead) is not None:
        ahead = LookAheadProposal()
        reason = f"{name} has LookAhead, so it selects which of {ahead.draws(num_particles)} draws are simulated"
        return Picked(ahead, reason)
    if capability(environment, StateEmission) is None:
        reason = f"{name} has neither LookAhead nor StateEmission nor StaticState, nor few enough branches"
        return Picked(EvenProposal(), reason)
    anew = RegeneratingProposal(kernel=KernelSmoother(trust.kernel_scale), model_share=trust.model_share)
    reason = f"{name} has StateEmission, so particles are carried, and drawn anew without simulation when few fit"
    return Picked(anew, reason)


def check_parts(proposal: object, correction: object, trust: object) -> None:
    """Raise unless the parts of a filter are parts of a filter.

    Args:
        proposal: A `Proposal`, or None.
        correction: A `Correction`, or None.
        trust: `Trust`, or None; None if a proposal is named.
    """
    if proposal is not None and trust is not None:
        raise InputError(
            "Trust belongs to the proposal that is picked by default; give its numbers to the one that you name: "
            "RegeneratingProposal(model_share=...), BranchProposal(carry=...)."
        )
    for given, kind in ((proposal, Proposal), (correction, Correction), (trust, Trust)):
        if not isinstance(given, kind | None):
            raise InputError(
                f"A filter takes a {kind.__name__} of nbf.filters.neural, or None for the default; got {given!r}."
            )


def description(
    num_particles: int, chosen: Picked, correction: Correction, space: StateSpace, trust: Trust | None
) -> str:
    """Say what a filter is made of, and why, for a reader.

    Args:
        num_particles: Of the filter.
        chosen: The proposal that is used, and why.
        correction: That is used.
        space: Of the environment.
        trust: In the model; None if the proposal was named, and has numbers of its own.

    Returns:
        Four lines.
    """
    used = () if trust is None else chosen.proposal.trusted(space)
    told = ", ".join(f"{name}={getattr(trust, name)}" for name in used) or "not used"
    unused = [field.name for field in fields(Trust) if field.name not in used] if used else []
    rest = f" (not used: {', '.join(unused)})" if unused else ""
    return (
        f"{num_particles} particles\n  proposal: {chosen.proposal} ({chosen.reason})\n  correction: {correction}\n"
        f"  trust: {told}{rest}"
    )
