"""What an environment, a family, a model or a space can offer beyond its contract, and what each offer buys.

Claim a capability by subclassing it, ask for it with `nbf.capability.capability(subject, kind)`; `nbf check` and
`nbf.testing.check_environment` list what an object claims.
"""

from nbf.capabilities.environments import (
    Drifting,
    Enumerable,
    GaussianDynamics,
    KnownTransitions,
    LookAhead,
    Lumpable,
    Prefixes,
    StateEmission,
    StaticState,
    Stencil,
    TransitionMatrix,
)
from nbf.capabilities.families import Episodic, ExactSource, Scheduled
from nbf.capabilities.models import EvenDraws, ListedStates, MeanFeatures, Reader, RecurrentModel
from nbf.capabilities.spaces import ContinuousSpace, DealSpace, FiniteSpace, SequenceSpace

__all__ = [
    "ContinuousSpace", "DealSpace", "Drifting", "Enumerable", "Episodic", "EvenDraws", "ExactSource", "FiniteSpace",
    "GaussianDynamics", "KnownTransitions", "ListedStates", "LookAhead", "Lumpable", "MeanFeatures", "Prefixes",
    "Reader", "RecurrentModel", "Scheduled", "SequenceSpace", "StateEmission", "StaticState", "Stencil",
    "TransitionMatrix",
]  # fmt: skip
