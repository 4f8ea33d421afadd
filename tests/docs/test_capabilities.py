"""The page on environments of one's own lists every capability once, and no others."""

from __future__ import annotations

import re
from pathlib import Path

from nbf import capabilities
from nbf.capability import Capability

PAGE = Path(__file__).parents[2] / "docs" / "your-own-environment.md"


def test_the_tables_have_every_capability():
    text = PAGE.read_text(encoding="utf-8")
    tables = re.findall(r"^\| capability \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", text, flags=re.M)
    found = [re.match(r"\| `(\w+)`", row)[1] for table in tables for row in table.splitlines()]  # type: ignore[index]
    assert sorted(found) == sorted(capabilities.__all__)


def test_every_capability_is_public_and_says_what_it_buys():
    kinds = [kind for kind in vars(capabilities).values() if isinstance(kind, type) and Capability in kind.__bases__]
    assert sorted(kind.__name__ for kind in kinds) == sorted(capabilities.__all__)
    assert [kind.__name__ for kind in kinds if not re.search(r"Buys\s", kind.__doc__ or "")] == []
