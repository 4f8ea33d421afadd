"""What a job is: one unit of work that `nbf-paper reproduce` does once and records. Never imports jax."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

from nbf.files.atomic import check_writable, write_atomically
from nbf_paper.experiments import demands
from nbf_paper.experiments.demands import Demand, Size
from nbf_paper.pictures import kept_pictures
from nbf_paper.records import Record, Run, add, completed, run_key


@runtime_checkable
class Counter(Protocol):
    """Where a job reports its progress."""

    def describe(self, text: str) -> None:
        """Say what is being done."""
        ...

    def advance(self, done: int) -> None:
        """Count so many more episodes, beliefs or updates."""
        ...


@runtime_checkable
class Training(Protocol):
    """The training of a job's model; see `nbf_paper.experiments.training_runs.TrainingRun`."""

    def train(self) -> Path:
        """Train, or resume a training that was stopped; returns the path of the model."""
        ...

    def check_same(self) -> None:
        """Raise if there is a model already that was trained with other settings."""
        ...

    def timing(self) -> tuple[float, list[float]]:
        """Seconds of the finished training, and its loss curve."""
        ...


@dataclass(frozen=True)
class Measured:
    """What a job has found, wherever it ran; to be recorded."""

    key: str
    """Of the run."""
    records: list[Record]
    config: dict[str, Any]
    """For `runs.json`."""
    seconds: float
    pictures: dict[str, bytes]
    """Files of figures, by name."""


class Job(ABC):
    """One configuration, arm and seed of an experiment: trained if it has a model of its own, measured, recorded.

    Subclasses are frozen dataclasses.
    """

    seed: int
    """The training seed."""
    timed: ClassVar[bool] = False
    """Whether the numbers are times: such a job needs the machine for itself."""

    @property
    @abstractmethod
    def title(self) -> str:
        """The job as progress names it."""

    @property
    @abstractmethod
    def label(self) -> str:
        """The readable part of the run key."""

    @property
    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Everything that the numbers depend on: literal names and plain values, which the run key digests."""

    @property
    @abstractmethod
    def evaluated(self) -> int:
        """How many episodes, beliefs or updates of each filter the progress counts."""

    @abstractmethod
    def measure(self, results: Path, runs: Path, bar: Counter) -> list[Record]:
        """Do the work. `results` is the experiment's folder of records, `runs` the folder of trainings."""

    def training_run(self, runs: Path) -> Training | None:
        """The training of the job's model; None if it has no model of its own."""
        return None

    def check(self, runs: Path) -> None:
        """Raise `InputError` if the job cannot run, or if its model was trained with other settings."""
        training = self.training_run(runs)
        if training is not None:
            training.check_same()

    def sizes(self) -> list[Size]:
        """The amounts that the job's work grows with; by default its episodes and gradient steps."""
        steps = _steps(self.settings)
        trained = [] if steps is None else [Size("--steps", steps, demands.steps)]
        return [Size("--episodes", self.evaluated, demands.episodes), *trained]

    def check_size(self) -> Demand:
        """What the job takes; raises `InputError` if this machine cannot do it."""
        return sum((demands.require(size) for size in self.sizes()), Demand())

    def settings_in(self, results: Path) -> dict[str, Any]:
        """The settings, with those that depend on what is recorded already."""
        return self.settings

    def notes(self) -> dict[str, Any]:
        """What is recorded beside the settings, and is not part of the run key."""
        return {}

    @property
    def key(self) -> str:
        """The name of this run in `runs.json`."""
        return run_key(self.label, self.settings)

    def is_recorded(self, results: Path) -> bool:
        """Whether a folder holds the records of this job."""
        return completed(results, run_key(self.label, self.settings_in(results)))

    def run(self, results: Path, runs: Path, *, command: str, bar: Counter) -> bool:
        """Do what is not recorded yet; returns whether there was anything to do."""
        if self.is_recorded(results):
            return False
        check_writable(results)
        self.record(results, self.work(results, runs, bar), command=command)
        return True

    def work(self, results: Path, runs: Path, bar: Counter) -> Measured:
        """Train and measure, without writing to the folder of the records. A training that was stopped is resumed."""
        settings, training = self.settings_in(results), self.training_run(runs)
        if training is not None:
            training.train()
        start = time.monotonic()
        with kept_pictures() as pictures:
            records = self.measure(results, runs, bar)
        total = seconds = round(time.monotonic() - start, 1)
        config: dict[str, Any] = {**settings, **self.notes(), "seconds": seconds}
        if training is not None:
            trained, curve = training.timing()
            total += trained
            config |= {"seconds": {"training": trained, "evaluation": seconds}, "loss_curve": curve}
        return Measured(run_key(self.label, settings), records, config, total, pictures)

    def record(self, results: Path, measured: Measured, *, command: str) -> None:
        """Write what was measured: pictures first, then records and run together."""
        for name, content in measured.pictures.items():
            write_atomically(results / name, content)
        run = Run(measured.key, self.seed, command, measured.seconds, measured.config)
        add(results, measured.records, run)


def _steps(settings: dict[str, Any]) -> int | None:
    """The gradient steps among a job's settings."""
    training = settings.get("training")
    return training.get("steps") if isinstance(training, dict) else settings.get("steps")
