"""Neural Bayesian Filtering: Algorithm 1 of the paper and its variants."""

from nbf.filters.neural.filter import NeuralBayesianFilter, NeuralState

__all__ = ["NeuralBayesianFilter", "NeuralState"]
