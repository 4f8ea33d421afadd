"""The page on hidden hands: its code, run from top to bottom."""

from __future__ import annotations

import re

from extras import extra
from paths import ROOT


def test_the_page_runs(capsys):
    extra("pyspiel", "openspiel")
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "cards.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 4
    names: dict = {}
    exec(compile("\n".join(blocks), "docs/cards.md", "exec"), names)
    assert "actions that no deal explains" in capsys.readouterr().out
    assert names["belief"].shape == (24, 3)
    assert names["resampler"].recovered == 0
