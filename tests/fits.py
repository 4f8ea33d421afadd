"""Fitted models that were neither trained nor measured, for tests of all else."""

from __future__ import annotations

import jax
import numpy as np

from nbf.evaluation.calibration import Calibration
from nbf.fitting.fitted import FittedModel
from nbf.models.belief_model import LatticeConfig, ModelConfig
from nbf.models.enumerated import EnumeratedDecoderConfig
from nbf.models.set_encoder import MeanConfig


def no_calibration() -> Calibration:
    flat, half = np.ones((1, 2)), np.full(1, 0.5)
    return Calibration(
        beliefs=1, embed=1, held_out=1, draws=1, nll=0.0, nll_error=0.0, impossible=0.0, energy=0.0, energy_error=0.0,
        js=None, js_error=None, pit=flat, pit_band=flat, pit_p=np.ones(1), levels=half, coverage=half,
        coverage_band=half, coverage_bias_error=1.0,
    )  # fmt: skip


def untrained_on_a_line(cells: int = 5) -> FittedModel:
    """A model of a row of cells."""
    config = ModelConfig(
        LatticeConfig((cells,)), EnumeratedDecoderConfig(width=4, depth=1), MeanConfig(4, 1), embedding=2
    )
    nothing = np.zeros(0, np.float32)
    return FittedModel(
        config.build(jax.random.key(0)), config, no_calibration(), "nobody", None, 0.0, 0, 0.0, nothing, nothing
    )
