"""What an experiment is: its options on the command line, the jobs they ask for, and the page of its records.

Imported before the command line knows what is asked for, hence without jax and without matplotlib: methods import the
modules that need them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from nbf.errors import InputError
from nbf_paper.experiments.job import Job
from nbf_paper.report.tables import Page


@dataclass(frozen=True)
class Amount:
    """How much is done; None is the experiment's own default."""

    seeds: Sequence[int] = (0,)
    steps: int | None = None
    """Gradient steps."""
    episodes: int | None = None
    few: bool = False
    """Score only a few of the filters: each takes seconds to compile."""

    def checked_steps(self) -> int | None:
        """The gradient steps that are asked for; raises if there are none."""
        return None if self.steps is None else at_least(1, steps=self.steps)

    def episodes_or(self, default: int, least: int = 2) -> int:
        """The episodes that are asked for, by default enough for a standard error."""
        return default if self.episodes is None else at_least(least, episodes=self.episodes)


def at_least(least: int, **option: int) -> int:
    """The value of one option of the command line; raises if it is too small."""
    ((name, value),) = option.items()
    if value < least:
        raise InputError(f"--{name} must be at least {least}; got {value}.")
    return value


@dataclass(frozen=True)
class Part:
    """Something that `nbf-paper reproduce all` runs."""

    experiment: Experiment
    seeds: int = 1
    steps: int | None = None
    """Gradient steps, where the documentation shows fewer than the paper's."""
    episodes: int | None = None
    """Episodes of an evaluation; None is the experiment's own number."""


@dataclass(frozen=True, kw_only=True)
class Experiment(ABC):
    """An experiment with its options.

    A subclass is a frozen dataclass. Its fields are the options of the command line, each with a default, and their
    docstrings are the help. Its name is the subcommand, the folder of the records and the section of the report.
    """

    name: ClassVar[str]
    quick: ClassVar[Amount] = Amount(steps=100, episodes=10)
    """How much `--quick` does."""

    @abstractmethod
    def jobs(self, amount: Amount) -> Sequence[Job]:
        """What is to be run for these options."""

    @staticmethod
    @abstractmethod
    def page(folder: Path) -> Page:
        """The tables and figures of the records in a folder."""

    @classmethod
    def parts(cls) -> tuple[Part, ...]:
        """What `nbf-paper reproduce all` runs: everything that is on record. By default, the default options."""
        return (Part(cls()),)

    @classmethod
    def quick_parts(cls) -> tuple[Part, ...]:
        """What `nbf-paper reproduce all --quick` runs: a little of everything. By default, the default options."""
        return (Part(cls()),)
