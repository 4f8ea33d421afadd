"""Stone Soup: `ParticlePredictor` and `ParticleUpdater` with a resampler, as in its particle filter tutorial."""

# The package is in an environment of its own (`installed.py`).
# pyright: reportMissingImports=false

from __future__ import annotations

import datetime
import itertools

import numpy as np
from stonesoup.models.measurement.linear import LinearGaussian
from stonesoup.models.transition.linear import LinearGaussianTimeInvariantTransitionModel
from stonesoup.predictor.particle import ParticlePredictor
from stonesoup.resampler.particle import SystematicResampler
from stonesoup.types.array import StateVectors
from stonesoup.types.detection import Detection
from stonesoup.types.hypothesis import SingleHypothesis
from stonesoup.types.state import ParticleState
from stonesoup.updater.particle import ParticleUpdater

from benchmarks.peers.speed.plane import DECAY, OBSERVATIONS, Call, Loop, serve

SECOND = datetime.timedelta(seconds=1)


def stepped(number: int) -> Call:
    motion = LinearGaussianTimeInvariantTransitionModel(
        transition_matrix=DECAY * np.eye(2), covariance_matrix=np.eye(2)
    )
    sensor = LinearGaussian(ndim_state=2, mapping=(0, 1), noise_covar=np.eye(2))
    predictor, updater = ParticlePredictor(motion), ParticleUpdater(sensor, SystematicResampler())
    now = datetime.datetime(2026, 1, 1)
    start = StateVectors(np.random.randn(2, number))  # noqa: NPY002 - the generator that the package draws from
    posterior = ParticleState(start, weight=np.full(number, 1.0 / number), timestamp=now)
    turns = itertools.cycle(OBSERVATIONS[:, :, None])

    def call() -> None:
        nonlocal posterior, now
        now += SECOND
        prediction = predictor.predict(posterior, timestamp=now)
        posterior = updater.update(SingleHypothesis(prediction, Detection(next(turns), timestamp=now)))
        posterior.hypothesis = None  # which else keeps every state since the start

    return call


if __name__ == "__main__":
    np.random.seed(0)  # noqa: NPY002
    serve("stonesoup", {"`ParticleUpdater`, a Python loop": Loop(stepped)})
