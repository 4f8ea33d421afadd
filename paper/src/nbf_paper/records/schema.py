"""The schema of records: one measured number, and the run that made it."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import math
import operator
import platform
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any, Literal

from nbf.errors import InputError
from nbf_paper.records.provenance import code_version, utc_now

ALL: Literal["all"] = "all"
"""The step of a record that is the mean over the steps."""
PACKAGES = ("jax", "jaxlib", "equinox", "optax", "numpy", "neural-bayesian-filtering")
"""The packages whose versions a run records."""
DIGITS = 7
"""Significant digits that a record keeps: those of float32."""

Row = tuple[str, str, int]
"""A filter, its arm and its number of particles: a row of a table."""


class RecordError(InputError):
    """A record, or a report made from records, cannot be used; the message says what to do."""


@dataclass(frozen=True)
class Record:
    """One measured number. Its fields are the columns of `records.csv`, in that order."""

    experiment: str
    config: str
    """As the paper names it, for example `8-2D-random`."""
    filter: str
    """exact, pf, nbf, approx ..."""
    arm: str
    """The model or variant, for example `faithful`; empty where there is none."""
    particles: int
    """0 where there are none."""
    calls: int
    """Simulator calls per update."""
    seed: int
    """The training seed."""
    step: int | Literal["all"]
    metric: str
    value: float
    se: float | None
    """Standard error over episodes; None (an empty cell) where there is none."""
    episodes: int

    def __post_init__(self) -> None:
        for name in ("experiment", "config", "filter", "arm", "metric"):
            text = getattr(self, name)
            if not isinstance(text, str) or text != text.strip() or _commands(text):
                raise RecordError(
                    f"The {name} of a record is one line of text without outer blanks and control characters; "
                    f"got {text!r}."
                )
            if not text and name != "arm":
                raise RecordError(f"The {name} of a record is empty.")
        for name in ("particles", "calls", "seed", "step", "episodes"):
            value = getattr(self, name)
            if (type(value) is not int or value < 0) and (name, value) != ("step", ALL):
                object.__setattr__(self, name, _count(name, value))
        object.__setattr__(self, "value", _finite("value", self.value))
        if self.se is not None:
            object.__setattr__(self, "se", _finite("se", self.se))
            if self.se < 0:
                raise RecordError(f"The se of a record is a standard error, 0 or more; got {self.se}.")

    @property
    def row(self) -> Row:
        """The filter, its arm and its number of particles."""
        return (self.filter, self.arm, self.particles)

    @property
    def key(self) -> tuple[str | int, ...]:
        """Unique in a file: a new record replaces an old one with the same key."""
        return (*self.group, self.step, self.metric)

    @property
    def group(self) -> tuple[str | int, ...]:
        """The series that a record belongs to: one filter, measured for one training seed."""
        return (self.experiment, self.config, self.filter, self.arm, self.particles, self.seed)


COLUMNS = tuple(f.name for f in dataclasses.fields(Record))
"""The header of `records.csv`."""


def record_order(record: Record) -> tuple[Any, ...]:
    """Sort key of records, in the order of `records.csv`."""
    step = math.inf if record.step == ALL else record.step
    return (*record.group, record.metric, step)


@functools.lru_cache(maxsize=4096)  # a file has few texts, each in thousands of records
def _commands(text: str) -> bool:
    """Whether a text holds characters that a terminal obeys instead of showing them, or ends of lines."""
    return any(unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp") for letter in text)


def _count(name: str, value: Any) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise RecordError(f"The {name} of a record is a whole number; got {value!r}.") from None
    if number < 0:
        raise RecordError(f"The {name} of a record is 0 or more; got {number}.")
    return number


def _finite(name: str, value: Any) -> float:
    if not math.isfinite(value):
        raise RecordError(f"The {name} of a record is a finite number; got {value!r}.")
    return float(f"{float(value):.{DIGITS}g}")


def package_versions() -> dict[str, str]:
    """The versions of Python and of each of `PACKAGES` that is installed."""
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def run_key(label: str, config: Mapping[str, Any]) -> str:
    """The name of a run: a label and a digest of every setting, so that other settings are another run."""
    digest = hashlib.sha256(to_json(config, indent=None).encode()).hexdigest()[:12]
    return f"{label}/{digest}"


@dataclass(frozen=True)
class Run:
    """How some records were made. `key` comes from `run_key`; a run replaces an earlier one with its key."""

    key: str
    seed: int
    command: str
    seconds: float
    """Wall time."""
    config: Mapping[str, Any]
    """Every setting; anything that JSON can hold."""
    versions: Mapping[str, str] = field(default_factory=package_versions)
    made: tuple[str, ...] = ()
    """Its series that no later run has replaced, as `config/filter/arm/particles/seed`; `add` fills them in."""
    commit: str | None = field(default_factory=lambda: code_version().commit)
    """Commit of the code; None if it is unknown, as in runs from before it was recorded."""
    clean: bool | None = field(default_factory=lambda: code_version().clean)
    """Whether the code was as committed."""
    date: str | None = field(default_factory=utc_now)
    """When it ended, in UTC: `2026-01-31T12:00:00Z`."""


def to_json(value: Any, indent: int | None) -> str:
    """JSON with sorted keys; raises `RecordError` for what JSON cannot hold."""
    try:
        return json.dumps(value, indent=indent, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise RecordError(f"The config of a run holds something that JSON cannot: {error}.") from None
