"""The one error for what a caller can mend. Without jax, so that plots and reports can raise it too."""

from __future__ import annotations

EXTRAS = {
    "optax": "train",
    "rich": "train",
    "matplotlib": "plot",
    "PIL": "plot",
    "tyro": "cli",
    "diffrax": "flow-matching",
    "cuthbertlib": "classical",
    "gymnax": "gymnax",
    "pyspiel": "openspiel",
    "pomdp_py": "pomdp-py",
}
"""Which extra of the distribution brings a package that not every user needs."""


class InputError(ValueError):
    """Something a caller passed cannot be used; the message says what, why, and what to do."""


class MissingExtraError(InputError, ImportError):
    """A part of the library was asked for whose extra is not installed."""


def missing_extra(error: ModuleNotFoundError, what: str) -> str | None:
    """The sentence that names the extra which brings a missing package; None for a package of no extra."""
    package = (error.name or "").split(".")[0]
    if package not in EXTRAS:
        return None
    return f"{what} needs {package}: pip install 'neural-bayesian-filtering[{EXTRAS[package]}]'"
