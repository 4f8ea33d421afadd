"""Neural Bayesian Filtering: track a belief with an embedding, a simulator and a policy.

First steps, each with its own `help`:

    nbf.environment(...)                what your world is, from four functions
    nbf.testing.check_environment(...)  does it keep the contract?
    nbf.ParticleFilter(256)             a filter; `init` begins a belief, `step` updates it, `belief` reads it
    nbf.fit(family).filter(32)          trains a belief model, and makes a neural filter with it (extra `train`)
    nbf.compare(family)                 every filter that applies, and which to take
    nbf.load_model("x.safetensors")     a model of before, for nbf.NeuralBayesianFilter(model, num_particles=16)
    nbf.plot                            pictures of beliefs and episodes (extra `plot`)

`dir(nbf)` lists all names.
"""

# Names are loaded when first used: a user who draws a figure needs no JAX, one who filters needs no optimizer. What a
# type checker reads below is the one list of them.

from __future__ import annotations

import ast
import functools
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from nbf import executors as executors
    from nbf import planning as planning
    from nbf import plot as plot
    from nbf import testing as testing
    from nbf.beliefs.categorical import CategoricalBelief as CategoricalBelief
    from nbf.beliefs.gaussian import GaussianBelief as GaussianBelief
    from nbf.beliefs.lumped import LumpedBelief as LumpedBelief
    from nbf.beliefs.lumped import LumpedState as LumpedState
    from nbf.beliefs.model import ModelBelief as ModelBelief
    from nbf.beliefs.particles import ParticleBelief as ParticleBelief
    from nbf.capabilities import Enumerable as Enumerable
    from nbf.capabilities import KnownTransitions as KnownTransitions
    from nbf.capabilities import LookAhead as LookAhead
    from nbf.capabilities import StateEmission as StateEmission
    from nbf.capabilities import Stencil as Stencil
    from nbf.contracts import Belief as Belief
    from nbf.contracts import BeliefModel as BeliefModel
    from nbf.contracts import BeliefSource as BeliefSource
    from nbf.contracts import Environment as Environment
    from nbf.contracts import Family as Family
    from nbf.contracts import Filter as Filter
    from nbf.contracts import FilterInfo as FilterInfo
    from nbf.contracts import StateSpace as StateSpace
    from nbf.devices import shard as shard
    from nbf.environments.functional import One as One
    from nbf.environments.functional import environment as environment
    from nbf.environments.goofspiel import Goofspiel as Goofspiel
    from nbf.environments.goofspiel import LargeGoofspiel as LargeGoofspiel
    from nbf.environments.goofspiel_family import GoofspielFamily as GoofspielFamily
    from nbf.environments.goofspiel_game import CardPolicy as CardPolicy
    from nbf.environments.goofspiel_game import GoofspielGame as GoofspielGame
    from nbf.environments.goofspiel_game import UniformPolicy as UniformPolicy
    from nbf.environments.gridworld import GoalPolicy as GoalPolicy
    from nbf.environments.gridworld import Gridworld as Gridworld
    from nbf.environments.gridworld import RandomGridworlds as RandomGridworlds
    from nbf.environments.gridworld import gridworld_family as gridworld_family
    from nbf.environments.host import HostEnvironment as HostEnvironment
    from nbf.environments.host import host_environment as host_environment
    from nbf.environments.linear_gaussian import LinearGaussian as LinearGaussian
    from nbf.environments.listed import listed_environment as listed_environment
    from nbf.environments.matrices import FiniteEnvironment as FiniteEnvironment
    from nbf.environments.matrices import from_matrices as from_matrices
    from nbf.environments.rollout import rollout as rollout
    from nbf.errors import HostError as HostError
    from nbf.errors import InputError as InputError
    from nbf.errors import MissingExtraError as MissingExtraError
    from nbf.errors import WorkerError as WorkerError
    from nbf.evaluation.calibration import Calibration as Calibration
    from nbf.evaluation.calibration import calibrate as calibrate
    from nbf.evaluation.divergence import jensen_shannon as jensen_shannon
    from nbf.evaluation.divergence import state_probabilities as state_probabilities
    from nbf.files.shipped import load_model as load_model
    from nbf.files.shipped import save_model as save_model
    from nbf.files.shipped import shipped_model as shipped_model
    from nbf.files.states import load_state as load_state
    from nbf.files.states import save_state as save_state
    from nbf.filters.approximate import ApproxBeliefs as ApproxBeliefs
    from nbf.filters.asking import Asked as Asked
    from nbf.filters.asking import AskTell as AskTell
    from nbf.filters.branching import BranchingFilter as BranchingFilter
    from nbf.filters.exact import ExactFilter as ExactFilter
    from nbf.filters.fine_tuned import FineTunedFilter as FineTunedFilter
    from nbf.filters.gaussian import CubatureKalmanFilter as CubatureKalmanFilter
    from nbf.filters.gaussian import EnsembleKalmanFilter as EnsembleKalmanFilter
    from nbf.filters.gaussian import ExtendedKalmanFilter as ExtendedKalmanFilter
    from nbf.filters.gaussian import KalmanFilter as KalmanFilter
    from nbf.filters.gaussian import UnscentedKalmanFilter as UnscentedKalmanFilter
    from nbf.filters.lumped import LumpedFilter as LumpedFilter
    from nbf.filters.neural import BranchProposal as BranchProposal
    from nbf.filters.neural import CarryRule as CarryRule
    from nbf.filters.neural import Correction as Correction
    from nbf.filters.neural import EvenProposal as EvenProposal
    from nbf.filters.neural import IndependentProposal as IndependentProposal
    from nbf.filters.neural import LookAheadProposal as LookAheadProposal
    from nbf.filters.neural import MomentMatching as MomentMatching
    from nbf.filters.neural import NeuralBayesianFilter as NeuralBayesianFilter
    from nbf.filters.neural import NoCorrection as NoCorrection
    from nbf.filters.neural import Proposal as Proposal
    from nbf.filters.neural import RegeneratingProposal as RegeneratingProposal
    from nbf.filters.neural import Trust as Trust
    from nbf.filters.particle import ParticleFilter as ParticleFilter
    from nbf.filters.point_mass import PointMassFilter as PointMassFilter
    from nbf.filters.prediction import PredictionFilter as PredictionFilter
    from nbf.filters.prefixes import PrefixFilter as PrefixFilter
    from nbf.filters.recurrent import RecurrentFilter as RecurrentFilter
    from nbf.filters.regularized import RegularizedParticleFilter as RegularizedParticleFilter
    from nbf.filters.run import run as run
    from nbf.filters.surprise import Surprise as Surprise
    from nbf.filters.surprise import SurpriseState as SurpriseState
    from nbf.fitting.compare import compare as compare
    from nbf.fitting.comparison import Comparison as Comparison
    from nbf.fitting.fit import fit as fit
    from nbf.fitting.fit import train as train
    from nbf.fitting.fitted import FittedModel as FittedModel
    from nbf.fitting.learn import LearningStopped as LearningStopped
    from nbf.fitting.learn import Recorded as Recorded
    from nbf.fitting.learn import learn as learn
    from nbf.fitting.learning import LearnConfig as LearnConfig
    from nbf.fitting.tuning import tuned as tuned
    from nbf.models.attention import AttentionConfig as AttentionConfig
    from nbf.models.autoregressive import AutoregressiveConfig as AutoregressiveConfig
    from nbf.models.belief_model import BeliefEmbeddingModel as BeliefEmbeddingModel
    from nbf.models.belief_model import BoxConfig as BoxConfig
    from nbf.models.belief_model import EnumeratedConfig as EnumeratedConfig
    from nbf.models.belief_model import FlowConfig as FlowConfig
    from nbf.models.belief_model import LatticeConfig as LatticeConfig
    from nbf.models.belief_model import ModelConfig as ModelConfig
    from nbf.models.belief_model import TokensConfig as TokensConfig
    from nbf.models.dequantization import DequantizedFlowConfig as DequantizedFlowConfig
    from nbf.models.enumerated import EnumeratedDecoderConfig as EnumeratedDecoderConfig
    from nbf.models.flow import CouplingFlowConfig as CouplingFlowConfig
    from nbf.models.flow_matching import FlowMatchingConfig as FlowMatchingConfig
    from nbf.models.mixture import MixtureConfig as MixtureConfig
    from nbf.models.recurrent import RecurrentConfig as RecurrentConfig
    from nbf.models.set_encoder import MeanConfig as MeanConfig
    from nbf.models.tabular import TabularModel as TabularModel
    from nbf.sources.episodic import EpisodePosteriors as EpisodePosteriors
    from nbf.sources.exact import ExactPosteriors as ExactPosteriors
    from nbf.sources.filtered import FilterPosteriors as FilterPosteriors
    from nbf.sources.pool import BeliefPool as BeliefPool
    from nbf.spaces import Box as Box
    from nbf.spaces import Lattice as Lattice
    from nbf.spaces import Tokens as Tokens
    from nbf.training.config import FitConfig as FitConfig
    from nbf.training.log import TensorBoard as TensorBoard
else:

    def __getattr__(name: str) -> Any:
        """Load a public name from its home."""
        homes = _homes()
        if name not in homes:
            raise AttributeError(f"module 'nbf' has no attribute {name!r}; it offers {', '.join(__dir__())}")
        from nbf.errors import MissingExtraError, missing_extra

        try:
            home = importlib.import_module(homes[name])
        except ModuleNotFoundError as error:
            sentence = missing_extra(error, f"nbf.{name}")
            if sentence is None:
                raise
            raise MissingExtraError(sentence) from error
        found = home if homes[name] == f"nbf.{name}" else getattr(home, name)
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        """The public names."""
        return sorted([*_homes(), "__version__"])


@functools.cache
def _homes() -> dict[str, str]:
    """The module of each public name, read from the imports above, so that no list of names stands twice."""
    tree = ast.parse(Path(__file__).read_text(encoding="utf-8"))
    branch = next(node for node in tree.body if isinstance(node, ast.If))
    found = {}
    for node in branch.body:
        assert isinstance(node, ast.ImportFrom)
        for alias in node.names:
            found[alias.name] = f"nbf.{alias.name}" if node.module == "nbf" else str(node.module)
    return found
