"""`nbf play` as a process: it says where its page is, serves it, and ends when it is told to."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from extras import without

RUN = "import sys\nfrom nbf.cli import main\nsys.exit(main(sys.argv[1:]))"


def test_without_websockets_the_extra_is_named(tmp_path: Path):
    done = without("websockets", RUN, "play", folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    last = done.stderr.splitlines()[-1]
    assert last == "nbf: `nbf play` needs websockets: pip install 'neural-bayesian-filtering[play]'"


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize("end", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_it_listens_here_alone_and_ends_cleanly(end: signal.Signals, tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        state = {"XDG_STATE_HOME": str(tmp_path)}
        process = subprocess.Popen(
            [sys.executable, "-c", RUN, "play", "--port", str(port)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=os.environ | state,
        )  # fmt: skip
        assert process.stderr is not None
        told = []
        while not told or "Ctrl-C" not in told[-1]:
            told.append(process.stderr.readline())
            assert told[-1], told
    assert f"port {port} is in use" in "".join(told)
    (address,) = re.findall(r"http://127\.0\.0\.1:\d+/\?token=\S+", "".join(told))
    with urllib.request.urlopen(address) as answer:
        assert b"nbf play" in answer.read()
    assert (tmp_path / "nbf" / "play.key").stat().st_mode & 0o777 == 0o600
    process.send_signal(end)
    output, errors = process.communicate(timeout=120)
    assert (process.returncode, output) == (0, "")
    assert [line.partition(",")[0] for line in errors.splitlines()] == ["nbf play: stopping", "nbf play: stopped"]
