"""Train the models of the playground's problems that are shipped: `python -m nbf.play.training triangulation lake`.

Each takes a few minutes on one core, and writes `NAME.safetensors` into the folder that `--out` names.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from nbf.filters.point_mass import PointMassFilter
from nbf.fitting.fit import fit
from nbf.fitting.fitted import FittedModel
from nbf.models.enumerated import EnumeratedDecoderConfig
from nbf.play.problems.lake import Crossings
from nbf.play.problems.triangulation import CELLS, Wanderings

LAKE_WIDTH = 80
"""Of the decoder of the lake: small enough to be shipped."""
WALL_BAND = 0.5
"""As in the paper's Triangulation: in training, atoms on the walls are widened to a band of this width."""


def trained(name: str, steps: int) -> FittedModel:
    """Train the model of a problem.

    Args:
        name: triangulation or lake.
        steps: Of training.

    Returns:
        The model with what was measured of it.
    """
    if name == "lake":
        return fit(Crossings(), horizon=40, steps=steps, trial=0, decoder=EnumeratedDecoderConfig(width=LAKE_WIDTH))
    teacher = PointMassFilter(CELLS)
    return fit(Wanderings(), horizon=24, steps=steps, teacher=teacher, wall_band=WALL_BAND, trial=0)


STEPS = {"triangulation": 5000, "lake": 3000}


def main() -> None:
    """Train what the command line names."""
    parser = argparse.ArgumentParser(prog="python -m nbf.play.training", description=__doc__)
    parser.add_argument("names", nargs="+", choices=tuple(STEPS))
    parser.add_argument("--out", type=Path, default=Path("src/nbf/files"))
    parser.add_argument("--steps", type=int, help="by default those of the shipped models")
    options = parser.parse_args()
    for name in options.names:
        fitted = trained(name, options.steps or STEPS[name])
        fitted.save(options.out / f"{name}.safetensors")
        print(fitted)


if __name__ == "__main__":
    main()
