"""The audit agrees with the committed tables, with tables of any records, and with nothing else."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from paths import RESULTS, ROOT
from tolerances import SEED

from nbf.errors import InputError
from nbf_paper.audit.arithmetic import Derived
from nbf_paper.audit.check import Audit, audit
from nbf_paper.cli.main import main
from nbf_paper.records import ALL, Record, Run, add
from nbf_paper.report import beyond, convergence, gridworld, simulation_cost, triangulation
from nbf_paper.report.tables import insert_table

pytestmark = pytest.mark.usefixtures("untyped")

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "paper" / "docs").glob("*.md"))]


@pytest.fixture(scope="module")
def committed() -> Audit:
    return audit(RESULTS, DOCUMENTS)


def test_every_committed_cell_is_what_the_records_say(committed: Audit):
    assert committed.mismatches == []
    assert len(committed.cells) > 2000
    marked = {name for page in DOCUMENTS for name in re.findall(r"<!-- nbf:table (\S+) -->", page.read_text())}
    assert {cell.table.name for cell in committed.cells} == marked


def test_a_digit_or_a_mark_more_or_less_is_seen_in_any_cell(committed: Audit):
    changed = 0
    for cell in committed.cells:
        for number in re.finditer(r"\d+(?:\.\d+)?", cell.printed):
            digit = str((int(number[0][-1]) + 5) % 10)
            doctored = cell.printed[: number.end() - 1] + digit + cell.printed[number.end() :]
            assert not cell.derived.agrees(doctored), cell.place
            changed += 1
        for doctored in (f"{cell.printed} †", f"{cell.printed} ‡", cell.printed.replace("†", "").strip() + " "):
            assert doctored == cell.printed or not cell.derived.agrees(doctored), cell.place
    assert changed > 3000


def test_a_number_that_lies_halfway_may_be_rounded_either_way_and_no_other():
    half = Derived("{} ± {}", ((0.1235, ".3f"), (0.02, ".3f")))
    assert half.agrees("0.123 ± 0.020")
    assert half.agrees("0.124 ± 0.020")
    for wrong in ("0.125 ± 0.020", "0.1235 ± 0.020", "0.12 ± 0.020", "0.124 ± 0.020 †", "0.124", "x ± 0.020"):
        assert not half.agrees(wrong)


def test_the_audit_imports_nothing_of_the_other_route():
    program = "import sys, nbf_paper.audit.check; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not {"nbf_paper.records", "nbf_paper.report", "numpy", "jax", "matplotlib"} & loaded


# --- what was doctored ---------------------------------------------------------------------------


@dataclass
class Copy:
    """A document and records of one's own."""

    document: Path
    results: Path

    def edit(self, old: str, new: str) -> None:
        """Replace the first place where a pattern fits."""
        text = self.document.read_text()
        doctored = re.sub(old, new, text, count=1)
        assert doctored != text
        self.document.write_text(doctored)

    def audit(self) -> list[str]:
        return audit(self.results, [self.document]).mismatches


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    """The paper's own table, that of the default filter, and what it costs."""
    document, docs = tmp_path / "README.md", ROOT / "paper" / "docs"
    tables = []
    for page, name in (("reproduction.md", "gridworld"), ("beyond.md", "beyond"), ("beyond.md", "equal-time")):
        marked = re.search(rf"<!-- nbf:table {name} -->.*?<!-- /nbf:table -->\n", (docs / page).read_text(), re.DOTALL)
        assert marked is not None
        tables.append(marked[0])
    document.write_text("\n".join(tables))
    for name in ("gridworld", "beyond", "simulation-cost", "goofspiel", "triangulation"):
        (tmp_path / "results" / name).mkdir(parents=True)
        for file in ("records.csv", "runs.json"):
            shutil.copy(RESULTS / name / file, tmp_path / "results" / name / file)
    return Copy(document, tmp_path / "results")


OWN = r"(\| NBF \(16\), paper's flow +\| +)"
"""The row of the paper's own filter, up to its first cell."""
ROW = re.compile(r"^\| PF \(64\) .*\n", re.MULTILINE)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (OWN + r"0\.\d", r"\g<1>7.7", r"README.md:\d+, table gridworld, row \"NBF \(16\), paper's flow\".*7\.7"),
        (OWN + r"(0\.\d{3}) ± 0.\d{3}", r"\1\2 ± 7.777", r"'0\.\d{3} ± 7\.777.*', but the records give '0\.\d{3} ± 0"),
        (r"(\| Recurrent [^†]*) †", r"\1", r"but the records give '0\.\d{3} ± 0\.\d{3} †'"),
        (r"\| NBF \(16\), paper's flow ", "| NBF (16), enumerated   ", r"no row of \('nbf', 'faithful', 16\)"),
        (r"NBF \(64\), autoregressive, default", "NBF (64), mixture, default", "runs trained the model autoregressive"),
        (r"\| PF \(64\) ", "| PF (32) ", r"two rows are named 'PF \(32\)'"),
        (r"(\*seeds × episodes\* +\| +)\S+ ×", r"\g<1>77 ×", r"'77 × .*', but the records give"),
        ("† one training seed", "one training seed", "† is not explained"),
        (r"≥ (0\.\d{3})", r"\1", r"table equal-time, row .*'PF, equal calls'.*'≥ 0\.\d{3}'"),
        ("nbf:table gridworld -->", "nbf:table chess -->", "table chess: no rule says"),
    ],
)  # fmt: skip
def test_a_doctored_table_is_found(copy: Copy, old: str, new: str, words: str):
    copy.edit(old, new)
    assert re.search(words, "\n".join(copy.audit()))


