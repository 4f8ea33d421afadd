"""Laws of `nbf-paper`: it explains itself, answers as text and as JSON, refuses bad input in one
paragraph with exit code 2, and goes on where it was interrupted."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import CommandLine
from paths import FROZEN, SHIPPED
from safetensors.numpy import save_file
from tolerances import FLOAT

from nbf.cli.main import COMMANDS as NBF_COMMANDS
from nbf.cli.main import main as nbf_main
from nbf.training import fit
from nbf.training.progress import Progress
from nbf_paper.cli.main import COMMANDS, main
from nbf_paper.experiments.choices import EXPERIMENTS
from nbf_paper.records import ALL, Record, read_records, read_runs, write_records

CONFIG, ARM = "5-2D-random", "enumerated"
NBF, PAPER = CommandLine(nbf_main, NBF_COMMANDS, "nbf"), CommandLine(main, COMMANDS, "nbf-paper")
TRAIN = ("train", "--config", CONFIG, "--arm", ARM, "--steps", "40")
REPRODUCE = ("reproduce", "gridworld", "--config", CONFIG, "--arm", ARM, "--steps", "40", "--episodes", "4")


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of trainings that holds one finished model, which was interrupted on the way."""
    runs = tmp_path_factory.mktemp("trained") / "runs"
    update, training_chunk, compiled = Progress.update, fit.training_chunk, []

    def interrupted(self: Progress, done: int, loss: float) -> None:
        update(self, done, loss)
        signal.raise_signal(signal.SIGTERM)

    def once(*arguments: Any) -> object:  # compiling is most of the work, and the same both times
        compiled.append(compiled[0] if compiled else training_chunk(*arguments))
        return compiled[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit, "training_chunk", once)
        patch.setattr(Progress, "update", interrupted)
        assert main([*TRAIN, "--runs", str(runs)]) == 130
        assert [path.name for path in runs.rglob("*.safetensors")] == ["training.safetensors"]
        patch.setattr(Progress, "update", update)
        assert main([*TRAIN, "--runs", str(runs)]) == 0
    return runs


@pytest.fixture
def model(trained: Path) -> Path:
    return trained / "gridworld" / CONFIG / f"{ARM}-0" / "model.safetensors"


# --- help ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMMANDS)
def test_help_explains_every_option(name: str, capsys: pytest.CaptureFixture[str]):
    words = PAPER.assert_explained(capsys, name, "Which experiment.", "{goofspiel}")
    assert name != "reproduce" or all(f"• {experiment} " in words for experiment in (*EXPERIMENTS, "all"))


def test_no_command_at_all_prints_the_help(capsys: pytest.CaptureFixture[str]):
    text = PAPER.explained(capsys)
    assert all(name in text for name in COMMANDS)
    assert "--version" in text


