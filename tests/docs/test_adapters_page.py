"""The page on simulators of other libraries: its code, run from top to bottom."""

from __future__ import annotations

import re

import numpy as np
from extras import extra
from paths import ROOT


def test_the_page_runs():
    extra("gymnasium", "gymnasium")
    extra("mujoco", "mujoco")
    extra("pyspiel", "openspiel")
    text = (ROOT / "docs" / "adapters.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 5
    names: dict = {}
    exec(compile("\n".join(blocks), "docs/adapters.md", "exec"), names)
    assert 0.0 < float(names["angle"]) < 0.5  # the pendulum was seen at 0.2
    assert names["cart"].space.dimension == 4
    assert not names["info"].recovered
    assert np.isfinite(float(names["info"].log_evidence))
    assert names["stones"][0] == 1.0  # the corner that was tried
    assert names["other"].information_state_string(0) == names["state"].information_state_string(0)
