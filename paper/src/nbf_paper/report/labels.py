"""Names of rows: a filter with its particles, the belief model it uses, and how it updates.

A record's arm names the model in some experiments and the update in others. A label names both where they are not the
paper's, so that no label stands for two things in any two tables:

| experiment | arm | model | update |
|---|---|---|---|
| gridworld, goofspiel, triangulation, fine-tuned | the model's | `faithful` is the paper's flow | the paper's; the default one if the arm ends in `-default` |
| beyond | the update's | the one that `BEYOND` has for the domain | `faithful` is the paper's |
| zoo, drift, plaza, touch, crossing, planning | empty, or `untrained` | *fitted*: what `nbf.fit` chooses and trains for each problem | the default one |
| values | what a policy sees of the belief, or who decides | *fitted*, of the task | the default one |
| learning | how the model was trained, and for how long | that of the arm | the default one |
| ablation | the update's | *fitted* | the default one without a part |
| cards, cards-play | the update's, or `learned` | maximum entropy; `learned` is the learned decoder | the default one; `faithful` is the paper's |
| simulation-cost, wall-clock | the model's, but `default` | that of the arm; with `default` as in beyond | the paper's; with `default` the default one |
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nbf_paper.names import TRIANGULATION, domain_of
from nbf_paper.records import Row, Summary

FILTERS = {
    "state": "True state",
    "reference": "Reference",
    "true-deal": "True deal",
    "exact": "Exact",
    "exact-lumped": "Exact, lumped",
    "approx": "Approx Beliefs",
    "nbf": "NBF",
    "fine-tuned": "Fine-tuned",
    "recurrent": "Recurrent",
    "kalman": "Kalman",
    "ekf": "EKF",
    "ukf": "UKF",
    "ckf": "CKF",
    "enkf": "EnKF",
    "emp": "Exact samples",
    "branching": "Fearnhead–Clifford",
    "pf-regularized": "Regularized PF",
    "pf-injected": "PF with injection",
    "pf-kde": "PF + KDE",
    "pf": "PF",
    "known": "Known deal",
    "openspiel": "OpenSpiel's resampler",
    "interpolated-tables": "Interpolated tables",
    "policy-inference": "Policy inference",
    "mcmc": "MCMC",
    "resample-move": "Resample-move PF",
    "card-location": "Card-location network",
    "prior": "Prior",
}
"""The names of the filters in a report, in the order of the rows."""
PAPER = "paper's flow"
MODELS = {"faithful": PAPER, "paper": "paper's flow to the letter", "wide": "wide softmax"}
"""The names of models, where they are not those of their arms."""
BEYOND = {"gridworld": "wide softmax", "goofspiel": "autoregressive", TRIANGULATION: "mixture"}
"""The model of each domain in the experiment `beyond`."""
UPDATES = {
    "faithful": "paper's update",
    "default": "default update",
    "consistent alone": "moment matching alone",
    "not consistent": "no moment matching",
    "never expanded": "no chosen branches",
}
"""The names of updates, where they are not those of their arms."""
MIXED = ("simulation-cost", "wall-clock")
"""Experiments that have both updates, and arms that are models."""
FITTED = "fitted"
"""The model of the zoo: what nbf.fit chooses and trains for each problem."""
MAXIMUM_ENTROPY = "maximum entropy"
"""The model of the card game, which needs no training."""
LEARNED_DECODER = "learned decoder"
"""The other model of the card game."""
UNTRAINED = "untrained, "
"""How the arm of a model begins that was never trained."""


def label(filter: str, arm: str = "", particles: int = 0, experiment: str = "", configs: Sequence[str] = ()) -> str:
    """`NBF (16), paper's flow`, `NBF (32), mixture, default update` or `PF (64)`: a row of a table of some experiment.

    `configs` are those in which the row has numbers: the model may differ between them.
    """
    name = FILTERS.get(filter, filter)
    count = f" ({particles})" if particles else ""
    if filter not in ("nbf", "approx"):
        return f"{name}{count}{f', {arm}' if arm else ''}"
    pairs = [model_and_update(experiment, arm, config) for config in configs or [""]]
    models = " / ".join(dict.fromkeys(model for model, _ in pairs if model))
    update = pairs[0][1] if filter == "nbf" else ""
    return ", ".join(part for part in (f"{name}{count}", models, update) if part)


def model_and_update(experiment: str, arm: str, config: str) -> tuple[str, str]:
    """What an arm of NBF or of Approx Beliefs stands for; empty where it need not be said."""
    if experiment in ("zoo", "drift", "learning", "plaza", "touch", "crossing", "planning", "values"):
        return arm or FITTED, ""
    if experiment in ("cards", "cards-play"):
        return (LEARNED_DECODER, "") if arm == "learned" else (MAXIMUM_ENTROPY, UPDATES.get(arm, arm))
    if experiment == "ablation":
        return FITTED, UPDATES.get(arm, arm)
    untrained, base = arm.startswith(UNTRAINED), arm.removeprefix(UNTRAINED)
    if experiment == "beyond" or base == "default":
        model, update = BEYOND[domain_of(config)] if config else "", UPDATES.get(base, base)
    else:
        name = base.removesuffix("-default")
        model = MODELS.get(name, name)
        said = experiment in MIXED and model != PAPER
        update = UPDATES["default"] if base != name else UPDATES["faithful"] if said else ""
    return (f"untrained {model}" if untrained else model), update


def row_labels(entries: Iterable[Summary]) -> dict[Row, str]:
    """The label of every row that has an entry."""
    found: dict[Row, dict[str, str]] = {}
    for entry in entries:
        found.setdefault(entry.row, {})[entry.config] = entry.experiment
    return {row: label(*row, next(iter(configs.values())), tuple(configs)) for row, configs in found.items()}


def row_order(row: Row) -> tuple[int, str, bool, str, int]:
    """Sort key of rows: exact, the ceiling, NBF and then its baselines; the paper's arm first; few particles first."""
    names = list(FILTERS)
    filter, arm, particles = row
    place = names.index(filter) if filter in names else len(names)
    return (place, filter, arm not in ("", "faithful"), arm, particles)
