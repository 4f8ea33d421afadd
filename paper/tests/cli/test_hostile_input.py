"""Laws of bad input of `nbf-paper`: amounts that no machine can do, names in other scripts, pictures that are bombs,
pipes, devices and records from someone else are refused at once, in one printable line."""

from __future__ import annotations

import io
import os
import shlex
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from commands import CommandLine
from paths import SHIPPED

from nbf.cli.main import COMMANDS as NBF_COMMANDS
from nbf.cli.main import main as nbf_main
from nbf.errors import InputError
from nbf_paper.audit.sources import Book
from nbf_paper.cli.main import COMMANDS, main
from nbf_paper.experiments import demands
from nbf_paper.experiments.choices import EXPERIMENTS, Amount
from nbf_paper.experiments.demands import Demand, Size
from nbf_paper.pictures import read_picture, write_picture
from nbf_paper.records import Record, RecordError, Run, add, write_records

NBF, PAPER = CommandLine(nbf_main, NBF_COMMANDS, "nbf"), CommandLine(main, COMMANDS, "nbf-paper")
HUGE, DIGITS = 10**30, "9" * 400
EXAMPLE = Record("gridworld", "8-2D-random", "nbf", "faithful", 16, 16, 0, "all", "js", 0.125, 0.01, 500)


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


# --- sizes ---------------------------------------------------------------------------------------


@pytest.fixture
def sixteen_gigabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demands, "machine_memory", lambda: 16e9)


@pytest.mark.usefixtures("sixteen_gigabytes")
def test_the_largest_amount_that_is_named_is_possible_and_the_next_is_not():
    def demand(count: int) -> Demand:
        return Demand(1e6 * count**2, 1.0)

    with pytest.raises(Exception, match=r"--x 1000 would take about 1 TB of memory.*has 16 GB.*is 126\."):
        demands.require(Size("--x", 1000, demand))
    assert demands.require(Size("--x", 126, demand)) == demand(126)
    with pytest.raises(Exception, match=r"--x 127 .*is 126\."):
        demands.require(Size("--x", 127, demand))
    with pytest.raises(Exception, match=r"400 digits.*years, and 30 days are the limit.*is 2592000\."):
        demands.require(Size("--x", int(DIGITS), lambda count: Demand(0.0, float(count))))
    with pytest.raises(Exception, match="Not even 1"):
        demands.require(Size("--x", 5, lambda count: Demand(1e12)))


def test_only_what_takes_long_is_announced():
    assert demands.announcement(600.0) is None
    assert "about 3 hours" in (demands.announcement(3 * 3600.0) or "")


@pytest.mark.slow
@pytest.mark.usefixtures("sixteen_gigabytes")
def test_every_experiment_of_the_documentation_can_be_done():
    for kind in EXPERIMENTS.values():
        for part in kind.parts():
            for job in part.experiment.jobs(Amount(steps=part.steps)):
                assert job.check_size().seconds < demands.LONGEST, job.title


@pytest.mark.usefixtures("sixteen_gigabytes")
@pytest.mark.parametrize(
    ("line", "fragment"),
    [
        ("train --config 64-4D-random --steps 1", "A grid of 4 dimensions and size 64 would take about 1.7 TB"),
        ("reproduce wall-clock --config 64-4D-fixed", "A grid of 4 dimensions"),
        ("reproduce gridworld --arm kernel --config 64-4D-fixed", "A grid of 4 dimensions"),
        (f"train --steps {HUGE}", "--steps 100... (31 digits)"),
        ("train --steps 1000000000", "--steps 1000000000 would take about 32 GB"),
        (f"evaluate {SHIPPED} --episodes {HUGE}", "--episodes 100... (31 digits)"),
        (f"evaluate {SHIPPED} --seed {DIGITS}", "A seed is a whole number"),
        ("reproduce triangulation --episodes 1000000", "--episodes 1000000 would take about 1.6 TB"),
        (f"reproduce convergence --particles 2048 4096 {HUGE}", "--particles 100... (31 digits)"),
        (f"selfplay goofspiel --checkpoints {HUGE}", "--checkpoints 100... (31 digits)"),
        (f"selfplay goofspiel --cards {HUGE}", "up to 1000 cards"),
        (f"reproduce goofspiel-large --checkpoints {DIGITS}", "--checkpoints 999... (400 digits)"),
        ("reproduce goofspiel --cards 100", "cards must be 3 to 8"),
        (f"reproduce all --seeds {HUGE}", "--seeds 100... (31 digits)"),
        (f"reproduce all --episodes {HUGE}", "--episodes 100... (31 digits)"),
        *((f"reproduce {name} --episodes {HUGE}", "(31 digits) would take about") for name in EXPERIMENTS),
        ("train --config ٨-2D-random", "There is no Gridworld configuration"),
        ("train --config 8-２D-random", "There is no Gridworld configuration"),
        ("reproduce simulation-cost --config k=６", "There is no Gridworld configuration"),
        ("reproduce beyond --config k=６", "choose from"),
    ],
    ids=lambda text: text[:40] if isinstance(text, str) else None,
)
def test_what_cannot_be_done_is_refused_at_once(line: str, fragment: str, capsys: pytest.CaptureFixture[str]):
    assert fragment in PAPER.refused(capsys, *shlex.split(line))


def test_the_demo_has_few_filters(capsys: pytest.CaptureFixture[str]):
    assert "up to 8 neural filters" in NBF.refused(capsys, "demo", "--particles", *["16"] * 100)


# --- pictures ------------------------------------------------------------------------------------

