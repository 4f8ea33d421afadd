"""Which proposal and correction a filter takes where none is named: by static facts of environment and model alone."""

from __future__ import annotations

from nbf.capabilities import KnownTransitions, LookAhead, MeanFeatures
from nbf.capability import capability
from nbf.contracts import BeliefModel, Environment
from nbf.filters.neural.branch import BranchProposal
from nbf.filters.neural.correction import Correction, MomentMatching, NoCorrection
from nbf.filters.neural.even import EvenProposal
from nbf.filters.neural.look_ahead import LookAheadProposal
from nbf.filters.neural.proposal import Proposal


def default_correction(model: BeliefModel) -> Correction:
    """Pick the correction for a model.

    Args:
        model: A belief model.

    Returns:
        Moment matching, where the embedding is a mean of features; else none.
    """
    return NoCorrection() if capability(model, MeanFeatures) is None else MomentMatching()


def default_proposal(environment: Environment, num_particles: int) -> Proposal:
    """Pick the proposal for an environment.

    Args:
        environment: Of the filter.
        num_particles: Of the filter.

    Returns:
        Branches where their probabilities are known and particles suffice, else look-ahead where there is one, else
        even draws.
    """
    known = capability(environment, KnownTransitions)
    if known is not None and known.num_branches <= num_particles:
        return BranchProposal()
    return EvenProposal() if capability(environment, LookAhead) is None else LookAheadProposal()


def reason(proposal: Proposal, environment: Environment) -> str:
    """Say why a proposal suits an environment, for a reader.

    Args:
        proposal: What `default_proposal` picked.
        environment: For which.

    Returns:
        One clause.
    """
    name = type(environment).__name__
    if isinstance(proposal, BranchProposal):
        return f"{name} has KnownTransitions, so the likeliest branches are followed"
    if isinstance(proposal, LookAheadProposal):
        return f"{name} has LookAhead, so it selects which of {proposal.candidates} draws are simulated"
    return f"{name} has neither LookAhead nor KnownTransitions of few enough branches"
