"""Who may use the server: a token in the address that is good for one page, and passes for pages that come back.

The address holds a token that is taken once. For it a page gets a pass, which it shows when it connects again, also to
a server that was started again: a pass is signed with a key of this user, in a file that nobody else may read.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
import time
from pathlib import Path

VALID = 12 * 3600
"""Seconds for which a pass is good."""
KEY_BYTES = 32


def key_file() -> Path:
    """Where the key of this user is.

    Returns:
        The path, by the XDG base directories.
    """
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "nbf" / "play.key"


def user_key(path: Path) -> bytes:
    """Read the key of this user; the first time, make it.

    Args:
        path: Of its file.

    Returns:
        The key. One for this process alone if it cannot be kept, or if others could read it: pages then need a new
        address after a new start.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            pass
        else:
            with os.fdopen(made, "wb") as file:
                file.write(secrets.token_bytes(KEY_BYTES))
        with open(path, "rb") as file:
            told = os.fstat(file.fileno())
            private = os.name == "nt" or (stat.S_IMODE(told.st_mode) & 0o077 == 0 and told.st_uid == os.getuid())
            key = file.read(KEY_BYTES + 1)
    except OSError:
        return secrets.token_bytes(KEY_BYTES)
    return key if private and len(key) == KEY_BYTES else secrets.token_bytes(KEY_BYTES)


class Access:
    """The token of the address, and the passes."""

    def __init__(self, key: bytes):
        """Make the first token.

        Args:
            key: That signs passes.
        """
        self._key = key
        self.token = secrets.token_urlsafe(24)

    def admit(self, shown: str) -> str | None:
        """Take a token or a pass.

        Args:
            shown: What a page shows.

        Returns:
            A pass for the page, new if it had none; None if it may not connect. A token that was taken is replaced by
            another one.
        """
        told = shown.encode("utf-8", "replace")
        if hmac.compare_digest(told, self.token.encode()):
            self.token = secrets.token_urlsafe(24)
            return self._signed(int(time.time()) + VALID)
        until = shown.partition(".")[0]
        if not (until.isascii() and until.isdigit() and len(until) < 16):
            return None
        good = hmac.compare_digest(told, self._signed(int(until)).encode())
        return shown if good and int(until) > time.time() else None

    def _signed(self, until: int) -> str:
        return f"{until}.{hmac.new(self._key, f'nbf play {until}'.encode(), hashlib.sha256).hexdigest()}"


class Rate:
    """A bucket that fills with time: how many messages may come."""

    def __init__(self, per_second: float, most: float):
        """Begin with a full one.

        Args:
            per_second: Messages, in the long run.
            most: Messages at once.
        """
        self._per_second, self._most = per_second, most
        self._left, self._last = most, 0.0

    def take(self, now: float) -> bool:
        """Count a message.

        Args:
            now: Seconds of a clock that never goes back.

        Returns:
            Whether it may be answered.
        """
        passed = max(0.0, now - self._last) if self._last else 0.0
        self._left, self._last = min(self._most, self._left + passed * self._per_second), now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True
