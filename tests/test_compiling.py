"""What the compiler prints stays off the terminal, everything else arrives; a long compilation is announced."""

from __future__ import annotations

import os
import sys
import time

import numpy as np
import pytest

from nbf import compiling
from nbf.compiling import Alarms, after_a_while, without_alarms
from nbf.training.progress import Progress

FOLDING = b"""E1117 14:00:42.671922   13767 slow_operation_alarm.cc:73] Constant folding an instruction is taking > 1s:

  %reduce.7 = f32[300,300]{1,0} reduce-window(%constant.2), metadata={op_name="jit(f)/reduce"}

This isn't necessarily a bug; constant-folding is inherently a trade-off.

If you'd like to file a bug, run with envvar XLA_FLAGS=--xla_dump_to=/tmp/foo and attach the results.
"""
SLOW = b"""2026-11-17 14:00:42.671922: E external/xla/xla/service/slow_operation_alarm.cc:73]
********************************
[Compiling module jit_f] Very slow compile? If you want to file a bug, run with envvar XLA_FLAGS=--xla_dump_to=foo \
and attach the results.
********************************
"""
TOOK = SLOW.replace(b".cc:73]\n", b".cc:140] The operation took 2m4.1s\n")
KEPT = [
    b"Epoch 1\n", b"****\n", b"E1117 14:00:42.671922   13767 other.cc:3] a failure\n", b"2026 is a year\n", b"\rbar 3"
]  # fmt: skip


def test_alarms_and_nothing_else_are_taken_out_however_they_arrive():
    rng = np.random.default_rng(2026)
    for _ in range(200):
        parts = [*KEPT, FOLDING, SLOW, TOOK]
        order = [parts[place] for place in rng.permutation(len(parts) - 4)] + [parts[place] for place in (5, 6, 7, 4)]
        text = b"".join(part if part.endswith(b"\n") else part + b"\n" for part in order)
        wanted = b"".join(part if part.endswith(b"\n") else part + b"\n" for part in order if part in KEPT)
        alarms, shown = Alarms(), b""
        while text:
            size = int(rng.integers(1, 200))
            shown, text = shown + alarms.kept(text[:size]), text[size:]
        assert shown + alarms.rest == wanted


def test_what_is_no_log_entry_is_shown_at_once():
    assert Alarms().kept(b"\r 30 % of") == b"\r 30 % of"


def test_stderr_is_filtered_inside_and_only_inside(capfd):
    before = sys.stderr
    with without_alarms():
        os.write(2, FOLDING + b"inside\n")
        with without_alarms():
            sys.stderr.write("by Python\n")  # one write: `print` makes two of it, and the filter's may come between
            os.write(2, SLOW + b"nested\n")
        os.write(2, b"no end")
    os.write(2, b"\n" + FOLDING)
    assert sys.stderr is before
    said = capfd.readouterr().err
    assert sorted(said.replace(FOLDING.decode(), "").split("\n")) == sorted(
        ["inside", "by Python", "nested", "no end", ""]
    )
    assert said.count("Constant folding") == 1


def test_an_error_takes_the_filter_away(capfd):
    with pytest.raises(ValueError, match="mine"), without_alarms():
        raise ValueError("mine")
    os.write(2, FOLDING)
    assert "Constant folding" in capfd.readouterr().err


def test_only_what_takes_long_is_announced():
    said = []
    with after_a_while(lambda: said.append("quick"), seconds=60.0):
        pass
    with after_a_while(lambda: said.append("slow"), seconds=0.01):
        time.sleep(0.5)
    assert said == ["slow"]


def test_a_bar_says_that_it_compiles(capsys, monkeypatch):
    monkeypatch.setattr(compiling, "SLOW", 0.01)
    for wait in (0.5, 0.0):
        with Progress("training", 10, 0) as bar:
            time.sleep(wait)
            bar.update(10)
            time.sleep(0.1)
        said = capsys.readouterr().err
        assert said.count("training: compiling") == (1 if wait else 0)
