"""Laws of `nbf`: it explains itself, answers as text and as JSON, and refuses bad input in one paragraph with
exit code 2."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from commands import CommandLine
from paths import FROZEN, SHIPPED
from safetensors.numpy import save_file

from nbf.cli.main import COMMANDS, main
from nbf.files.checkpoint import save_model
from nbf.models.belief_model import EnumeratedConfig

NBF = CommandLine(main, COMMANDS, "nbf")


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


# --- help ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMMANDS)
def test_help_explains_every_option(name: str, capsys: pytest.CaptureFixture[str]):
    NBF.assert_explained(capsys, name)


def test_no_command_at_all_prints_the_help(capsys: pytest.CaptureFixture[str]):
    text = NBF.explained(capsys)
    assert all(name in text for name in COMMANDS)
    assert "--version" in text


def test_help_and_version_do_not_wait_for_jax():
    code = """
import contextlib, sys
from nbf.cli.main import main
main(["--version"])
for command in ([], ["demo", "--help"]):
    with contextlib.suppress(SystemExit):
        main(command)
assert not {"jax", "equinox", "matplotlib"} & set(sys.modules), "imported too early"
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("nbf ")


# --- wrong names and other bad input -------------------------------------------------------------


@pytest.mark.parametrize(("argv", "names"), [(["dmeo"], list(COMMANDS)), (["demo", "--stpes", "3"], ["--steps"])])
def test_a_wrong_word_lists_the_right_ones(argv: list[str], names: list[str], capsys: pytest.CaptureFixture[str]):
    printed = NBF.misspelt(capsys, *argv)
    assert all(name in printed for name in names)


@pytest.mark.parametrize(
    ("line", "fragment"),
    [
        ("demo --particles 16 0", "1 to 4096 particles; got [16, 0]"),
        ("demo --particles", "at least one neural filter"),
        ("demo --steps -1", "1 to 200 of them; got -1"),
        ("demo --seed 99999999999", "A seed is a whole number"),
        ("info nowhere.safetensors", "There is no checkpoint at nowhere.safetensors"),
    ],
)
def test_bad_options_are_refused_before_any_work(line: str, fragment: str, capsys: pytest.CaptureFixture[str]):
    assert fragment in NBF.refused(capsys, *shlex.split(line))


def test_a_file_that_is_no_model_of_ours_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    truncated, foreign, text = (tmp_path / name for name in ("truncated", "foreign", "text"))
    truncated.write_bytes(SHIPPED.read_bytes()[:5000])
    save_file({"weight": np.zeros(3, np.float32)}, foreign)
    text.write_text("not a checkpoint")
    assert "truncated or of another kind" in NBF.refused(capsys, "info", truncated)
    assert "not a model of this library" in NBF.refused(capsys, "info", foreign)
    assert "truncated or of another kind" in NBF.refused(capsys, "info", text)
    assert "not a readable checkpoint" in NBF.refused(capsys, "info", tmp_path)


@pytest.mark.parametrize("line", ["demo --out taken", "demo --out taken/below"])
def test_a_folder_that_cannot_be_written_is_refused_before_any_work(line: str, capsys: pytest.CaptureFixture[str]):
    Path("taken").write_text("a file where a folder should be")
    assert "taken" in NBF.refused(capsys, *shlex.split(line))


def test_the_exit_code_reaches_the_shell_without_a_traceback():
    code = "import sys; from nbf.cli import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code, "info", "nowhere"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("nbf: There is no checkpoint at nowhere")


# --- info ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["affine-flow-normal-base", "mixture", "autoregressive"])
def test_info_tells_what_any_model_is(name: str, capsys: pytest.CaptureFixture[str]):
    told = NBF.answered(capsys, "info", FROZEN / f"{name}.safetensors")
    assert told["class"] == "ModelConfig"
    names = {"mixture": "GaussianMixture", "autoregressive": "Autoregressive"}
    assert told["decoder"] == names.get(name, "CouplingFlow")


def test_info_tells_of_a_model_without_a_loss_curve(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    bare, odd = tmp_path / "bare.safetensors", tmp_path / "odd.safetensors"
    config = EnumeratedConfig((5, 5), embedding=2, encoder_width=2, decoder_width=2)
    save_model(bare, config.build(jax.random.key(0)), config)
    save_model(odd, config.build(jax.random.key(0)), config, loss_curve="[]")
    about = NBF.answered(capsys, "info", bare)
    assert about["loss"] is None
    assert about["config"]["shape"] == [5, 5]
    assert "not this library's" in NBF.refused(capsys, "info", odd)


def test_info_tells_of_the_shipped_model(capsys: pytest.CaptureFixture[str]):
    told = NBF.answered(capsys, "info", SHIPPED)
    assert (told["class"], told["environment"]) == ("EnumeratedConfig", "8-2D-random")
    assert told["bytes"] == SHIPPED.stat().st_size > 4 * told["parameters"] > 0
    assert main(["info", str(SHIPPED)]) == 0
    text = capsys.readouterr().out
    assert all(part in text for part in ("EnumeratedConfig", "8-2D-random", str(told["parameters"])))
