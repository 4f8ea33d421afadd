"""Conformance checks: does an environment, a belief model or a filter keep its contract in `nbf.contracts`?

    report = nbf.testing.check_environment(environment, policy)
    print(report)
    report.raise_if_failed()

The report names each check that fails, with the smallest case that shows it. On the command line: `nbf check
module:object`.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from nbf.contracts import BeliefModel, Environment, Family, Filter, StateSpace
from nbf.errors import InputError
from nbf.testing.environments import check_environment
from nbf.testing.families import check_family
from nbf.testing.filters import check_filter
from nbf.testing.models import check_model
from nbf.testing.report import Check, ConformanceError, ConformanceReport

__all__ = [
    "Check",
    "ConformanceError",
    "ConformanceReport",
    "check",
    "check_environment",
    "check_family",
    "check_filter",
    "check_model",
    "load",
]


def check(subject: Any) -> ConformanceReport:
    """Run the checks that fit a subject.

    Args:
        subject: An environment (its policy is then None), (environment, policy), a family (with its schedule, if it
            has one), a belief model, (model, environment or space), or (filter, environment, policy).

    Returns:
        The report.
    """
    match subject:
        case Environment():
            return check_environment(subject, None)
        case Family():
            return check_family(subject)
        case BeliefModel():
            return check_model(subject, subject.space)
        case (BeliefModel() as model, Environment() | StateSpace() as where):
            return check_model(model, where)
        case (Filter() as filter, Environment() as environment, policy):
            return check_filter(filter, environment, policy)
        case (Environment() as environment, policy):
            return check_environment(environment, policy)
    raise InputError(
        "The subject of a check must be an environment, (environment, policy), a family, a belief model, (model, "
        f"environment) or (filter, environment, policy); got {type(subject).__name__}."
    )


def load(name: str) -> Any:
    """Import the object that `module:object` names. Modules of the current folder are found as well.

    Args:
        name: The name; the object may be an attribute of another, as in `worlds:families.small`.

    Returns:
        The object.
    """
    module, colon, path = name.partition(":")
    if not module or not colon or not path:
        raise InputError(f"The subject of a check is named module:object, for example worlds:corridor; got {name!r}.")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = importlib.import_module(module)
    except Exception as error:
        raise InputError(f"Module {module!r} cannot be imported: {type(error).__name__}: {error}.") from error
    for part in path.split("."):
        if not hasattr(found, part):
            offered = [each for each in dir(found) if not each.startswith("_")]
            raise InputError(
                f"There is no {name!r}: {part!r} is not among {', '.join(offered[:20]) or 'no names at all'}."
            )
        found = getattr(found, part)
    return found
