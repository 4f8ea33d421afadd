"""What the package `particles` finds on two non-linear systems: the reference of tests/filters/test_second_opinion.py.

    .peers/particles/bin/python -m benchmarks.peers.second_opinion

Growth (Gordon, Salmond, Smith 1993): x_t ~ N(x/2 + 25x/(1 + x²) + 8 cos(1.2 t), 10), y_t ~ N(x_t²/20, 1).
Stochastic volatility: x_t ~ N(μ + ρ (x - μ), σ²), y_t ~ N(0, exp(x_t)), started in its stationary law.

The data are drawn by the package too, and are in the file that is written, with the estimates of each run. It needs
NumPy below 2, where nbf needs 2 or above, so it is no dependency: the numbers are kept instead.
"""

# The package is in an environment of its own (`installed.py`).
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import particles
from particles import distributions as dists
from particles import state_space_models as ssms
from particles.collectors import Moments

FILE = Path(__file__).resolve().parents[2] / "tests" / "data" / "second-opinion.json"
STEPS, PARTICLES, RUNS, SEED = 20, 100_000, 40, 2026
GROWTH = {"start": 2.0, "motion": 10.0**0.5, "sensor": 1.0}
VOLATILITY = {"mu": -1.0, "rho": 0.9, "sigma": 0.4}


class Growth(ssms.StateSpaceModel):
    def PX0(self):  # noqa: N802
        return dists.Normal(scale=self.start)

    def PX(self, t, xp):  # noqa: N802
        return dists.Normal(loc=xp / 2 + 25 * xp / (1 + xp**2) + 8 * np.cos(1.2 * t), scale=self.motion)

    def PY(self, t, xp, x):  # noqa: N802
        return dists.Normal(loc=x**2 / 20, scale=self.sensor)


def opinion(model: ssms.StateSpaceModel, parameters: dict[str, float]) -> dict[str, Any]:
    """Data of a model, and of every run the mean of x_t and the log-evidence of y_0:t after each step."""
    _, data = model.simulate(STEPS)
    observations = [round(float(np.squeeze(y)), 4) for y in data]
    means, log_evidence = [], []
    for _ in range(RUNS):
        filter = particles.SMC(
            fk=ssms.Bootstrap(ssm=model, data=np.asarray(observations)), N=PARTICLES, collect=[Moments()]
        )
        filter.run()
        means.append([round(float(moments["mean"]), 5) for moments in filter.summaries.moments])
        log_evidence.append([round(float(total), 5) for total in filter.summaries.logLts])
    return {"parameters": parameters, "observations": observations, "means": means, "log_evidence": log_evidence}


def main() -> None:
    np.random.seed(SEED)  # noqa: NPY002 - the generator that the package draws from
    found = {
        "growth": opinion(Growth(**GROWTH), GROWTH),
        "volatility": opinion(ssms.StochVol(**VOLATILITY), VOLATILITY),
    }
    versions = {name: metadata.version(name) for name in ("particles", "numpy")}
    FILE.write_text(json.dumps({"versions": versions, "seed": SEED, "particles": PARTICLES, **found}) + "\n")


if __name__ == "__main__":
    main()
