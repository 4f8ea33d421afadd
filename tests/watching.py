"""What the interpreter does while a file is read: it must run nothing that the file says."""

from __future__ import annotations

import sys
from pathlib import Path

from mutations import CANARY

FORBIDDEN = ("os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "pickle.find_class",
             "marshal.loads", "socket.connect", "ctypes.dlopen", "os.remove")  # fmt: skip

_seen: list[str] | None = None
"""Events of the reading that goes on; None at other times."""


def _listen(event: str, arguments: tuple) -> None:
    # Annotations of our own classes are compiled; what a file says must never be.
    if _seen is not None and (event in FORBIDDEN or (event == "compile" and CANARY in str(arguments[0]))):
        _seen.append(event)


sys.addaudithook(_listen)


class Watched:
    """Raises if code is run, or made of what a file says, while the file is read."""

    def __enter__(self):
        global _seen
        _seen = []

    def __exit__(self, *_):
        global _seen
        events, _seen = _seen, None
        assert not events, f"reading a file led to {events}"
        assert not Path(CANARY).exists()
