"""What filters do when every likelihood is zero: the table of docs/zero-likelihood.md, from the real packages.

    make bench-zero        (or: python -m benchmarks.zero_likelihood [--cache FOLDER] [--redraw])

Every package runs in an environment of its own, made once in the cache folder (`benchmarks.peers.installed`).
`benchmarks.peers.scenario` is the bad day; the modules beside it live through it.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.peers.installed import CACHE, PINS, ROOT, interpreter
from benchmarks.peers.scenario import BAD, OBSERVATIONS, PARTICLES, SEEDS, START, STEP, WIDTH, exact
from nbf.files.atomic import write_atomically

RECORD = ROOT / "results" / "zero-likelihood" / "observed.json"
PAGE = ROOT / "docs" / "zero-likelihood.md"
PLACE = re.compile(r"(?<=<!-- bench:zero-likelihood -->\n).*(?=<!-- /bench:zero-likelihood -->)", re.DOTALL)

NAMES = {"neural-bayesian-filtering": "**nbf**", "filterpy": "FilterPy", "stonesoup": "Stone Soup"}
"""What the table calls a package, where that is not its name in an index."""


def rows_of(peer: str, python: Path | str) -> list[dict[str, Any]]:
    """What a peer's module prints, run from the root of the repository."""
    command = [python, "-m", f"benchmarks.peers.{peer}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{peer} did not run:\n{done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def scenario() -> dict[str, Any]:
    """The bad day in numbers, for the record."""
    mean, deviation = exact()
    return {
        "particles": PARTICLES,
        "seeds": SEEDS,
        "start": START,
        "step": STEP,
        "width": WIDTH,
        "observations": list(OBSERVATIONS),
        "impossible": BAD,
        "exact": {"mean": round(mean, 3), "spread": round(deviation, 3)},
    }


def table(record: dict[str, Any]) -> str:
    """The record as Markdown."""
    seeds, truth = record["scenario"]["seeds"], record["scenario"]["exact"]
    good = len(record["scenario"]["observations"]) - record["scenario"]["impossible"] - 1
    head = (
        "package", "used with", "at the impossible observation", "sign", "ESS", "log-evidence", "particles that go on",
        f"error of the mean {good} observations later", f"standard deviation (exact: {truth['spread']:.2f})",
        f"right, of {seeds}",
    )  # fmt: skip
    lines = [head, ("---",) * 4 + ("---:",) * 6, *map(_cells, record["rows"])]
    return "\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines) + "\n"


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    facts, package = row["facts"], row["package"]
    signs = ", ".join(f"`{sign}`" for sign in facts["signs"]) or "none"
    start = (f"{NAMES.get(package, package)} {row['versions'][package]}", row["way"], _outcome(facts), signs)
    if not facts["finished"]:
        return (*start, *("–",) * 5, "0")
    ranges = (_range(facts[name], digits) for name, digits in (("ess", 0), ("log_evidence", 1), ("go_on", 0)))
    return (*start, *ranges, _number(facts["error"], 2), _number(facts["spread"], 2), str(facts["right"]))


def _outcome(facts: dict[str, Any]) -> str:
    if facts["raised"]:
        return "raises " + ", ".join(f"`{error.split(':')[0]}`" for error in facts["raised"])
    if facts["nan_at_the_end"]:
        return "NaN, for good"
    return "NaN, for one step" if facts["nan_at_bad_step"] else "goes on"


def _range(values: list[float | str | None], digits: int) -> str:
    return " to ".join(dict.fromkeys(_number(value, digits) for value in values))


def _number(value: float | str | None, digits: int) -> str:
    words = {None: "not told", "nan": "NaN", "-inf": "−∞", "inf": "∞"}
    return f"{value:.{digits}f}" if isinstance(value, float | int) else words[value]


def main() -> None:
    parser = argparse.ArgumentParser(description="What filters do when every likelihood is zero.")
    parser.add_argument("--cache", type=Path, default=CACHE, help="where the packages' environments are")
    parser.add_argument("--redraw", action="store_true", help="only redraw the table from the record")
    arguments = parser.parse_args()
    if not arguments.redraw:
        rows = rows_of("nbf", sys.executable)
        for peer in PINS:
            rows += rows_of(peer, interpreter(peer, arguments.cache.resolve()))
        record = {"command": "python -m benchmarks.zero_likelihood", "scenario": scenario(), "rows": rows}
        write_atomically(RECORD, json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    text = table(json.loads(RECORD.read_text()))
    write_atomically(PAGE, PLACE.sub(lambda _: text, PAGE.read_text()))
    print(text)


if __name__ == "__main__":
    main()
