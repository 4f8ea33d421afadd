"""The page of Goofspiel: the paper's figure, its numbers, and those of our own models.

| table | configurations | rows |
|---|---|---|
| `goofspiel` | test policies drawn at random, as in the paper | every arm |
| `goofspiel-run` | test policies from a run of their own | every arm |
| `goofspiel-entropy`, `goofspiel-entropy-run` | the same two, halved by the opponent's entropy | every arm |
| `goofspiel-legality` | all | share of a model's draws that are legal |
| `goofspiel-zero-weight` | all | share of rounds in which all weights were zero at first |
| `goofspiel-time` | all | microseconds of an update |
| `goofspiel-training` | numbers of cards | how long each model was trained |
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from nbf.plot.style import FAINT, INK
from nbf_paper.names import CARDS, game_name
from nbf_paper.records import ALL, Record, Row, Run, Summary, read_records, read_runs, summary
from nbf_paper.report.claims import Claim, beside
from nbf_paper.report.labels import MODELS, label, row_labels, row_order
from nbf_paper.report.plots import COLOURS, divergence_figure
from nbf_paper.report.tables import MISSING, Page, cell, layout, legend, markdown_table, one_among_several

SPLITS = ("", "-run")
"""The endings of the tables' names and of the configurations: `k=6`, `k=6-run`."""
HALVES = ("sharp", "diffuse")
"""The halves of the games: those with the least and with the most entropy of the opponent's bids."""
METRICS = {"legality": ("legality", 3), "zero-weight": ("zero_weight", 3), "time": ("us_per_update", 0)}
"""By the ending of a table's name, its metric and digits."""
DRAWN = {("pf", 64), ("pf", 512), ("nbf", 64), ("approx", 0), ("emp", 64), ("recurrent", 0)}
"""The filters and particle counts of the figure; it shows all if none of these is recorded."""
ARMS = {"faithful": COLOURS["nbf", ""], "autoregressive": COLOURS["nbf", "autoregressive"],
        "recurrent": COLOURS["recurrent", ""]}  # fmt: skip

CAPTIONS = {
    "goofspiel": "Mean divergence over the rounds of a game; test policies drawn at random, as in the paper. *Exact, "
    "lumped* is compared over the missing card and the set of bids, all others over sequences of bids.",
    "goofspiel-run": "The same, against test policies from a run of self-play that no training has seen.",
    "goofspiel-entropy": "Mean divergence in the half of the games in which the opponent's bids are the least random "
    "(sharp) and in the other half (diffuse); last row: the mean entropy of a bid there, in nats.",
    "goofspiel-entropy-run": "The same, against test policies from a run of self-play of their own.",
    "goofspiel-legality": "How many of a model's draws are sequences of bids that the rules allow.",
    "goofspiel-zero-weight": "In how many rounds every particle had weight zero at first, and was drawn again.",
    "goofspiel-time": "Microseconds of one update, the median of 300 in a row.",
    "goofspiel-training": "Gradient steps, games whose beliefs were trained on, minutes, and the loss over the "
    "first and the last fiftieth of the steps (nats; for a flow an upper bound of its negative log-likelihood).",
    "goofspiel.png": "Divergence from the exact posterior by round, one panel for each number of cards.",
    "goofspiel-run.png": "The same by round, against test policies from a run of self-play of their own.",
    "goofspiel-loss.png": "Training loss in nats, the mean of fifty parts of each training, one line for each seed.",
}
CONFIGS = tuple(map(game_name, CARDS))
APPROX, NBF = ("approx", "faithful", 0), ("nbf", "faithful", 64)
APPROX_AR, NBF_AR = ("approx", "autoregressive", 0), ("nbf", "autoregressive", 64)
PF64, PF512 = ("pf", "", 64), ("pf", "", 512)
CLAIMS = (
    Claim("Late beliefs are hard to model: the error of Approx Beliefs grows with the size of the game.",
          (APPROX, APPROX_AR), CONFIGS),
    Claim("This may be due to strong constraints on legal states (the share of a model's draws that are legal).",
          (APPROX, NBF), CONFIGS, "legality"),
    Claim("Inaccuracies of the embedding model have negative effects on NBF.", (APPROX, NBF, APPROX_AR, NBF_AR),
          CONFIGS),
    Claim("NBF outperforms the particle filters with an order of magnitude fewer particles (64 against 512) in all "
          "four sizes.", (NBF, NBF_AR, PF64, PF512), (*CONFIGS, *(f"{config}-run" for config in CONFIGS))),
)  # fmt: skip
LATER = "The particle filter's performance improves at later rounds, as the entropy of the belief drops."


def page(folder: Path) -> Page:
    """The tables and figures of the records in a folder."""
    records, runs = read_records(folder), [run for run in read_runs(folder) if "loss_curve" in run.config]
    tables: dict[str, str] = {}
    figures: dict[str, Callable[[], Figure]] = {}
    for ending in SPLITS:
        mine = [record for record in records if record.config.endswith("-run") == bool(ending)]
        panels = sorted({record.config for record in mine})
        if mine:
            tables[f"goofspiel{ending}"] = markdown_table(mine, configs=panels)
            figures[f"goofspiel{ending}.png"] = functools.partial(figure, mine, panels)
        if any(record.metric == "js_sharp" for record in mine):
            tables[f"goofspiel-entropy{ending}"] = entropy_table(mine, panels)
    for name, (metric, digits) in METRICS.items():
        panels = sorted({record.config for record in records if record.metric == metric}, key=_split_order)
        if panels:
            tables[f"goofspiel-{name}"] = markdown_table(records, configs=panels, metric=metric, digits=digits)
    if runs:
        tables["goofspiel-training"] = training_table(runs)
        figures["goofspiel-loss.png"] = functools.partial(loss_figure, runs)
    return Page(tables, figures, "Goofspiel", CAPTIONS, [*beside(CLAIMS, records), (LATER, rounds(records, PF512))])


