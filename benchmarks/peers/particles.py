"""particles: a `StateSpaceModel`, its `Bootstrap` filter and `SMC`, iterated step by step."""

# The package is in an environment of its own (`installed.py`).
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import particles
from particles import distributions as dists
from particles import state_space_models as ssms
from particles.collectors import Moments

from benchmarks.peers.scenario import FIRST, OBSERVATIONS, PARTICLES, STEP, WIDTH, Step, distinct, report


class Walk(ssms.StateSpaceModel):
    def PX0(self):  # noqa: N802
        return dists.Normal(scale=FIRST)

    def PX(self, t, xp):  # noqa: N802
        return dists.Normal(loc=xp, scale=STEP)

    def PY(self, t, xp, x):  # noqa: N802
        return dists.Uniform(a=x - WIDTH, b=x + WIDTH)


def run(seed: int) -> Iterator[Step]:
    np.random.seed(seed)  # noqa: NPY002 - the generator that the package draws from
    model = ssms.Bootstrap(ssm=Walk(), data=np.asarray(OBSERVATIONS))
    filter = particles.SMC(fk=model, N=PARTICLES, collect=[Moments()])
    for _ in filter:
        moments = filter.summaries.moments[-1]
        parents = PARTICLES if filter.A is None else distinct(filter.A)
        yield Step(float(moments["mean"]), float(np.sqrt(moments["var"])), filter.wgts.ESS, filter.loglt, parents)


if __name__ == "__main__":
    report("particles", {"`SMC` of a `Bootstrap` filter, as it comes": run})
