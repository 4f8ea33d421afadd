"""particles: a `StateSpaceModel`, its `Bootstrap` filter and `SMC`, iterated step by step."""

# The package is in an environment of its own (`installed.py`).
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

from __future__ import annotations

import numpy as np
import particles
from particles import distributions as dists
from particles import state_space_models as ssms

from benchmarks.peers.speed.plane import DECAY, OBSERVATIONS, Call, Loop, serve

LONG = np.tile(OBSERVATIONS, (20_000, 1))
"""More observations than any measurement has time for."""


class Plane(ssms.StateSpaceModel):
    def PX0(self):  # noqa: N802
        return dists.IndepProd(dists.Normal(), dists.Normal())

    def PX(self, t, xp):  # noqa: N802
        return dists.IndepProd(dists.Normal(loc=DECAY * xp[:, 0]), dists.Normal(loc=DECAY * xp[:, 1]))

    def PY(self, t, xp, x):  # noqa: N802
        return dists.IndepProd(dists.Normal(loc=x[:, 0]), dists.Normal(loc=x[:, 1]))


def stepped(number: int) -> Call:
    model = ssms.Bootstrap(ssm=Plane(), data=LONG)
    # ESS below n is at every step.
    filter = particles.SMC(fk=model, N=number, resampling="systematic", ESSrmin=1.0, collect="off")
    return lambda: next(filter)


if __name__ == "__main__":
    np.random.seed(0)  # noqa: NPY002 - the generator that the package draws from
    serve("particles", {"`SMC`, a Python loop": Loop(stepped)})