def _split_order(config: str) -> tuple[bool, str]:
    return (config.endswith("-run"), config)


def figure(records: Sequence[Record], panels: Sequence[str]) -> Figure:
    """JS by round, one panel for each number of cards."""
    chosen = [record for record in records if (record.filter, record.particles) in DRAWN]
    drawn = divergence_figure(chosen or records, panels)
    for axis in drawn.axes:
        axis.set_xlabel("round")
    return drawn


def rounds(records: Sequence[Record], row: Row) -> str:
    """The JS of one filter by round, a line for each number of cards."""
    found = [entry for entry in summary(records) if entry.row == row and entry.metric == "js"]
    lines = []
    for config in CONFIGS:
        numbers = [f"{entry.value:.3f}" for entry in found if entry.config == config and entry.step != ALL]
        lines += [f"{config}: {label(*row)} {', '.join(numbers)}"] if numbers else []
    return "\n".join(lines) or "not recorded"


# --- by the opponent's entropy -------------------------------------------------------------------


def entropy_table(records: Sequence[Record], panels: Sequence[str]) -> str:
    """JS of every filter in both halves of the games, and the entropy of a bid there."""
    found: dict[tuple[Row, str, str], Summary] = {
        (entry.row, entry.config, entry.metric): entry for entry in summary(records) if entry.step == ALL
    }
    columns = [(config, half) for config in panels for half in HALVES]
    lines = [["Filter", *(f"{config}, {half}" for config, half in columns)]]
    shown = {place: entry for place, entry in found.items() if place[2] in ("js_sharp", "js_diffuse")}
    names, mixed = row_labels(shown.values()), one_among_several(entry.over for entry in shown.values())
    for row in sorted(names, key=row_order):
        entries = (shown.get((row, config, f"js_{half}")) for config, half in columns)
        lines.append([names[row], *(cell(entry, 3, mixed=mixed) for entry in entries)])
    told = {(config, metric): entry for (_, config, metric), entry in found.items()}
    entropies = (told.get((config, f"entropy_{half}")) for config, half in columns)
    last = ["*entropy of a bid*", *(f"{e.value:.2f}" if e else MISSING for e in entropies)]
    return layout([*lines, last], legend(entry.over for entry in shown.values()))


# --- the trainings -------------------------------------------------------------------------------


def _trained(run: Run) -> tuple[int, str]:
    """Number of cards, arm."""
    return (run.config["environment"]["cards"], run.config["arm"])


def training_table(runs: Sequence[Run]) -> str:
    """One line per model: its training, over all seeds."""
    lines = [["Model", "steps", "games", "seeds", "minutes", "loss, first", "loss, last"]]
    for cards, arm in sorted({_trained(run) for run in runs}):
        mine = [run.config for run in runs if _trained(run) == (cards, arm)]
        games = {str((config.get("pool") or ["new ones"])[0]) for config in mine}
        steps = {str(config["training"]["steps"]) for config in mine}
        numbers = [
            [config["seconds"]["training"] / 60, config["loss_curve"][0], config["loss_curve"][-1]] for config in mine
        ]
        minutes, first, last = np.mean(numbers, axis=0)
        behind = [", ".join(sorted(steps)), ", ".join(sorted(games)), str(len(mine))]
        lines.append([f"k={cards}, {MODELS.get(arm, arm)}", *behind, f"{minutes:.1f}", f"{first:.2f}", f"{last:.2f}"])
    return layout(lines)


def loss_figure(runs: Sequence[Run]) -> Figure:
    """The loss of every training, one panel for each number of cards."""
    sizes = sorted({cards for cards, _ in map(_trained, runs)})
    drawn = Figure(figsize=(0.8 + 2.4 * len(sizes), 2.8), layout="constrained")
    for axis, cards in zip(drawn.subplots(1, len(sizes), squeeze=False)[0], sizes, strict=True):
        names = set()
        for run in sorted(
            (run for run in runs if _trained(run)[0] == cards), key=lambda run: (_trained(run), run.seed)
        ):
            curve, arm = run.config["loss_curve"], run.config["arm"]
            steps = run.config["training"]["steps"] * (np.arange(len(curve)) + 0.5) / len(curve)
            name = None if arm in names else MODELS.get(arm, arm)
            axis.plot(steps, curve, color=ARMS.get(arm, FAINT), linewidth=1.3, label=name)
            names.add(arm)
        axis.set_title(f"k={cards}", fontsize=10.5, color=INK)
        axis.set_xlabel("gradient step", fontsize=9.5, color=INK)
        axis.set_ylim(bottom=0)
        axis.spines[["top", "right"]].set_visible(False)
        axis.spines[["left", "bottom"]].set_color(FAINT)
        axis.tick_params(colors=INK, labelsize=8.5, length=3, color=FAINT)
        axis.grid(axis="y", color="#e4e4e4", linewidth=0.7)
    drawn.axes[0].set_ylabel("loss (nats)", fontsize=9.5, color=INK)
    drawn.axes[0].legend(frameon=False, fontsize=8.5, labelcolor=INK)
    return drawn
