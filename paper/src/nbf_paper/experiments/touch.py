"""Find an object by touch (`nbf_paper.zoo.touch`): what is run and recorded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from nbf_paper.experiments.simulator_job import SimulatorJob
from nbf_paper.experiments.zoo import ZooEvaluation
from nbf_paper.names import TOUCH
from nbf_paper.zoo import touch
from nbf_paper.zoo.problem import Problem


@dataclass(frozen=True)
class TouchJob(SimulatorJob):
    """A model is trained on random shapes and plans, and every filter is scored on others."""

    experiment: ClassVar[str] = "touch"
    episode_seconds: ClassVar[float] = 120.0
    problem: str = TOUCH
    evaluation: ZooEvaluation = field(
        default_factory=lambda: ZooEvaluation(
            episodes=24, particle_filters=(32, 128, 512, 1024, 4096), regularized_filters=(32, 128, 512),
            neural_filters=(32, 128, 512), branching_filters=(),
        )
    )  # fmt: skip
    reference: int = touch.PARTICLES

    @property
    def asked(self) -> Problem:
        return touch.problem(self.reference)
