"""Where the files are that tests read."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "tests" / "data"
FROZEN = DATA / "frozen"
RESULTS = ROOT / "results"
SHIPPED = ROOT / "src" / "nbf" / "files" / "8-2D-random.safetensors"