def test_help_and_version_do_not_wait_for_jax():
    code = """
import contextlib, sys
from nbf_paper.cli.main import main
main(["--version"])
for command in ([], ["reproduce", "--help"]):
    with contextlib.suppress(SystemExit):
        main(command)
assert not {"jax", "equinox", "matplotlib"} & set(sys.modules), "imported too early"
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("nbf-paper ")


# --- wrong names and other bad input -------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "names"),
    [
        (["repordce"], list(COMMANDS)),
        (["reproduce", "gridwrld"], ["gridworld"]),
        (["train", "--stpes", "3"], ["--steps"]),
    ],
)
def test_a_wrong_word_lists_the_right_ones(argv: list[str], names: list[str], capsys: pytest.CaptureFixture[str]):
    printed = PAPER.misspelt(capsys, *argv)
    assert all(name in printed for name in names)


@pytest.mark.parametrize(
    ("line", "fragment"),
    [
        ("train --config 8-2D-randm", "8-2D-random-diffuse"),
        ("reproduce gridworld --config 8-2D-random 8-2D", "8-2D-random-diffuse"),
        ("train --config 2-2D-random", "no free cell"),
        ("train --arm faithfull", "choose from faithful, enumerated"),
        ("reproduce gridworld --arm flow", "choose from faithful, enumerated"),
        ("reproduce gridworld --arm", "at least one arm"),
        ("train --steps -5", "--steps must be at least 1; got -5"),
        ("train --steps 0", "--steps must be at least 1"),
        ("train --seed -1", "A seed is a whole number"),
        ("reproduce gridworld --seeds 0", "--seeds must be at least 1"),
        ("reproduce gridworld --first-seed -2", "A seed is a whole number"),
        ("reproduce gridworld --episodes 1", "--episodes must be at least 2"),
        ("reproduce all --seeds 0", "--seeds must be at least 1"),
        ("reproduce all --quick --episodes 1", "--episodes must be at least 2"),
        ("reproduce goofspiel --cards 9", "cards must be 3 to 8"),
        ("reproduce goofspiel --arm flow", "choose from faithful, paper, autoregressive"),
        ("selfplay goofspiel --cards 1", "at least 2 cards"),
        ("selfplay goofspiel --checkpoints 0", "checkpoints must be at least 1"),
        ("report", "There are no records"),
        ("evaluate nowhere.safetensors", "There is no checkpoint at nowhere.safetensors"),
    ],
)
def test_bad_options_are_refused_before_any_work(line: str, fragment: str, capsys: pytest.CaptureFixture[str]):
    assert fragment in PAPER.refused(capsys, *shlex.split(line))


def test_a_file_that_is_no_model_of_ours_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    truncated, foreign, text = (tmp_path / name for name in ("truncated", "foreign", "text"))
    truncated.write_bytes(SHIPPED.read_bytes()[:5000])
    save_file({"weight": np.zeros(3, np.float32)}, foreign)
    text.write_text("not a checkpoint")
    assert "truncated or of another kind" in PAPER.refused(capsys, "evaluate", truncated)
    assert "not a model of this library" in PAPER.refused(capsys, "evaluate", foreign)
    assert "truncated or of another kind" in PAPER.refused(capsys, "evaluate", text)
    assert "not a readable checkpoint" in PAPER.refused(capsys, "evaluate", tmp_path)


@pytest.mark.slow
def test_a_training_in_progress_is_not_taken_for_a_model(model: Path, capsys: pytest.CaptureFixture[str]):
    assert "training in progress" in NBF.refused(capsys, "info", model.with_name("training.safetensors"))


def test_a_model_of_another_state_space_is_refused(model: Path, capsys: pytest.CaptureFixture[str]):
    message = PAPER.refused(capsys, "evaluate", model, "--config", "8-2D-random")
    assert "lattice(5, 5)" in message
    assert "lattice(8, 8)" in message


def test_a_model_that_does_not_say_what_it_is_for_needs_a_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    import jax

    from nbf.files.checkpoint import save_model
    from nbf.models.belief_model import EnumeratedConfig

    bare = tmp_path / "bare.safetensors"
    config = EnumeratedConfig((5, 5), embedding=2, encoder_width=2, decoder_width=2)
    save_model(bare, config.build(jax.random.key(0)), config)
    assert "name one with --config" in PAPER.refused(capsys, "evaluate", bare)


@pytest.mark.parametrize(
    "line",
    [
        "train --runs taken",
        "reproduce gridworld --results taken",
        "reproduce gridworld --runs taken",
        "reproduce all --results taken",
        "report --docs taken --no-beliefs",
        "report --html taken/page.html --no-beliefs",
    ],
)
def test_a_folder_that_cannot_be_written_is_refused_before_any_work(line: str, capsys: pytest.CaptureFixture[str]):
    Path("taken").write_text("a file where a folder should be")
    write_records(Path("results/gridworld/records.csv"), recorded())
    Path("runs").mkdir()
    assert "taken" in PAPER.refused(capsys, *shlex.split(line))


def test_the_exit_code_reaches_the_shell_without_a_traceback():
    code = "import sys; from nbf_paper.cli import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code, "train", "--arm", "x"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    arms = "faithful, enumerated, wide, recurrent, recurrent-adam"
    assert done.stderr.splitlines() == [f"nbf-paper: There is no arm 'x'; choose from {arms}."]


# --- what the commands do ------------------------------------------------------------------------


def test_an_interrupted_training_says_how_to_go_on(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    def stopped(*arguments: object, **options: object) -> Path:
        raise fit.TrainingStopped("stopped at step 20 of 40")

    monkeypatch.setattr("nbf_paper.experiments.training_runs.TrainingRun.train", stopped)
    assert main(list(TRAIN)) == 130
    typed = shlex.join(["nbf-paper", *TRAIN])
    told = f"nbf-paper: training stopped at step 20 of 40; it goes on with: {typed}"
    assert capsys.readouterr().err.splitlines()[-1] == told


def test_a_loss_that_is_not_finite_is_an_error_not_a_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    def diverged(*arguments: object, **options: object) -> Path:
        raise FloatingPointError("The loss became nan by step 20.")

    monkeypatch.setattr("nbf_paper.experiments.training_runs.TrainingRun.train", diverged)
    Path("runs").mkdir()
    assert "The loss became nan" in PAPER.refused(capsys, *TRAIN)


def test_a_finished_training_is_told_and_not_repeated(trained: Path, model: Path, capsys: pytest.CaptureFixture[str]):
    written = model.stat().st_mtime_ns
    told = PAPER.answered(capsys, *TRAIN, "--runs", trained)
    assert Path(told["model"]) == model
    assert told["training"]["steps"] == 40
    assert np.isfinite(told["loss"])
    assert model.stat().st_mtime_ns == written


def test_a_model_with_other_settings_is_not_passed_off_as_the_one_asked_for(
    trained: Path, capsys: pytest.CaptureFixture[str]
):
    message = PAPER.refused(capsys, *TRAIN[:-1], "60", "--runs", trained)
    assert '"steps": 40' in message
    assert '"steps": 60' in message


@pytest.mark.parametrize("name", ["affine-flow-normal-base", "mixture", "autoregressive"])
def test_evaluate_refuses_a_model_of_something_else(name: str, capsys: pytest.CaptureFixture[str]):
    path = FROZEN / f"{name}.safetensors"
    assert "does not say which configuration" in PAPER.refused(capsys, "evaluate", path)
    assert "has states of lattice(5, 5)" in PAPER.refused(capsys, "evaluate", path, "--config", "5-2D-random")


def test_info_tells_what_a_model_is(model: Path, capsys: pytest.CaptureFixture[str]):
    told = NBF.answered(capsys, "info", model)
    assert (told["class"], told["decoder"], told["environment"]) == ("EnumeratedConfig", "Enumerated", CONFIG)
    assert told["seed"] == 0
    assert told["bytes"] == model.stat().st_size > 4 * told["parameters"] > 0
    assert nbf_main(["info", str(model)]) == 0
    text = capsys.readouterr().out
    assert all(part in text for part in ("EnumeratedConfig", CONFIG, "steps 40", str(told["parameters"])))


def test_reproduce_records_once_and_evaluate_agrees(
    trained: Path, model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    from nbf_paper.experiments import gridworld

    filter_rows, few = gridworld.filter_rows, ("nbf(16)", "exact")
    monkeypatch.setattr(gridworld, "filter_rows", lambda *args: [row for row in filter_rows(*args) if row.label in few])
    first = PAPER.answered(capsys, *REPRODUCE, "--runs", trained)
    assert [(run["run"], run["new"]) for run in first["runs"]] == [(f"{CONFIG} {ARM} seed 0", True)]
    results = Path("results/gridworld")
    (run,) = read_runs(results)
    assert run.command == shlex.join(["nbf-paper", *REPRODUCE, "--runs", str(trained), "--json"])
    before = (results / "records.csv").read_bytes()

    assert main([*REPRODUCE, "--runs", str(trained)]) == 0
    printed = capsys.readouterr()
    assert "recorded already" in printed.err
    assert "NBF (16), enumerated" in printed.out
    assert (results / "records.csv").read_bytes() == before

    told = PAPER.answered(capsys, "evaluate", model, "--episodes", "4")
    assert (told["config"], told["arm"], told["episodes"]) == (CONFIG, ARM, 4)
    assert [(row["filter"], row["particles"]) for row in told["filters"]] == [("exact", 0), ("nbf", 16)]
    (mean,) = [record.value for record in read_records(results) if (record.step, record.metric) == (ALL, "js")]
    np.testing.assert_allclose([row["js"] for row in told["filters"]], [0, mean], **FLOAT)


# --- report --------------------------------------------------------------------------------------


def recorded() -> list[Record]:
    """A few records of two configurations and two arms."""
    rows = [("8-2D-random", "pf", "", 32), ("8-2D-random", "nbf", "faithful", 16), ("8-2D-random", "nbf", ARM, 16)]
    rows += [("5-2D-fixed", "pf", "", 32), ("8-2D-random-diffuse", "nbf", "faithful", 16)]
    return [
        Record("gridworld", config, filter, arm, particles, particles, 0, step, "js", 0.125, 0.01, 500)
        for config, filter, arm, particles in rows
        for step in (ALL, 1, 2)
    ]


def test_report_draws_the_records_and_fills_the_tables(capsys: pytest.CaptureFixture[str]):
    write_records(Path("results/gridworld/records.csv"), recorded())
    for path, name in (
        ("docs/reproduction.md", "gridworld-extra"),
        ("docs/plain.md", None),
        ("README.md", "gridworld"),
    ):
        Path(path).parent.mkdir(exist_ok=True)
        Path(path).write_text(f"# Title\n\n<!-- nbf:table {name} -->\n<!-- /nbf:table -->\n" if name else "# Title\n")
    written = PAPER.answered(capsys, "report", "--no-beliefs")["written"]
    figures = [f"docs/figures/gridworld-{kind}.png" for kind in ("fixed", "random", "extra")]
    assert written == [*figures, "docs/reproduction.md", "README.md", "nbf-report.html"]
    assert Path("nbf-report.html").read_text().count("data:image/png") == len(figures)
    assert all(Path(path).read_bytes().startswith(b"\x89PNG") for path in figures)
    readme, extra = Path("README.md").read_text(), Path("docs/reproduction.md").read_text()
    assert "0.125 ± 0.010" in readme
    assert "enumerated" not in readme
    assert "diffuse" not in readme
    assert "NBF (16), enumerated" in extra
    assert "8-2D-random-diffuse" in extra
    assert PAPER.answered(capsys, "report", "--no-beliefs", "--html", "new/page.html")["written"] == [
        *figures,
        "new/page.html",
    ]


def test_report_refuses_a_table_it_does_not_know_and_writes_nothing(capsys: pytest.CaptureFixture[str]):
    write_records(Path("results/gridworld/records.csv"), recorded())
    Path("README.md").write_text("<!-- nbf:table griddworld -->\n<!-- /nbf:table -->\n")
    message = PAPER.refused(capsys, "report", "--no-beliefs")
    assert "griddworld" in message
    assert "gridworld-random" in message