def test_a_row_or_column_that_was_left_out_is_found(copy: Copy):
    assert copy.audit() == []
    text = copy.document.read_text()
    copy.document.write_text(ROW.sub("", text, count=1))
    assert any("there is no row of ('pf', '', 64)" in each for each in copy.audit())
    head, table, tail = text.partition("| Filter")[0], *text.partition("| Filter")[2].partition("\n\n")[::2]
    narrow = "\n".join("|".join(line.split("|")[:-2]) + "|" for line in ("| Filter" + table).splitlines())
    copy.document.write_text(f"{head}{narrow}\n\n{tail}")
    assert any("there is no column of 8-3D-random" in each for each in copy.audit())


def test_doctored_records_are_found(copy: Copy):
    file = copy.results / "gridworld" / "records.csv"
    lines = file.read_text().splitlines(keepends=True)
    place = next(n for n, line in enumerate(lines) if line.startswith("gridworld,8-2D-random,pf,,32,32,0,all,js,"))
    lines[place] = lines[place].replace(",js,0.", ",js,7.")
    file.write_text("".join(lines))
    found = copy.audit()
    assert any("row 'PF (32)', column '8-2D-random'" in each for each in found)
    runs = json.loads((copy.results / "gridworld" / "runs.json").read_text())
    (copy.results / "gridworld" / "runs.json").write_text(json.dumps(runs[1:]))
    assert any("no run says that it made it" in each for each in copy.audit())
    file.write_text(re.sub(r",\d00\n", ",five hundred\n", file.read_text(), count=1).replace(",1,js,", ",all,js,", 1))
    with pytest.raises(InputError, match=r"records\.csv, line \d+ is no record"):
        copy.audit()


# --- both routes on records that nobody has seen -------------------------------------------------


def filled(folder: Path, pages: dict[str, str]) -> list[str]:
    """The mismatches of a document with some tables that the report has made."""
    document = folder / "page.md"
    document.write_text("".join(f"<!-- nbf:table {name} -->\n<!-- /nbf:table -->\n" for name in pages))
    for name, table in pages.items():
        insert_table(document, name, table)
    found = audit(folder, [document])
    assert {cell.table.name for cell in found.cells} == set(pages)
    return found.mismatches


def record(
    rng: np.random.Generator, experiment: str, config: str, row: tuple[str, str, int], seed: int, **more
) -> Record:
    value = float(rng.choice([rng.lognormal(-3.0, 2.0), 1e-5, 4e-4, 0.0005]))
    fields = {"metric": "js", "value": value, "se": float(rng.exponential(0.02)), "step": ALL, "calls": row[2],
              "episodes": int(rng.integers(2, 5))}  # fmt: skip
    return Record(experiment=experiment, config=config, filter=row[0], arm=row[1], particles=row[2], seed=seed,
                  **{**fields, **more})  # fmt: skip


def some_records(rng: np.random.Generator, experiment: str, configs: dict[str, list], **more) -> list[Record]:
    """Of every row a number of seeds, at random."""
    return [
        record(rng, experiment, config, row, seed, **more)
        for config, rows in configs.items()
        for row in rows
        for seed in range(rng.integers(1, 4))
    ]


def keep(folder: Path, records: list[Record]) -> None:
    add(folder / records[0].experiment, records, Run("a", 0, "a test", 0.0, {}, {}))


BASELINES = [*(("pf", "", n) for n in (8, 32, 128)), *(("branching", "branches chosen", n) for n in (16, 64))]
NEURAL = [("nbf", "faithful", 32), ("nbf", "default", 32), ("nbf", "untrained, default", 32), ("nbf", "default", 64),
          ("prior", "", 0)]  # fmt: skip
PLANE = [
    ("nbf", "default", 32),
    ("nbf", "mixture", 32),
    ("pf-regularized", "look-ahead", 32),
    ("prior", "", 0),
    *(("pf-kde", "", n) for n in (8, 32, 128)),
]
DRAWS = 8