SHAPES = {"axis": "x", "density": "donuts x x"}
WHOLE = {"axis": np.zeros(4, np.float32), "density": np.zeros((2, 4, 4), np.float16)}


def npy(shape: tuple[int, ...], content: bytes, kind: str = "<f4") -> bytes:
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + content


def packed(**parts: bytes) -> Path:
    path = Path("picture.npz")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in parts.items():
            file.writestr(f"{name}.npy", content)
    return path


def test_a_picture_is_read_as_it_was_written():
    write_picture("picture.npz", WHOLE)
    found = read_picture("picture.npz", SHAPES, "make it")
    assert all(np.array_equal(found[name], array) and found[name].dtype == array.dtype for name, array in WHOLE.items())


def test_a_bomb_is_refused_before_it_is_unpacked(monkeypatch: pytest.MonkeyPatch):
    """6 GB of zeros in six megabytes would take a while to make: the file only declares them, twice over."""
    buffer = io.BytesIO(packed(axis=npy((4,), bytes(16)), density=npy((1, 4, 4), bytes(64))).read_bytes())
    content = buffer.getvalue().replace(struct.pack("<I", len(npy((1, 4, 4), bytes(64)))), struct.pack("<I", 4 * 10**9))
    Path("bomb.npz").write_bytes(content)
    monkeypatch.setattr(zipfile.ZipFile, "read", lambda *arguments: pytest.fail("unpacked"))
    with pytest.raises(RecordError, match="declares 40000000"):
        read_picture("bomb.npz", SHAPES, "make it")


@pytest.mark.parametrize(
    "parts",
    [
        {"axis": npy((10**12,), bytes(16))},
        {"axis": npy((4,), bytes(12))},
        {"axis": npy((2, 2), bytes(16))},
        {"axis": npy((5,), bytes(20))},
        {"axis": npy((0,), b"")},
        {"axis": npy((4,), bytes(16), "|O")},
        {"axis": npy((4,), b"\xff" * 16)},
        {"axis": npy((4,), bytes(16), "|S4")},
        {"axis": npy((-4,), bytes(16))},
        {"axis": b"nothing"},
        {"other": npy((4,), bytes(16))},
    ],
    ids=lambda parts: str(next(iter(parts.values()))[:80]),
)
def test_wrong_arrays_are_refused(parts: dict[str, bytes]):
    usual = {"axis": npy((4,), bytes(16)), "density": npy((1, 4, 4), bytes(64))}
    assert read_picture(packed(**usual), SHAPES, "make it")
    path = packed(**({**usual, **parts} if "axis" in parts else parts))
    with pytest.raises(RecordError, match="make it anew with `make it`"):
        read_picture(path, SHAPES, "make it")


# --- records from someone else -------------------------------------------------------------------


def test_pipes_and_devices_are_refused_at_once(capsys: pytest.CaptureFixture[str]):
    os.mkfifo("pipe")
    Path("piped/gridworld").mkdir(parents=True)
    os.mkfifo("piped/gridworld/records.csv")
    write_records("results/gridworld/records.csv", [EXAMPLE])
    Path("README.md").write_text("<!-- nbf:table gridworld -->\n| a | b |\n|--|--|\n| c | d |\n<!-- /nbf:table -->\n")
    assert "only regular files are read" in PAPER.refused(capsys, "evaluate", "pipe")
    for command in ("report", "audit"):
        assert "only regular files are read" in PAPER.refused(capsys, command, "--results", "piped")
        assert "only regular files are read" in PAPER.refused(capsys, command, "--readme", "pipe")
    assert "no file may replace" in PAPER.refused(capsys, "report", "--no-beliefs", "--html", "/dev/null")
    assert "no file may replace" in PAPER.refused(capsys, "reproduce", "all", "--quick", "--html", "pipe")
    assert "no file may replace" in PAPER.refused(capsys, "selfplay", "goofspiel", "--out", "/dev/null")
    assert not Path("/dev/null").is_file()


@pytest.mark.parametrize("text", ["\x1b[31mred", "a\u202eb", "a\x00b", "a\x9b2J"], ids=ascii)
def test_control_characters_in_records_are_refused_in_printable_words(text: str, capsys: pytest.CaptureFixture[str]):
    write_records("results/gridworld/records.csv", [EXAMPLE])
    file = Path("results/gridworld/records.csv")
    file.write_text(file.read_text().replace("faithful", text))
    Path("README.md").write_text("<!-- nbf:table gridworld -->\n| a | b |\n|--|--|\n| c | d |\n<!-- /nbf:table -->\n")
    for command in ("report", "audit"):
        assert PAPER.refused(capsys, command).isprintable()


@pytest.mark.parametrize(
    "runs",
    ["{}", "[1]", "[" * 100_000, '[{"key": 1}]', '[{"made": 1}]', "\x00", "NaN"],
    ids=lambda runs: ascii(runs)[:12],
)
def test_runs_that_are_none_are_refused_by_the_audit(runs: str):
    Path("results/gridworld").mkdir(parents=True)
    Path("results/gridworld/runs.json").write_text(runs)
    with pytest.raises(InputError, match="no list of runs"):
        Book(Path("results")).runs("gridworld")


def test_records_that_lack_what_a_page_needs_are_refused(capsys: pytest.CaptureFixture[str]):
    record = Record("goofspiel-large", "k=x", "nbf", "faithful", 16, 16, 0, "all", "js", 0.1, 0.01, 5)
    add("results/goofspiel-large", [record], Run("k=x/faithful/0", 0, "typed", 1.0, {"training": []}))
    assert main(["report", "--no-beliefs"]) == 2
    assert "do not hold what their page needs" in capsys.readouterr().err.splitlines()[-1]
