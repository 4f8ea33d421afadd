"""Laws of what reaches a terminal: text of a file is shown and never obeyed; a reader that goes, a full disk, an old
encoding, a narrow window or Ctrl-C end a command in words or quietly, never in a traceback."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest
from commands import CommandLine
from paths import SHIPPED

from nbf.cli import streams
from nbf.cli.main import COMMANDS, main
from nbf.errors import InputError
from nbf.files.checkpoint import save_model
from nbf.models.belief_model import EnumeratedConfig

NBF = CommandLine(main, COMMANDS, "nbf")
ESCAPES = "\x1b[31mred\x1b]8;;http://evil\x07\x9b2J\x08\r\u202e\u200b\udc80\x00"
MARKUP = "[bold red]loud[/] [link=http://evil]here[/link] :smile: [/]"
CONFIG = EnumeratedConfig((5, 5), embedding=2, encoder_width=2, decoder_width=2)


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def saved(**notes: str) -> Path:
    path = Path("model.safetensors")
    save_model(path, CONFIG.build(jax.random.key(0)), CONFIG, **notes)
    return path


# --- text of a file ------------------------------------------------------------------------------


def harmless(text: str) -> bool:
    return all(letter.isprintable() or letter == "\n" for letter in text)


def test_visible_text_is_printable_and_tells_what_was_there():
    shown = streams.visible(ESCAPES)
    assert shown.isprintable()
    assert shown.encode().decode("unicode_escape") == ESCAPES
    assert streams.visible("±é 8-2D", keep="") == "±é 8-2D"
    assert streams.visible_answer({ESCAPES: [ESCAPES, {"a": 1.5}]}) == {shown: [shown, {"a": 1.5}]}


def test_info_shows_control_characters_and_markup_and_obeys_neither(capsys: pytest.CaptureFixture[str]):
    text = f"{MARKUP} \x1b[31m\x9b2J\u202e"
    path = saved(
        environment=json.dumps({"name": text}), training=json.dumps({"steps": text, f"{text}": 1}), loss_curve="[1.0]"
    )
    assert main(["info", str(path)]) == 0
    printed = capsys.readouterr().out
    assert harmless(printed)
    joined = "".join(printed.split())
    for part in ("[boldred]loud[/][link=http://evil]here[/link]:smile:", r"\x1b[31m\x9b2J\u202e"):
        assert part in joined
    assert NBF.answered(capsys, "info", path)["environment"] == text


def test_an_error_shows_the_text_of_a_file_in_one_harmless_line(capsys: pytest.CaptureFixture[str]):
    path = saved(environment=json.dumps(f"\x1b[31m{MARKUP}\n\x07"))
    save_model(path, CONFIG.build(jax.random.key(0)), CONFIG, **{"class": "\x1b[31m\nnbf: all is well"})
    message = NBF.refused(capsys, "info", path)
    assert message.isprintable()
    assert message.startswith("nbf: model.safetensors holds a ")


@pytest.mark.parametrize(
    "notes",
    [
        {"seconds": "NaN"},
        {"seconds": "1e400"},
        {"seconds": "-Infinity"},
        {"loss_curve": "[1.0, NaN]"},
        {"loss_curve": "[" * 100_000},
        {"training": '{"steps": NaN}'},
        {"training": '{"a": [1, {"b": Infinity}]}'},
        {"training": '{"a": 1e999}'},
        {"seed": "1" * 5000},
        {"seconds": "1" * 400},
        {"seed": "NaN"},
        {"environment": '{"name": NaN}'},
    ],
    ids=lambda notes: str(notes)[:40],
)
def test_notes_that_are_no_numbers_are_refused(notes: dict[str, str], capsys: pytest.CaptureFixture[str]):
    assert "not this library's" in NBF.refused(capsys, "info", saved(**notes))


# --- files that are none -------------------------------------------------------------------------


def test_pipes_and_devices_are_refused_at_once(capsys: pytest.CaptureFixture[str]):
    os.mkfifo("pipe")
    for path in ("pipe", "/dev/zero", "/dev/stdin", "/dev/null"):
        assert "only regular files are read" in NBF.refused(capsys, "info", path)
    for path in ("pipe", "/dev/null"):
        with pytest.raises(InputError, match="pipe or a device"):
            save_model(Path(path), CONFIG.build(jax.random.key(0)), CONFIG)
    assert "cannot be written" in NBF.refused(capsys, "demo", "--out", "pipe")


def test_a_name_that_is_not_utf8_is_shown(capsys: pytest.CaptureFixture[str]):
    name = os.fsdecode(b"\xff.safetensors")
    assert r"\udcff.safetensors" in NBF.refused(capsys, "info", name)
    saved().rename(name)
    assert main(["info", name]) == 0
    assert r"\udcff.safetensors" in capsys.readouterr().out


def test_a_working_folder_that_is_gone_is_said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    Path("gone").mkdir()
    monkeypatch.chdir("gone")
    Path("../gone").rmdir()
    for line in (["info", "x"], ["demo"], ["check", "a:b"]):
        assert main(line) == 2
        assert capsys.readouterr().err.splitlines() == [
            "nbf: The working folder is no longer there. Change to one that is, and try again."
        ]


# --- streams that end ----------------------------------------------------------------------------


class Broken(io.StringIO):
    """A stream whose reader has gone, or whose disk is full."""

    def __init__(self, error: OSError, folder: Path):
        super().__init__()
        self.error, self.file = error, (folder / "stream").open("w")

    def fileno(self) -> int:
        return self.file.fileno()

    def write(self, text: str) -> int:
        raise self.error

    def close(self) -> None:
        self.file.close()
        super().close()


LINES = (["info", str(SHIPPED)], ["info", str(SHIPPED), "--json"], ["--version"], ["--help"])


@pytest.mark.parametrize("line", LINES, ids=lambda line: " ".join(line).replace(str(SHIPPED), ""))
def test_a_reader_that_goes_ends_a_command_quietly_and_a_full_disk_in_a_sentence(
    line: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    gone, full = BrokenPipeError(errno.EPIPE, "Broken pipe"), OSError(errno.ENOSPC, "No space left on device")
    with contextlib.closing(Broken(gone, tmp_path)) as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert main(line) == 141
    assert capsys.readouterr().err == ""
    with contextlib.closing(Broken(full, tmp_path)) as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert main(line) == 2
    (message,) = capsys.readouterr().err.splitlines()
    assert message.startswith("nbf: the answer cannot be written: No space left on device")


@pytest.mark.parametrize(
    "line", [*LINES, ["info", "nowhere"], ["demo", "--stpes"]], ids=lambda line: " ".join(line)[:9]
)
def test_an_encoding_without_these_characters_gets_others(line: list[str], monkeypatch: pytest.MonkeyPatch):
    told = [io.TextIOWrapper(io.BytesIO(), encoding="ascii") for _ in range(2)]
    monkeypatch.setattr(sys, "stdout", told[0])
    monkeypatch.setattr(sys, "stderr", told[1])
    try:
        code = main(line)
    except SystemExit as end:
        code = end.code
    assert code == (2 if line[-1] in ("nowhere", "--stpes") else 0)


@pytest.mark.parametrize("width", [1, 5])
def test_a_narrow_terminal_is_no_error(width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(["info", str(SHIPPED)]) == 0
    NBF.explained(capsys, "demo", "--help")
    NBF.misspelt(capsys, "demo", "--stpes", "3")


SHELL = """
run() { "$PYTHON" -c 'import sys; from nbf.cli import main; sys.exit(main())' "$@"; }
run --help | true; echo "pipe ${PIPESTATUS[0]}"
run --version > /dev/full; echo "full $?"
run --version >&-; echo "closed $?"
run info nowhere 2> /dev/full; echo "stderr $?"
"$PYTHON" -c '
import sys
class Stop:
    def find_spec(self, name, *rest):
        if name in ("tyro", "rich"): raise KeyboardInterrupt
sys.meta_path.insert(0, Stop())
from nbf.cli import main
sys.exit(main())
'; echo "stopped $?"
"""


def test_a_shell_sees_exit_codes_and_no_traceback():
    done = subprocess.run(
        ["bash", "-c", SHELL], capture_output=True, text=True, env={**os.environ, "PYTHON": sys.executable}
    )
    assert done.stdout.splitlines() == ["pipe 141", "full 2", "closed 0", "stderr 2", "stopped 130"], done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("nbf: the answer cannot be written: No space left on device")