@pytest.mark.sampled
@pytest.mark.parametrize("draw", range(DRAWS))
def test_both_routes_agree_on_grids_and_on_prices(tmp_path: Path, draw: int):
    rng = np.random.default_rng([SEED, draw])
    grids = dict.fromkeys(("8-2D-random", "8-3D-random", "8-2D-random-long"), BASELINES + NEURAL)
    keep(tmp_path, some_records(rng, "beyond", {**grids, "triangulation": PLANE, "k=6": BASELINES + NEURAL}))
    own = [("nbf", "faithful", 16), ("nbf", "enumerated", 16), ("pf", "", 8), ("pf", "", 512), ("exact", "", 0)]
    keep(tmp_path, some_records(rng, "gridworld", {"8-2D-random": own, "5-2D-fixed": own[:1], "9-2D-random": own[:1]}))
    timed = dict.fromkeys(("8-2D-random", "8-3D-random", "k=6"), BASELINES + NEURAL + own[:2])
    times = [
        record(rng, "simulation-cost", config, row, 0, metric=metric, value=float(rng.uniform(1, 2000)), se=None)
        for config, rows in {**timed, "triangulation": PLANE}.items()
        for row in rows
        for metric in ("us_per_update", "us_per_update_100us")
    ]
    keep(tmp_path, times)
    tables = beyond.page(tmp_path / "beyond").tables | gridworld.page(tmp_path / "gridworld").tables
    assert filled(tmp_path, tables | simulation_cost.page(tmp_path / "simulation-cost").tables) == []


@pytest.mark.parametrize("draw", range(DRAWS))
def test_both_routes_agree_on_the_plane_and_on_convergence(tmp_path: Path, draw: int):
    rng = np.random.default_rng([SEED, draw])
    rows = {"triangulation": [("nbf", "faithful", 32), ("nbf", "spline", 32), ("pf", "", 32), ("ekf", "", 0)]}
    metrics = ("js", "js_pf1024", "distance")
    found = {(r.row, r.seed, r.metric): r for m in metrics for r in some_records(rng, "triangulation", rows, metric=m)}
    keep(tmp_path, list(found.values()))
    families = ("nbf", "tabular"), ("nbf", "tabular-default"), ("nbf", "faithful"), ("pf", "")
    curves = [
        record(
            rng,
            "convergence",
            "8-2D-random",
            (*family, n),
            0,
            metric="sup_error",
            value=float(rng.uniform(0.01, 1) / n),
        )
        for family in families
        for n in (1, 4, 16)
    ]
    for family in families:
        for metric in ("slope", "slope_low", "slope_high", "slope_tv"):
            curves.append(record(rng, "convergence", "8-2D-random", (*family, 0), 0, metric=metric))
    keep(tmp_path, curves)
    tables = triangulation.page(tmp_path / "triangulation").tables
    assert filled(tmp_path, tables | convergence.page(tmp_path / "convergence").tables) == []


# --- the command ---------------------------------------------------------------------------------


def test_the_command_checks_all_and_shows_one_cell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.chdir(ROOT)
    assert main(["audit"]) == 0
    assert "all as the records have it" in capsys.readouterr().out
    assert main(["audit", "gridworld", "--row", "nbf (32)", "--column", "8-2D-random"]) == 0
    shown = capsys.readouterr().out
    for part in (r"printed  0\.\d{3} ±", r"mean of \d seeds ± max\(", "results/gridworld/records.csv, line ",
                 "reproduce .*gridworld", r"jax \d+\.\d+", "commit "):  # fmt: skip
        assert re.search(part, shown)
    assert main(["audit", "gridworld", "--row", "pf (32)", "--column", "5-3D-fixed", "--json"]) == 0
    (cell,) = json.loads(capsys.readouterr().out)["shown"]
    assert cell["agrees"]
    line = cell["records"][0]
    text = (ROOT / line["file"]).read_text().splitlines()[line["line"] - 1]
    assert text.startswith("gridworld,5-3D-fixed,pf,,32,32,0,all,js,")


def test_the_command_fails_where_a_cell_differs(copy: Copy, capsys: pytest.CaptureFixture[str]):
    copy.edit(OWN + r"0\.\d{3} ± 0\.\d{3}", r"\g<1>7.777 ± 0.000")
    options = ["--results", str(copy.results), "--readme", str(copy.document)]
    empty = str(copy.results / "none")
    assert main(["audit", *options, "--docs", empty, "--paper", empty]) == 1
    assert re.search(r"'7\.777 ± 0\.000.*', but the records give '0\.\d{3} ± 0\.\d{3}", capsys.readouterr().out)
    assert main(["audit", "chess", *options, "--docs", empty, "--paper", empty]) == 2
    assert "There is no table 'chess'" in capsys.readouterr().err
    assert main(["audit", "gridworld", "--row", "chess", *options, "--docs", empty, "--paper", empty]) == 2
    assert "PF (32)" in capsys.readouterr().err
