"""Stone Soup: `ParticlePredictor` and `ParticleUpdater` with a resampler, as in its particle filter tutorial."""

# The package is in an environment of its own (`installed.py`).
# pyright: reportMissingImports=false

from __future__ import annotations

import datetime
from collections.abc import Iterator
from functools import partial

import numpy as np
from stonesoup.models.measurement.base import MeasurementModel
from stonesoup.models.transition.linear import CombinedLinearGaussianTransitionModel, RandomWalk
from stonesoup.predictor.particle import ParticlePredictor
from stonesoup.resampler import Resampler
from stonesoup.resampler.particle import ESSResampler, SystematicResampler
from stonesoup.types.array import StateVectors
from stonesoup.types.detection import Detection
from stonesoup.types.hypothesis import SingleHypothesis
from stonesoup.types.state import ParticleState
from stonesoup.updater.particle import ParticleUpdater

from benchmarks.peers.scenario import OBSERVATIONS, PARTICLES, START, STEP, WIDTH, Step, distinct, report


class UniformNoise(MeasurementModel):
    """The package has Gaussian noise alone; this is the interface that it gives for other noise."""

    ndim_meas = 1

    def function(self, state, noise=False, **kwargs):
        return state.state_vector + (self.rvs(state.state_vector.shape[1]) if noise else 0.0)

    def rvs(self, num_samples=1, **kwargs):
        return StateVectors(np.random.uniform(-WIDTH, WIDTH, (1, num_samples)))  # noqa: NPY002

    def pdf(self, state1, state2, **kwargs):
        return np.exp(self.logpdf(state1, state2, **kwargs))

    def logpdf(self, state1, state2, **kwargs):
        near = np.abs(np.asarray(self.function(state2) - state1.state_vector, float))[0] <= WIDTH
        return np.where(near, -np.log(2 * WIDTH), -np.inf)


def run(seed: int, *, resampler: type[Resampler]) -> Iterator[Step]:
    np.random.seed(seed)  # noqa: NPY002 - the generator that the package draws from
    predictor = ParticlePredictor(CombinedLinearGaussianTransitionModel([RandomWalk(STEP**2)]))
    updater = ParticleUpdater(UniformNoise(ndim_state=1, mapping=(0,)), resampler())
    now = datetime.datetime(2026, 1, 1)
    start = StateVectors(START * np.random.randn(1, PARTICLES))  # noqa: NPY002
    posterior = ParticleState(start, weight=np.full(PARTICLES, 1.0 / PARTICLES), timestamp=now)
    for y in OBSERVATIONS:
        now += datetime.timedelta(seconds=1)
        parents = distinct(posterior.state_vector)  # resampling follows the update, and copies states
        prediction = predictor.predict(posterior, timestamp=now)
        posterior = updater.update(SingleHypothesis(prediction, Detection([[y]], timestamp=now)))
        belief = np.asarray(posterior.mean).item(), np.sqrt(posterior.covar).item()
        yield Step(*belief, None, None, parents)


if __name__ == "__main__":
    resamplers = (SystematicResampler, ESSResampler)
    report("stonesoup", {f"`{each.__name__}`": partial(run, resampler=each) for each in resamplers})
