"""How an object tells what it can do beyond its contract: one way for environments, families, models and spaces.

A capability is a small abstract class. Who claims it has all of its methods. To claim one, subclass it; an object
whose capabilities depend on its parts overrides `capabilities`. To ask is to look up a static fact: nothing is traced
then. An object may have found that fact by a trace when it was made, as `nbf.environment` finds `StateEmission`.
The capabilities themselves are in `nbf.capabilities`.
"""

from __future__ import annotations

import re
from typing import TypeVar

import equinox as eqx

from nbf.errors import InputError


class Capability(eqx.Module):
    """The base of all capabilities. The docstring of each says what it buys."""


Offered = TypeVar("Offered", bound=Capability)


class Capable(eqx.Module):
    """An environment, a family, a model or a space: something that may have capabilities."""

    @property
    def capabilities(self) -> frozenset[type[Capability]]:
        """The capabilities that the class claims by subclassing them. An object whose capabilities depend on its
        parts overrides this; it must have all methods of a capability that it claims."""
        return frozenset(kind for kind in type(self).__mro__ if Capability in kind.__bases__)


def capability(subject: object, kind: type[Offered]) -> Offered | None:
    """See an object as one with a capability. A static fact: nothing is traced.

    Args:
        subject: An environment, a family, a model or a space; or a part of a model, an encoder or a decoder, of any
            class.
        kind: A class of `nbf.capabilities`.

    Returns:
        The subject itself, or None if it does not claim the capability.
    """
    if not (isinstance(kind, type) and Capability in kind.__bases__):
        raise InputError(f"{kind!r} is not a capability: take a class of nbf.capabilities, for example Enumerable.")
    if isinstance(subject, Capable):
        return subject if kind in subject.capabilities else None  # pyright: ignore[reportReturnType]
    return subject if isinstance(subject, kind) else None


def require(subject: object, kind: type[Offered], who: str, instead: str) -> Offered:
    """See an object as one with a capability, or raise an `InputError`.

    Args:
        subject: As for `capability`.
        kind: A class of `nbf.capabilities`.
        who: What needs it, as the message's subject.
        instead: What else a caller can do, one sentence.

    Returns:
        The subject itself.
    """
    found = capability(subject, kind)
    if found is None:
        members = {name for name in kind.__abstractmethods__ if name in vars(kind)} | kind.__abstractvars__
        where = f"nbf.capabilities: {', '.join(sorted(members))}" if members else "nbf.capabilities"
        raise InputError(
            f"{who} needs the capability {kind.__name__} ({where}), which {type(subject).__name__} does not claim. "
            f"{instead}"
        )
    return found


def benefits(subject: Capable) -> dict[str, str]:
    """List what an object can do beyond its contract.

    Args:
        subject: An environment, a family, a model or a space.

    Returns:
        For each capability that it claims, by name, what it buys, as the capability's docstring says.
    """
    found = {}
    for kind in sorted(subject.capabilities, key=lambda kind: kind.__name__):
        text = " ".join((kind.__doc__ or "").split())
        bought = re.search(r"Buys (.*?)\.(?: |$)", text)
        found[kind.__name__] = bought[1] if bought else ""
    return found
