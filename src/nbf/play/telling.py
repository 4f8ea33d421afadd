"""A session as the page is told it: one JSON message after each change."""

from __future__ import annotations

import base64
import math
from typing import Any

import numpy as np

from nbf.play.problems import PROBLEMS
from nbf.play.problems.problem import EXACT, NEURAL, NEURAL_COUNTS, PARTICLE, PARTICLE_COUNTS
from nbf.play.programs import ALARM
from nbf.play.session import MAX_STEPS, Session

LABELS = {PARTICLE: "Particle filter", NEURAL: "Neural filter"}


def label(session: Session, role: str) -> str:
    """Name a filter.

    Args:
        session: Of the filter.
        role: Of the filter.

    Returns:
        A name for a reader.
    """
    return session.problem.reference if role == EXACT else LABELS[role]


def greeting() -> dict[str, Any]:
    """Tell what does not change.

    Returns:
        A message.
    """
    told = ("name", "title", "actions", "shape", "picture")
    problems = [{name: getattr(problem, name) for name in told} for problem in PROBLEMS.values()]
    counts = {PARTICLE: PARTICLE_COUNTS, NEURAL: NEURAL_COUNTS}
    return {"type": "hello", "problems": problems, "counts": counts, "most": MAX_STEPS, "alarm": ALARM}


def frame_message(session: Session) -> dict[str, Any]:
    """Tell what is to be seen.

    Args:
        session: Of the page.

    Returns:
        A message: beliefs on a map as bytes (the square root of a cell's probability over the largest of the truth, at
        most 1), those in a table as the probabilities of each row, None for a row without; their numbers, and those of
        all steps.
    """
    problem, frame, now = session.problem, session.frame, session.cursor
    most = float(np.max(frame.readings[EXACT].view.probs))
    said = "the start: nothing has been observed"
    if now:
        said = problem.said(frame.used, frame.action, frame.told, frame.observed)
    filters = [_filter(session, role, most) for role in frame.readings]
    return {
        "type": "frame",
        "problem": problem.name,
        "settings": frame.settings,
        "step": now,
        "steps": session.steps,
        "said": said,
        "marks": problem.marks(frame.settings, frame.world, now),
        "trail": _trail(session) if problem.picture == "map" else [],
        "most": most,
        "filters": filters,
        "history": {role: _history(session, role) for role in frame.readings},
        "recipe": session.recipe(),
    }


def _filter(session: Session, role: str, most: float) -> dict[str, Any]:
    reading, drawn = session.frame.readings[role], {}
    if session.problem.picture == "table":
        drawn["table"] = table(session, session.cursor, role)
    else:
        shades = np.sqrt(np.minimum(reading.view.probs / most, 1.0))
        drawn["shades"] = _bytes(np.rint(255 * shades).astype(np.uint8))
        dots = np.asarray(reading.view.dots, np.float32)
        drawn["dots"] = [[round(float(value), 3) for value in dot] for dot in dots if dot[2] > 0]
    return drawn | {
        "role": role,
        "label": label(session, role),
        "count": session.problem.counts(session.frame.used)[role],
        "js": None if role == EXACT else _number(reading.view.js),
        "ess": _number(reading.ess),
        "evidence": _number(reading.log_evidence),
        "p": _number(reading.bets.p) if session.cursor else None,
        "log_e": _number(reading.bets.log_e),
        "alarm": bool(reading.bets.alarm),
        "recovered": reading.recovered,
        "microseconds": _number(session.median_microseconds(role)),
    }


def _history(session: Session, role: str) -> dict[str, list[float | None]]:
    readings = [frame.readings[role] for frame in session.frames]
    return {
        "js": [None if role == EXACT else _number(reading.view.js) for reading in readings],
        "ess": [_number(reading.ess) for reading in readings],
        "evidence": [_number(reading.log_evidence) for reading in readings],
        "log_e": [_number(reading.bets.log_e) for reading in readings],
    }


def _trail(session: Session) -> list[list[float]]:
    """Where whoever moves was at each step."""
    marks = [
        session.problem.marks(frame.settings, frame.world, number)
        for number, frame in enumerate(session.frames[: session.cursor + 1])
    ]
    return [mark.get("boat", mark["agent"]) for mark in marks]


def table(session: Session, number: int, role: str) -> list[list[float] | None]:
    """Read a belief as the rows of a table.

    Args:
        session: Of the episode.
        number: Of the step.
        role: Of the filter.

    Returns:
        For each row the probability of each column; None for a row that is no question any more.
    """
    cells = np.asarray(session.frames[number].readings[role].view.probs, float).reshape(session.problem.shape)
    return [(row / row.sum()).round(4).tolist() if row.sum() > 0 else None for row in cells]


def _number(value: Any) -> float | None:
    """A number for JSON, which has no infinity."""
    if value is None or not math.isfinite(float(value)):
        return None
    return round(float(value), 5)


def _bytes(values: np.ndarray) -> str:
    return base64.b64encode(values.tobytes()).decode("ascii")
