"""Screenshots of the site for CONTRIBUTING.md: `make docs`, then `python docs/run_screenshots.py`.

Needs a Chromium (`.ci/install-browser`). `tests/docs/test_site.py` takes the same pictures, and looks whether there is
something on them.
"""

from __future__ import annotations

import base64
import functools
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from nbf.files.atomic import write_atomically

ROOT = Path(__file__).resolve().parents[1]
SITE, FIGURES = ROOT / "build" / "site", ROOT / "docs" / "figures"
SHOTS: Mapping[str, tuple[str, int, int]] = {
    "site-mathematics.png": ("docs/mathematics/update/", 1280, 800),
    "site-reference.png": ("reference/filters/", 1280, 800),
    "site-phone.png": ("docs/pictures/", 390, 800),
}
"""File, page, width and height of each."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on this machine alone.

    Args:
        folder: The site.

    Yields:
        Its address.
    """

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def opened(browser: Any, address: str, width: int, height: int = 900) -> None:
    """Open a page in a window of some size, and wait until it is loaded.

    Args:
        browser: A `browser.Browser`.
        address: Of the page.
        width: Of the window.
        height: Of the window.
    """
    browser.events.clear()
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.call("Emulation.setDeviceMetricsOverride", **size)
    browser.call("Page.navigate", url=address)
    while not any(event["method"] == "Page.loadEventFired" for event in browser.events):
        browser.events.append(browser.read())


def screenshots(browser: Any, address: str) -> dict[str, bytes]:
    """Take the pictures.

    Args:
        browser: A `browser.Browser`.
        address: Of the site.

    Returns:
        The content of each PNG file.
    """
    found = {}
    for name, (page, width, height) in SHOTS.items():
        opened(browser, f"{address}/{page}", width, height)
        found[name] = base64.b64decode(browser.call("Page.captureScreenshot", format="png")["data"])
    return found


def main() -> None:
    """Write the pictures."""
    sys.path.insert(0, str(ROOT / "paper" / "tests"))
    from browser import browsing, found

    program = found()
    if program is None or not SITE.exists():
        sys.exit("This needs a Chromium (.ci/install-browser) and the site (make docs).")
    with tempfile.TemporaryDirectory() as profile, browsing(program, Path(profile)) as browser, served(SITE) as address:
        for name, png in screenshots(browser, address).items():
            write_atomically(FIGURES / name, png)
            print(f"docs/figures/{name}")


if __name__ == "__main__":
    main()
