"""The page of hand inference.

| table | numbers |
|---|---|
| `cards` | mean absolute error of the marginals, who holds which card |
| `cards-worth` | how many times the calls of NBF a baseline needs for the same error |
| `cards-large` | the whole deck: log probability of the true owners |
| `cards-next` | the same: log probability of the opponents' next action |
| `cards-calibration`, `cards-reliability` | the same: whether probabilities come true |
| `cards-deals` | log probability of the true deal |
| `cards-points`, `cards-lead`, `cards-ratio`, `cards-error` | ISMCTS with each belief |
| `cards-decision`, `cards-resampler` | its times |
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from nbf.plot.style import BELIEF, VERMILION
from nbf_paper.names import BASELINES_OF_CARDS, FORECASTS, GAPS, INTERPOLATED_BASELINES_OF_CARDS, OPPONENTS
from nbf_paper.pictures import read_picture
from nbf_paper.records import ALL, Record, Row, Summary, read_records, summary
from nbf_paper.report.labels import label, row_labels, row_order
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
    "cards-next": (
        "The whole deck: mean log probability of the opponents' next action, in nats, after 8, 12, 16 and 20 actions; "
        "higher is better. The mean of the policy's probability over 512 deals of each belief, of which a hundredth is "
        "the prior's; these calls are not counted. The true deal is what there is to know."
    ),
    "cards-calibration": (
        "The whole deck: expected calibration error of the marginals: how far the mean probability of a bin and the "
        "share that came true are apart, mean over all probabilities, in ten bins."
    ),
    "cards-reliability": (
        "The whole deck: by how much more came true than was foretold, for each bin of probabilities; – where a filter "
        "has none."
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
    "cards-error": (
        "decision_error", 4, "Mean absolute error of the marginals at the decisions of player 0, over the cards that "
        "are not settled and their owners.",
    ),
    "cards-decision": ("decision_ms", 0, "Milliseconds of a decision, belief and search."),
    "cards-resampler": ("resampler_ms", 1, "Milliseconds of a decision in the resampler: belief, and making states."),
}  # fmt: skip
"""Metric, digits and caption of the tables of `cards-play`."""
PLAYERS = (
    "The prior has all deals that hand sizes, seen cards and void suits allow; exact is the ceiling, by tables of "
    "hands. Policy inference has its calls for each decision, NBF for each action of an opponent. OpenSpiel's own "
    "resampler knows which cards were not dealt. With rollouts by policies every belief but exact has the same time."
)


def play_page(folder: Path) -> Page:
    """The tables of the records of `cards-play` in a folder."""
    records = read_records(folder)
    recorded = {record.metric for record in records}
    shown = {name: part for name, part in PLAY.items() if part[0] in recorded}
    tables = {
        name: markdown_table(records, metric=metric, digits=digits) for name, (metric, digits, _) in shown.items()
    }
    return Page(tables, {}, "ISMCTS with a belief", {name: f"{told} {PLAYERS}" for name, (_, _, told) in shown.items()})


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
    if any(record.config == FORECASTS for record in records):
        tables["cards-next"] = markdown_table(records, metric="next_action_log_prob", digits=4, calls=True)
        tables["cards-calibration"] = markdown_table(records, metric="calibration_error", digits=4, calls=True)
        tables["cards-reliability"] = reliability_table(records)
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
    later = {(filter, arm): head for head, filter, arm in INTERPOLATED_BASELINES_OF_CARDS.values()}
    found = dict[tuple[str, Row, str], Summary]()
    for entry in summary(r for r in records if r.metric in (*metrics, "worth") and r.step == ALL):
        # The later ones are filed under the baseline, with as many particles as NBF has.
        head = metrics.get(entry.metric) or later[entry.filter, entry.arm]
        found[entry.config, ("nbf", "", entry.particles), head] = entry
    heads = [head for head in (*metrics.values(), *later.values()) if any(head == key[2] for key in found)]
    mixed = one_among_several(entry.over for entry in found.values())
    lines = [["Opponents", "Filter", *heads]]
    for kind in kinds:
        rows = sorted({row for config, row, _ in found if config == kind}, key=row_order)
        lines += [
            [kind, label(*row, "cards"), *(cell(found.get((kind, row, h)), 1, mixed=mixed) for h in heads)]
            for row in rows
        ]
    return layout(lines, legend(entry.over for entry in found.values()))


def reliability_table(records: list[Record]) -> str:
    """By how much more came true than was foretold: filters in the rows, bins of probabilities in the columns."""
    found = {(entry.row, entry.metric): entry for entry in summary(r for r in records if r.metric in GAPS)}
    names, mixed = row_labels(found.values()), one_among_several(entry.over for entry in found.values())
    metrics = [metric for metric in GAPS if any(metric == name for _, name in found)]
    lines = [["Filter", *(GAPS[metric] for metric in metrics)]]
    for row in sorted(names, key=row_order):
        lines.append([names[row], *(cell(found.get((row, metric)), 3, mixed=mixed) for metric in metrics)])
    return layout(lines, legend(entry.over for entry in found.values()))
