"""The packages that ours is compared with: their versions, and an environment of its own for each, since their pins
clash. Ours runs where this does."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
CACHE = ROOT / ".peers"
"""Where the environments are, unless told otherwise."""

PINS = {
    "cuthbert": ("cuthbert==0.1.1", "jax==0.10.2"),
    "blackjax": ("blackjax==1.7.1", "jax==0.10.2"),
    "particles": ("particles==0.4", "numpy==1.26.4"),
    "filterpy": ("filterpy==2.0.0", "numpy==2.4.6"),
    "stonesoup": ("stonesoup==1.9.1", "numpy==2.4.6"),
}
"""A package -> what is installed for it."""


def interpreter(peer: str, cache: Path) -> Path:
    """Python of the peer's environment, which is made if it is not there as pinned."""
    folder, wanted = cache / peer, "\n".join(PINS[peer])
    python, stamp = folder / "bin" / "python", folder / "installed.txt"
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"Installing {', '.join(PINS[peer])} into {folder}", file=sys.stderr)
        venv.create(folder, clear=True, symlinks=True, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-qq", *PINS[peer]], check=True)
        stamp.write_text(wanted)
    return python
