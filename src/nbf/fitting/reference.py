"""The filter whose beliefs a model was trained on, as text in the model's file: a name and plain settings."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from nbf.contracts import Filter
from nbf.filters.exact import ExactFilter
from nbf.filters.particle import ParticleFilter
from nbf.filters.point_mass import PointMassFilter
from nbf.filters.prefixes import PrefixFilter
from nbf.filters.regularized import RegularizedParticleFilter

WRITTEN: dict[str, type[Filter]] = {
    kind.__name__: kind
    for kind in (ExactFilter, PrefixFilter, PointMassFilter, ParticleFilter, RegularizedParticleFilter)
}
"""The filters that a file can name: those whose settings are plain numbers and words."""
PLAIN = (bool, int, float, str)


def described(filter: Filter | None) -> dict[str, Any] | None:
    """Describe a filter for a file.

    Args:
        filter: The filter, or None.

    Returns:
        Its name and settings; None if a file cannot hold it, as one with a model or a function in it.
    """
    if filter is None or WRITTEN.get(type(filter).__name__) is not type(filter):
        return None
    settings = {each.name: getattr(filter, each.name) for each in fields(filter)}
    plain = {name: value for name, value in settings.items() if isinstance(value, PLAIN)}
    # A part with settings of its own is not written, and must be the default one.
    parts = {each.name: each.default for each in fields(filter) if each.name not in plain}
    if not all(settings[name] == default for name, default in parts.items()):
        return None
    return {"filter": type(filter).__name__, "settings": plain}


def rebuilt(description: Any) -> Filter | None:
    """Build the filter that `described` has described.

    Args:
        description: What a file says.

    Returns:
        The filter; None for None. Anything else that `described` would not write is a `ValueError` or `TypeError`.
    """
    if description is None:
        return None
    name, settings = description["filter"], description["settings"]
    if name not in WRITTEN or not all(isinstance(value, PLAIN) for value in settings.values()):
        raise ValueError(f"no such filter: {str(description)[:80]!r}")
    return WRITTEN[name](**settings)
