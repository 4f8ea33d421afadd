"""What a page may ask for, read from text that may be anything."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from nbf.errors import InputError

LONGEST = 1 << 16
"""Characters of a message."""
FIELDS: dict[str, dict[str, type | tuple[type, ...]]] = {
    "hello": {"pass": str, "recipe": (dict, type(None))},
    "new": {"problem": str, "seed": int},
    "act": {"action": str},
    "change": {"settings": dict},
    "go": {"step": int},
    "export": {"kind": str},
}
"""The fields of each type of message."""


@dataclass(frozen=True)
class Message:
    """What is asked."""

    type: str
    fields: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        """Take a field.

        Args:
            name: Of the field.

        Returns:
            Its value.
        """
        return self.fields[name]


def parsed(text: str | bytes) -> Message:
    """Read a message.

    Args:
        text: What came.

    Returns:
        The message; raises `InputError` unless it is one of `FIELDS`, with these fields and no others.
    """
    if not isinstance(text, str):
        raise InputError("A message is text, not bytes.")
    if len(text) > LONGEST:
        raise InputError(f"A message has up to {LONGEST} characters; this one has {len(text)}.")
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise InputError("A message is one JSON object; this is none.") from None
    if not isinstance(value, dict) or not isinstance(value.get("type"), str) or value["type"] not in FIELDS:
        raise InputError(f"A message has a type, one of {', '.join(FIELDS)}.")
    kind = value.pop("type")
    wanted = FIELDS[kind]
    if set(value) != set(wanted):
        raise InputError(f"A message {kind!r} has {' and '.join(map(repr, wanted))}, and nothing else.")
    for name, types in wanted.items():
        if not isinstance(value[name], types) or isinstance(value[name], bool):
            raise InputError(f"{name!r} of a message {kind!r} is of another type; got {value[name]!r:.60}.")
    return Message(kind, value)


def _no_constant(name: str) -> Any:
    raise ValueError(name)
