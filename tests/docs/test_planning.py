"""The page on planning: its code, run from top to bottom."""

from __future__ import annotations

import re

import numpy as np
import pytest
from paths import ROOT

PAGE = ROOT / "docs" / "planning.md"


@pytest.mark.slow
def test_the_page_runs(capsys):
    """With smaller searches than a reader would do."""
    text = PAGE.read_text(encoding="utf-8")
    for asked, small in (("simulations=500", "simulations=60"), ("steps=15", "steps=4"), ("Filter(512)", "Filter(64)")):
        assert asked in text
        text = text.replace(asked, small)
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 3
    names: dict = {}
    exec(compile("\n".join(blocks), str(PAGE), "exec"), names)
    assert "[" in capsys.readouterr().out
    assert int(names["decision"].calls) > 60
    assert np.all(np.isfinite(names["games"].total))
    assert not np.any(names["games"].invalid)
