"""Neural Bayesian Filtering: track a belief with an embedding, a simulator and a policy.

    import nbf
    model = nbf.load_model("model.safetensors")
    tracker = nbf.NeuralBayesianFilter(model, num_particles=16)

Names are loaded when first used, so that reading records or drawing figures needs no JAX.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOMES = {
    "nbf.contracts": (
        "Belief", "BeliefModel", "BeliefSource", "Enumerable", "Environment", "Family", "Filter", "FilterInfo",
        "InputError", "StateSpace", "Stencil",
    ),
    "nbf.spaces": ("Box", "Lattice", "Tokens"),
    "nbf.environments.functional": ("One", "environment"),
    "nbf.environments.linear_gaussian": ("LinearGaussian",),
    "nbf.environments.matrices": ("FiniteEnvironment", "from_matrices"),
    "nbf.environments.gridworld": ("GoalPolicy", "Gridworld", "RandomGridworlds", "gridworld_family"),
    "nbf.environments.goofspiel": ("Goofspiel", "GoofspielFamily", "LargeGoofspiel"),
    "nbf.environments.goofspiel_game": ("CardPolicy", "GoofspielGame", "UniformPolicy"),
    "nbf.beliefs.sources": ("ExactPosteriors", "rollout"),
    "nbf.beliefs.gaussian": ("GaussianBelief",),
    "nbf.beliefs.particles": ("ParticleBelief",),
    "nbf.beliefs.categorical": ("CategoricalBelief",),
    "nbf.models.belief_model": (
        "BeliefEmbeddingModel", "BoxConfig", "EnumeratedConfig", "FlowConfig", "LatticeConfig", "ModelConfig",
        "TokensConfig",
    ),
    "nbf.models.autoregressive": ("AutoregressiveConfig",),
    "nbf.models.dequantization": ("DequantizedFlowConfig",),
    "nbf.models.enumerated": ("EnumeratedDecoderConfig",),
    "nbf.models.flow": ("CouplingFlowConfig",),
    "nbf.models.flow_matching": ("FlowMatchingConfig",),
    "nbf.models.mixture": ("MixtureConfig",),
    "nbf.models.set_encoder": ("MeanConfig",),
    "nbf.models.recurrent": ("RecurrentConfig",),
    "nbf.models.attention": ("AttentionConfig",),
    "nbf.models.tabular": ("TabularModel",),
    "nbf.filters.approximate": ("ApproxBeliefs",),
    "nbf.filters.branching": ("BranchingFilter",),
    "nbf.filters.exact": ("ExactFilter",),
    "nbf.filters.fine_tuned": ("FineTunedFilter",),
    "nbf.filters.recurrent": ("RecurrentFilter",),
    "nbf.filters.episodes": ("EpisodePosteriors",),
    "nbf.filters.gaussian": (
        "CubatureKalmanFilter", "EnsembleKalmanFilter", "ExtendedKalmanFilter", "KalmanFilter", "UnscentedKalmanFilter",
    ),
    "nbf.beliefs.modelled": ("ModelBelief",),
    "nbf.filters.neural": ("NeuralBayesianFilter",),
    "nbf.filters.particle": ("ParticleFilter",),
    "nbf.filters.prefixes": ("PrefixFilter",),
    "nbf.filters.run": ("run",),
    "nbf.filters.point_mass": ("PointMassFilter",),
    "nbf.filters.posteriors": ("FilterPosteriors",),
    "nbf.filters.surprise": ("Surprise", "SurpriseState"),
    "nbf.evaluation.calibration": ("Calibration", "calibrate"),
    "nbf.evaluation.divergence": ("jensen_shannon", "state_probabilities"),
    "nbf.shipped": ("load_model", "save_model", "shipped_model"),
    "nbf.shipped.states": ("load_state", "save_state"),
    "nbf.training.fit": ("FitConfig",),
    "nbf.fitting": ("FittedModel", "fit", "train"),
}  # fmt: skip
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
__all__ = sorted(_HOME_OF)  # pyright: ignore[reportUnsupportedDunderAll]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name == "testing":
            return importlib.import_module("nbf.testing")
        if name not in _HOME_OF:
            raise AttributeError(f"module 'nbf' has no attribute {name!r}; it offers {', '.join(__all__)}")
        return getattr(importlib.import_module(_HOME_OF[name]), name)

    def __dir__() -> list[str]:
        return __all__
