"""Which proposal and correction a filter takes where none is named: by static facts of environment and model alone."""

from __future__ import annotations

from nbf.capabilities import KnownTransitions, LookAhead, MeanFeatures, StateEmission
from nbf.capability import capability
from nbf.contracts import BeliefModel, Environment
from nbf.errors import InputError
from nbf.filters.neural.branch import BranchProposal
from nbf.filters.neural.correction import Correction, MomentMatching, NoCorrection
from nbf.filters.neural.even import EvenProposal
from nbf.filters.neural.look_ahead import LookAheadProposal
from nbf.filters.neural.proposal import Proposal
from nbf.filters.neural.regenerating import RegeneratingProposal
from nbf.filters.neural.trust import Trust
from nbf.filters.regeneration import KernelSmoother

UNMEASURED = Trust()
"""In a model that nothing was measured of."""


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
        Branches where their probabilities are known and particles suffice, else look-ahead where there is one, else
        regeneration where an observation depends on the new state alone, else even draws.
    """
    known = capability(environment, KnownTransitions)
    if known is not None and known.num_branches <= num_particles:
        return BranchProposal(trust.carry)
    if capability(environment, LookAhead) is not None:
        return LookAheadProposal()
    if capability(environment, StateEmission) is None:
        return EvenProposal()
    return RegeneratingProposal(kernel=KernelSmoother(trust.kernel_scale), model_share=trust.model_share)


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
    num_particles: int, proposal: Proposal, correction: Correction, environment: Environment, *, picked: bool
) -> str:
    """Say what a filter is made of, and why, for a reader.

    Args:
        num_particles: Of the filter.
        proposal: That is used.
        correction: That is used.
        environment: For which.
        picked: Whether the proposal is `default_proposal`'s.

    Returns:
        Three lines.
    """
    why = _reason(proposal, type(environment).__name__, num_particles) if picked else "as asked"
    return f"{num_particles} particles\n  proposal: {proposal} ({why})\n  correction: {correction}"


def _reason(proposal: Proposal, name: str, num_particles: int) -> str:
    """Why a proposal was picked for an environment of that name."""
    if isinstance(proposal, BranchProposal):
        return f"{name} has KnownTransitions, so the likeliest branches are followed"
    if isinstance(proposal, LookAheadProposal):
        return f"{name} has LookAhead, so it selects which of {proposal.draws(num_particles)} draws are simulated"
    if isinstance(proposal, RegeneratingProposal):
        return f"{name} has StateEmission, so particles are carried, and drawn anew without simulation when few fit"
    return f"{name} has neither LookAhead nor StateEmission, nor KnownTransitions of few enough branches"
