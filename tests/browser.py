"""A headless Chromium, driven over a pair of pipes by its DevTools protocol: nothing but the standard library."""

from __future__ import annotations

import base64
import fcntl
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless=new", "--hide-scrollbars", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe", "about:blank",
)  # fmt: skip
# The browser reads commands from descriptor 3 and writes answers to descriptor 4.
START = """
import os, sys
for own, wanted in ((int(sys.argv[1]), 3), (int(sys.argv[2]), 4)):
    os.dup2(own, wanted)
os.execv(sys.argv[3], sys.argv[3:])
"""
PATIENCE = 60.0
"""Seconds to wait for an answer, on a busy machine."""


def found() -> str | None:
    """The program, if there is one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@dataclass
class Browser:
    """One tab."""

    commands: int
    answers: int
    session: str | None = None
    events: list[dict[str, Any]] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    unread: bytes = b""

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command; its answer. What happens meanwhile is kept in `events`."""
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while (answer := self.read()).get("id") != number:
            self.events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def read(self) -> dict[str, Any]:
        """The next message."""
        end = time.monotonic() + PATIENCE
        while b"\0" not in self.unread:
            if not select.select([self.answers], [], [], max(0.0, end - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            some = os.read(self.answers, 1 << 16)
            if not some:
                raise EOFError("the browser has gone")
            self.unread += some
        message, _, self.unread = self.unread.partition(b"\0")
        return json.loads(message)

    def open(self, page: Path | str, width: int, height: int = 900) -> None:
        """Show a file, or an address, in a window of this size, from the beginning to the end of its loading."""
        self.events.clear()
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Page.navigate", url=page if isinstance(page, str) else page.resolve().as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self.read())

    def tell(self, expression: str) -> Any:
        """The value of a JavaScript expression on the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def wait(self, expression: str, patience: float = PATIENCE) -> Any:
        """The value of an expression on the page as soon as it is true."""
        end = time.monotonic() + patience
        while not (value := self.tell(expression)):
            if time.monotonic() > end:
                raise TimeoutError(f"{expression} is still {value!r}")
            time.sleep(0.02)
        return value

    def press(self, key: str) -> None:
        """Press a key and let go of it."""
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def drag(self, *places: tuple[float, float]) -> None:
        """Press the mouse at the first place, move it over the others, and let go of it at the last."""
        kinds = ["mousePressed", *["mouseMoved"] * (len(places) - 1), "mouseReleased"]
        for kind, (x, y) in zip(kinds, [*places, places[-1]], strict=True):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)

    def screenshot(self) -> bytes:
        """The page from its top to its end, as PNG."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        return base64.b64decode(shot["data"])

    def complaints(self) -> list[str]:
        """What the console shows as errors and warnings since the page was opened."""
        self.tell("1")  # what was raised so far stands before the answer
        told = []
        for event in self.events:
            method, parameters = event["method"], event["params"]
            if method == "Runtime.exceptionThrown":
                told.append(json.dumps(parameters["exceptionDetails"]))
            elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
                told.append(json.dumps(parameters["args"]))
            elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
                told.append(parameters["entry"]["text"])
        return told


@contextmanager
def browsing(program: str, profile: Path) -> Iterator[Browser]:
    """A browser with an empty profile, which ends with the block."""
    ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for pair in (os.pipe(), os.pipe()) for end in pair]
    commands_out, commands_in, answers_out, answers_in = ends
    start = [sys.executable, "-c", START, str(commands_out), str(answers_in)]
    process = subprocess.Popen(
        [*start, program, *FLAGS, f"--user-data-dir={profile}"],
        pass_fds=(commands_out, answers_in), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(commands_out)
    os.close(answers_in)
    browser = Browser(commands_in, answers_out)
    try:
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        browser.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            browser.call(f"{domain}.enable")
        yield browser
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(commands_in)
        os.close(answers_out)
