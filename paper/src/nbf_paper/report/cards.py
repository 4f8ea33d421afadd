"""The page of hand inference.

| table | numbers |
|---|---|
| `cards` | mean absolute error of the marginals, who holds which card |
| `cards-worth` | how many times the calls of NBF a baseline needs for the same error |
| `cards-large` | the whole deck: log probability of the true owners |
| `cards-deals` | log probability of the true deal |
| `cards-points`, `cards-lead`, `cards-ratio`, `cards-decision` | ISMCTS with each belief: points, and why |
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from nbf.plot.style import BELIEF, VERMILION
from nbf_paper.names import BASELINES_OF_CARDS, OPPONENTS
from nbf_paper.pictures import read_picture
from nbf_paper.records import ALL, Record, read_records, summary
from nbf_paper.report.labels import row_labels, row_order
from nbf_paper.report.tables import Page, cell, layout, legend, markdown_table, one_among_several

SHAPES = {
    "exact": "actions unseen owners", "nbf": "actions unseen owners", "unseen": "unseen", "deal": "unseen",
    "actions": "actions", "players": "actions", "cards": "1",
}  # fmt: skip
"""The arrays of the picture of a game."""
CAPTIONS = {
    "cards": (
        "Mean absolute error of the marginals (who holds which card), over the cards that are not settled, their "
        "owners and actions 4 to 12. Calls of an opponent's policy for each of their actions. The prior has all deals "
        "equally likely that what is known allows; the exact tables count a call for each hand that is possible. The "
        "ceiling, maximum entropy with the exact marginals, has no error here by its making. A network that was "
        "trained on other policies makes no call; its fine-tuning does."
    ),
    "cards-worth": (
        "How many times the calls of NBF a baseline needs for the same error, by interpolation between its budgets; "
        "where none of them has so small an error, the ratio to the largest: a lower bound."
    ),
    "cards-large": (
        "The whole deck, 4 players, 8 tricks: mean log probability of the true owner of a card that is not settled, in "
        "nats, after 8, 12, 16, 20 and 24 actions; higher is better. A hundredth of each belief is the prior's."
    ),
    "cards.png": (
        "One game, action by action (player: bid or card): the probability that each unseen card was dealt to player 1 "
        "or 2, by the exact posterior and by NBF with 64 calls. Triangles mark the hands that were dealt."
    ),
    "cards-deals": (
        "log probability of the true deal, mean over actions 4 to 12: of the exact posterior; of the exact posterior "
        "embedded and decoded, the ceiling of a filter with such a model (maximum entropy: by the exact marginals; "
        "learned decoder: by 512 samples); of filters; and of networks."
    ),
}


PLAY = {
    "cards-points": ("points", 2, "Points a game of player 0, who searches."),
    "cards-lead": ("points_lead", 2, "Points more than with the prior on the same deals."),
    "cards-ratio": (
        "true_deal_ratio", 2, "log of the true-state sampling ratio: how much likelier the true deal is drawn than by "
        "the rules alone, mean over the decisions.",
    ),
    "cards-decision": ("decision_ms", 0, "Milliseconds of a decision, search included; not on an idle machine."),
}  # fmt: skip
"""Metric, digits and caption of the tables of `cards-play`."""
PLAYERS = (
    "The prior has all deals that hand sizes, seen cards and void suits allow; exact is the ceiling, by tables of "
    "hands. OpenSpiel's own resampler knows which cards were not dealt."
)


def play_page(folder: Path) -> Page:
    """The tables of the records of `cards-play` in a folder."""
    records = read_records(folder)
    tables = {name: markdown_table(records, metric=metric, digits=digits) for name, (metric, digits, _) in PLAY.items()}
    return Page(tables, {}, "ISMCTS with a belief", {name: f"{told} {PLAYERS}" for name, (_, _, told) in PLAY.items()})


def page(folder: Path) -> Page:
    """The tables of the records in a folder."""
    records = read_records(folder)
    kinds = [kind for kind in OPPONENTS if any(record.config == kind for record in records)]
    tables = {}
    if kinds:
        tables["cards"] = markdown_table(records, configs=kinds, metric="marginal_error", digits=4, calls=True)
        tables["cards-deals"] = markdown_table(records, configs=kinds, metric="deal_log_prob", digits=2)
    if any(record.metric == "card_log_score" for record in records):
        tables["cards-large"] = markdown_table(records, metric="card_log_score", calls=True)
    if any(record.metric.startswith("worth_") for record in records):
        tables["cards-worth"] = worth_table(records, kinds)
    figures = {}
    if (folder / "game.npz").exists():
        game = read_picture(folder / "game.npz", SHAPES, "nbf-paper reproduce cards")
        figures["cards.png"] = functools.partial(game_figure, game)
    return Page(tables, figures, "Who holds what?", {name: CAPTIONS[name] for name in (*tables, *figures)})


def card_name(card: int, suits: int = 3) -> str:
    """A card as OpenSpiel prints it."""
    return f"{'CDSH'[card % suits]}{'23456789TJQKA'[card // suits]}"


def game_figure(game: Mapping[str, np.ndarray]) -> Figure:
    """Who holds each unseen card after each action: exact posterior and NBF, for both opponents, with the truth."""
    figure = Figure(figsize=(9.0, 5.2), layout="constrained")
    rows = np.lexsort((game["unseen"], game["deal"]))
    names = [card_name(int(card)) for card in game["unseen"][rows]]
    cards = int(game["cards"][0])
    told = [
        f"{player}: {card_name(int(action)) if action < cards else f'bid {action - cards}'}"
        for player, action in zip(game["players"], game["actions"], strict=True)
    ]
    axes = figure.subplots(1, 4, sharey=True)
    for place, (belief, holder) in enumerate([("exact", 0), ("nbf", 0), ("exact", 1), ("nbf", 1)]):
        panel, shown = axes[place], game[belief][:, rows, holder].T
        image = panel.imshow(shown, cmap=BELIEF, vmin=0, vmax=1, aspect="auto")
        held = np.flatnonzero(game["deal"][rows] == holder)
        panel.plot(np.full(len(held), shown.shape[1] - 0.2), held, "<", color=VERMILION, clip_on=False, markersize=5)
        panel.set_title(f"player {holder + 1}, {'exact' if belief == 'exact' else 'NBF (64)'}", fontsize=10)
        panel.set_xticks(range(len(told)), told, rotation=90, fontsize=6)
        panel.set_yticks(range(len(names)), names, fontsize=7)
    figure.colorbar(image, ax=axes, label="probability", shrink=0.6)  # pyright: ignore[reportPossiblyUnboundVariable]
    return figure


def worth_table(records: list[Record], kinds: list[str]) -> str:
    """The rows of NBF for each kind of opponents, baselines in the columns."""
    metrics = {f"worth_{name}": head for name, head in BASELINES_OF_CARDS.items()}
    entries = [(metric, entry) for metric in metrics
               for entry in summary(r for r in records if r.metric == metric and r.step == ALL)]  # fmt: skip
    found = {(entry.config, entry.row, metric): entry for metric, entry in entries}
    names = row_labels(found.values())
    mixed = one_among_several(entry.over for entry in found.values())
    lines = [["Opponents", "Filter", *metrics.values()]]
    for kind in kinds:
        rows = sorted({row for config, row, _ in found if config == kind}, key=row_order)
        lines += [
            [kind, names[row], *(cell(found.get((kind, row, m)), 1, mixed=mixed) for m in metrics)] for row in rows
        ]
    return layout(lines, legend(entry.over for entry in found.values()))
