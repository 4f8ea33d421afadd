"""Neural Bayesian Filtering: Algorithm 1 of the paper, its proposals and its corrections."""

from nbf.filters.neural.branch import BranchProposal, CarryRule
from nbf.filters.neural.correction import Correction, NoCorrection
from nbf.filters.neural.default import default_correction, default_proposal
from nbf.filters.neural.even import EvenProposal
from nbf.filters.neural.filter import NeuralBayesianFilter
from nbf.filters.neural.independent import IndependentProposal
from nbf.filters.neural.interpolating import InterpolatingProposal
from nbf.filters.neural.look_ahead import LookAheadProposal
from nbf.filters.neural.moment_matching import MomentMatching
from nbf.filters.neural.proposal import Prior, Proposal, Proposed
from nbf.filters.neural.regenerating import RegeneratingProposal
from nbf.filters.neural.state import NeuralState
from nbf.filters.neural.trust import Trust

__all__ = [
    "BranchProposal",
    "CarryRule",
    "Correction",
    "EvenProposal",
    "IndependentProposal",
    "InterpolatingProposal",
    "LookAheadProposal",
    "MomentMatching",
    "NeuralBayesianFilter",
    "NeuralState",
    "NoCorrection",
    "Prior",
    "Proposal",
    "Proposed",
    "RegeneratingProposal",
    "Trust",
    "default_correction",
    "default_proposal",
]
