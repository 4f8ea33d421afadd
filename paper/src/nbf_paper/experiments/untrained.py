"""Arms of Gridworld and Triangulation without training: the kernel mean embedding, with as many dimensions as the
learned embeddings, and classical filters that the paper's table does not have. They are scored on the same episodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nbf import prng
from nbf.errors import InputError
from nbf.filters.gaussian import CubatureKalmanFilter, EnsembleKalmanFilter
from nbf.filters.linearization import import_cuthbertlib
from nbf.models.kernel import BoxKernelConfig, LatticeKernelConfig
from nbf_paper.config import GridworldConfig, TriangulationConfig
from nbf_paper.experiments import gridworld, triangulation
from nbf_paper.experiments.demands import Size
from nbf_paper.experiments.job import Counter, Job
from nbf_paper.experiments.rows import FilterRow
from nbf_paper.experiments.settings import model_settings
from nbf_paper.records import Record

KERNEL, CLASSICAL = "kernel", "classical"
ENSEMBLES = (32, 64, 256, 1024)
"""Members of the ensemble Kalman filters."""


def gridworld_model(config: GridworldConfig) -> LatticeKernelConfig:
    """The kernel mean embedding of a grid's beliefs."""
    return LatticeKernelConfig(config.shape)


def triangulation_model(config: TriangulationConfig) -> BoxKernelConfig:
    """The kernel mean embedding of the plane's beliefs."""
    space = config.family().space
    return BoxKernelConfig(space.low, space.high, space.bounded)


@dataclass(frozen=True)
class GridworldKernelJob(Job):
    """The kernel mean embedding on the episodes of one seed."""

    config: GridworldConfig
    seed: int = 0
    evaluation: gridworld.GridworldEvaluation = field(default_factory=gridworld.GridworldEvaluation)

    @property
    def evaluated(self) -> int:
        return self.evaluation.episodes

    @property
    def title(self) -> str:
        return f"{self.config.name} {KERNEL} seed {self.seed}"

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "environment": self.config.settings, "arm": KERNEL, "seed": self.seed,
            "model": model_settings(gridworld_model(self.config)), "evaluation": self.evaluation.settings,
        }  # fmt: skip

    @property
    def label(self) -> str:
        return f"{self.config.name}/{KERNEL}/{self.seed}"

    def sizes(self) -> list[Size]:
        return gridworld.sizes_of(self.config, self.evaluation.episodes, None)

    def measure(self, results: Path, runs: Path, bar: Counter) -> list[Record]:
        model = gridworld_model(self.config).build(prng.stream(self.seed, "untrained"))
        return gridworld.evaluate(self.config, KERNEL, self.seed, model, self.evaluation, bar)


@dataclass(frozen=True)
class UntrainedTriangulationJob(Job):
    """The kernel mean embedding, or further classical filters, on the episodes of one seed."""

    arm: str = KERNEL
    seed: int = 0
    config: TriangulationConfig = field(default_factory=TriangulationConfig)
    evaluation: triangulation.TriangulationEvaluation = field(default_factory=triangulation.TriangulationEvaluation)

    def __post_init__(self) -> None:
        if self.arm not in (KERNEL, CLASSICAL):
            raise InputError(f"Without training there are the arms {KERNEL} and {CLASSICAL}; got {self.arm!r}.")

    @property
    def evaluated(self) -> int:
        return self.evaluation.episodes

    @property
    def title(self) -> str:
        return f"triangulation {self.arm} seed {self.seed}"

    @property
    def settings(self) -> dict[str, Any]:
        model = model_settings(triangulation_model(self.config)) if self.arm == KERNEL else list(ENSEMBLES)
        return {
            "environment": self.config.settings, "arm": self.arm, "seed": self.seed, "model": model,
            "evaluation": self.evaluation.settings,
        }  # fmt: skip

    @property
    def label(self) -> str:
        return f"triangulation/{self.arm}/{self.seed}"

    def sizes(self) -> list[Size]:
        return [triangulation.episodes_size(self.config, self.evaluation)]

    def filter_rows(self) -> list[FilterRow]:
        """The filters of the arm."""
        if self.arm == KERNEL:
            model = triangulation_model(self.config).build(prng.stream(self.seed, "untrained"))
            return triangulation.filter_rows(KERNEL, model, self.evaluation)
        rows = [FilterRow(CubatureKalmanFilter(), "ckf", "", 0, 0)]
        return rows + [FilterRow(EnsembleKalmanFilter(n), "enkf", "", n, n) for n in ENSEMBLES]

    def check(self, runs: Path) -> None:
        if self.arm == CLASSICAL:
            import_cuthbertlib()

    def measure(self, results: Path, runs: Path, bar: Counter) -> list[Record]:
        return triangulation.evaluate(self, self.filter_rows(), bar)
