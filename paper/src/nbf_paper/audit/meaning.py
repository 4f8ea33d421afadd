"""Labels read back: which records a row is made of."""

from __future__ import annotations

import re
from typing import Any

from nbf.errors import InputError
from nbf_paper.audit.sources import Key

FILTERS = {
    "Exact": "exact", "Approx Beliefs": "approx", "NBF": "nbf", "Fine-tuned": "fine-tuned", "Recurrent": "recurrent",
    "Kalman": "kalman", "EKF": "ekf", "UKF": "ukf", "CKF": "ckf", "EnKF": "enkf", "Exact samples": "emp",
    "Fearnhead–Clifford": "branching", "PF + KDE": "pf-kde", "PF": "pf", "Regularized PF": "pf-regularized",
    "Prior": "prior", "Reference": "reference", "Policy inference": "policy-inference", "MCMC": "mcmc",
    "Resample-move PF": "resample-move", "OpenSpiel's resampler": "openspiel", "True deal": "true-deal",
    "Interpolated tables": "interpolated-tables", "Known deal": "known",
    "Card-location network": "card-location", "True state": "state", "PF with injection": "pf-injected",
}  # fmt: skip
MODEL_ARMS = {"paper's flow": "faithful", "paper's flow to the letter": "paper", "wide softmax": "wide"}
"""The arms of models that are called otherwise in tables."""
UPDATE_ARMS = {"paper's update": "faithful", "default update": "default"}
"""The arms of updates that are called otherwise in tables."""
BEYOND_ARMS = UPDATE_ARMS | {
    "moment matching alone": "consistent alone", "no moment matching": "not consistent",
    "no chosen branches": "never expanded",
}  # fmt: skip
"""The same in `beyond`, whose records have older names."""
LABEL = re.compile(r"(?P<name>[^(),]+?)(?: \((?P<particles>\d+)\))?(?:, (?P<rest>.+))?")
UNTRAINED = "untrained "


def key_of(label: str, experiment: str) -> Key:
    """The filter, arm and particles that a label of an experiment's table stands for."""
    name, particles, rest = _parts(label)
    filter = FILTERS.get(name, name)
    if filter not in ("nbf", "approx"):
        return (filter, rest, particles)
    if experiment in ("zoo", "drift", "learning", "plaza", "touch", "crossing", "planning", "values"):
        return (filter, rest.removeprefix("fitted"), particles)
    model, _, update = rest.partition(", ")
    if experiment in ("cards", "cards-play"):
        return (filter, "learned" if model == "learned decoder" else UPDATE_ARMS.get(update, update), particles)
    if experiment == "ablation":
        return (filter, UPDATE_ARMS.get(update, update) if filter == "nbf" else "default", particles)
    blind = "untrained, " if model.startswith(UNTRAINED) else ""
    model = model.removeprefix(UNTRAINED)
    own = MODEL_ARMS.get(model, model)
    if experiment == "beyond":
        arm = BEYOND_ARMS.get(update, update) if filter == "nbf" else "default"
    elif experiment in ("simulation-cost", "wall-clock"):
        arm = "default" if update == "default update" else own
    else:
        arm = f"{own}-default" if update == "default update" else own
    return (filter, blind + arm, particles)


def models_of(label: str) -> list[str]:
    """The arms of the models that a label of NBF names: one for each domain."""
    _, _, rest = _parts(label)
    models = [model.removeprefix(UNTRAINED) for model in rest.partition(", ")[0].split(" / ")]
    return [MODEL_ARMS.get(model, model) for model in models]


def trained_model(run: dict[str, Any]) -> str | None:
    """The arm of the model that a run of `beyond` says it has trained."""
    trained = run["config"].get("trained")
    return trained.get("arm") if isinstance(trained, dict) else None


def _parts(label: str) -> tuple[str, int, str]:
    found = LABEL.fullmatch(label)
    if found is None:
        raise InputError(f"{label!r} is no label of a row.")
    return found["name"], int(found["particles"] or 0), found["rest"] or ""
