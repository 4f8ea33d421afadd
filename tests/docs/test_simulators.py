"""The page on simulators that are not JAX: its code, run from top to bottom."""

from __future__ import annotations

import os
import re
import sys

import numpy as np
import pytest
from extras import extra
from paths import ROOT

PAGE = ROOT / "docs" / "simulators.md"


@pytest.mark.slow
def test_the_page_runs(tmp_path, monkeypatch, capsys):
    """With fewer training steps, and shorter comparisons, than a reader would take."""
    extra("ray", "ray")
    text = PAGE.read_text(encoding="utf-8").replace("STEPS, EPISODES = 1500, 16", "STEPS, EPISODES = 60, 2")
    module, *blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 6
    (tmp_path / "balloon.py").write_text(module, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    names: dict = {}
    exec(compile(module + "\n".join(blocks), str(PAGE), "exec"), names)
    assert "neural (32)" in capsys.readouterr().out
    assert names["info"].log_evidence > -np.inf
    assert names["report"].passed
