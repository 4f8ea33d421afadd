"""The page on learning while filtering: its code, run from top to bottom."""

from __future__ import annotations

import re
from typing import Any

import pytest
from paths import ROOT

PAGE = ROOT / "docs" / "learning.md"


@pytest.mark.slow
def test_the_page_runs(tmp_path, monkeypatch, capsys):
    """With fewer rounds and steps than a reader would take."""
    text = PAGE.read_text(encoding="utf-8").replace("ROUNDS = 12", "ROUNDS = 1").replace("ROUNDS + 4", "ROUNDS + 1")
    text = text.replace("particles=(256, 64, 16))", "particles=(256, 64, 16), training=nbf.FitConfig(steps=40))")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 3
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile("\n".join(blocks), str(PAGE), "exec"), names)
    assert [path.name for path in tmp_path.iterdir()] == ["glider.safetensors"]
    assert len(names["learned"].history.rounds) == 1
    assert names["changed"].history.rounds[:1] == names["learned"].history.rounds
    assert "log evidence" in capsys.readouterr().out
