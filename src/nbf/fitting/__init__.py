"""One call from a family of environments to a trained, measured filter."""

from nbf.fitting.fit import FittedModel, fit, train

__all__ = ["FittedModel", "fit", "train"]
