"""One call from a family of environments to a trained filter with a known calibration."""

from nbf.fitting.fit import fit
from nbf.fitting.fitted import FittedModel
from nbf.training.fit import fit as train

__all__ = ["FittedModel", "fit", "train"]
