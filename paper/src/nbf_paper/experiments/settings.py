"""Stable names of the library's settings in run keys.

A run key is a digest of its job's settings (`nbf_paper.records.run_key`), so every name in them is part of a file
format. The names are written out here, and in the `settings` of our own configs, as literal strings: a field or a class
may be renamed without a committed run losing its key. A new field of a config enters the settings only where it
differs from the value that earlier runs had.
"""

from __future__ import annotations

from typing import Any

from nbf.models.autoregressive import AutoregressiveConfig
from nbf.models.belief_model import (
    BoxConfig,
    EnumeratedConfig,
    FlowConfig,
    LatticeConfig,
    ModelConfig,
    TokensConfig,
)
from nbf.models.dequantization import DequantizedFlowConfig
from nbf.models.enumerated import EnumeratedDecoderConfig
from nbf.models.flow import CouplingFlowConfig
from nbf.models.flow_matching import FlowMatchingConfig
from nbf.models.kernel import BoxKernelConfig, LatticeKernelConfig
from nbf.models.mixture import MixtureConfig
from nbf.models.recurrent import RecurrentConfig
from nbf.models.set_encoder import MeanConfig
from nbf.training.config import FitConfig

Settings = dict[str, Any]
"""Literal names and plain values, as JSON holds them."""


def training_settings(config: FitConfig) -> Settings:
    """The settings of a training."""
    later = {
        "random_sets": (config.random_sets, False),
        "schedule": (config.schedule, "constant"),
        "patience": (config.patience, 0),
    }
    return {
        "steps": config.steps,
        "batch": config.batch,
        "samples": config.samples,
        "optimizer": config.optimizer,
        "learning_rate": config.learning_rate,
        **{name: value for name, (value, before) in later.items() if value != before},
    }


def model_settings(config: Any) -> Settings:
    """The settings of a belief model, from any of its configs that the experiments use."""
    match config:
        case ModelConfig():
            return {
                "space": _space(config.space),
                "decoder": _decoder(config.decoder),
                "encoder": _encoder(config.encoder),
                "embedding": config.embedding,
                "context": config.context,
            }
        case FlowConfig():
            return {
                "shape": config.shape,
                "embedding": config.embedding,
                "encoder_width": config.encoder_width,
                "encoder_depth": config.encoder_depth,
                "noise_width": config.noise_width,
                "noise_depth": config.noise_depth,
                "flow_width": config.flow_width,
                "flow_depth": config.flow_depth,
                "flow_layers": config.flow_layers,
                "quadrature": config.quadrature,
            }
        case EnumeratedConfig():
            return {
                "shape": config.shape,
                "embedding": config.embedding,
                "encoder_width": config.encoder_width,
                "encoder_depth": config.encoder_depth,
                "decoder_width": config.decoder_width,
                "decoder_depth": config.decoder_depth,
            }
    return _kernel(config)


def _kernel(config: Any) -> Settings:
    match config:
        case LatticeKernelConfig():
            return {
                "shape": config.shape,
                "landmarks": config.landmarks,
                "bandwidth": config.bandwidth,
                "ridge": config.ridge,
                "iterations": config.iterations,
            }
        case BoxKernelConfig():
            return {
                "low": config.low,
                "high": config.high,
                "bounded": config.bounded,
                "landmarks": config.landmarks,
                "bandwidth": config.bandwidth,
                "candidates": config.candidates,
                "herded": config.herded,
                "smoothing": config.smoothing,
            }
    raise _unnamed(config)


def _space(config: Any) -> Settings:
    match config:
        case BoxConfig():
            return {"low": config.low, "high": config.high, "bounded": config.bounded}
        case LatticeConfig():
            return {"shape": config.shape}
        case TokensConfig():
            return {"length": config.length, "categories": config.categories}
    raise _unnamed(config)


def _encoder(config: Any) -> Settings:
    match config:
        case MeanConfig():
            return {"width": config.width, "depth": config.depth}
        case RecurrentConfig():
            return {
                "symbols": config.symbols,
                "context": config.context,
                "width": config.width,
                "depth": config.depth,
                "head_width": config.head_width,
                "head_depth": config.head_depth,
            }
    raise _unnamed(config)


def _decoder(config: Any) -> Settings:
    match config:
        case AutoregressiveConfig() | EnumeratedDecoderConfig():
            return {"width": config.width, "depth": config.depth}
        case MixtureConfig():
            return {"components": config.components, "width": config.width, "depth": config.depth}
        case CouplingFlowConfig():
            return {
                "transform": config.transform,
                "base": config.base,
                "layers": config.layers,
                "width": config.width,
                "depth": config.depth,
                "bins": config.bins,
                "activation": config.activation,
            }
        case DequantizedFlowConfig():
            return {
                "transform": config.transform,
                "base": config.base,
                "noise": config.noise,
                "layers": config.layers,
                "width": config.width,
                "depth": config.depth,
                "noise_width": config.noise_width,
                "noise_depth": config.noise_depth,
                "bins": config.bins,
                "quadrature": config.quadrature,
                "importance_samples": config.importance_samples,
                **({} if config.noise_conditioned else {"noise_conditioned": False}),
            }
        case FlowMatchingConfig():
            return {
                "coupling": config.coupling,
                "ot_group": config.ot_group,
                "width": config.width,
                "depth": config.depth,
                "solver": config.solver,
                "steps": config.steps,
                "rtol": config.rtol,
                "atol": config.atol,
            }
    raise _unnamed(config)


def _unnamed(config: Any) -> TypeError:
    return TypeError(f"{type(config).__name__} has no stable names in run keys yet: add them to {__name__}.")
