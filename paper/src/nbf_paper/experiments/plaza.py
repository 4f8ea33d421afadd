"""The recordings of Plaza: the filters of the zoo on a real robot, with a model that has only seen the simulator."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import jax

from nbf import prng
from nbf_paper.experiments.zoo import ZooJob
from nbf_paper.experiments.zoo_job import Episodes
from nbf_paper.experiments.zoo_scores import Track, with_truth
from nbf_paper.zoo import plaza
from nbf_paper.zoo.plaza_recordings import check_site, recordings
from nbf_paper.zoo.problem import Problem


@dataclass(frozen=True)
class PlazaJob(ZooJob):
    """One site and seed. Sites share the model of a seed: it is trained once, on random beacons and drives."""

    experiment: ClassVar[str] = "plaza"

    def __post_init__(self) -> None:
        check_site(self.problem)

    def check(self, runs: Path) -> None:
        recordings(self.problem)
        super().check(runs)

    @property
    def asked(self) -> Problem:
        return plaza.problem()

    def notes(self) -> dict[str, Any]:
        return {"horizon": plaza.HORIZON, "reference": self.asked.accuracy}

    def episodes_of(self, asked: Problem, samples: int, horizon: int) -> Episodes:
        """The recorded ones, from the first on."""
        found = recordings(self.problem)
        tracks = Track(found.environment, found.drives, found.readings, found.states, found.readings, changing=True)
        tracks = jax.tree.map(lambda leaf: leaf[: self.evaluated], tracks)
        keys = jax.random.split(prng.stream(self.seed, "plaza", self.problem), len(tracks.states))
        return Episodes(keys, with_truth(asked.reference, samples, keys, tracks), samples)
