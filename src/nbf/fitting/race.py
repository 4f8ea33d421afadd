"""The rows of a comparison, filled one after the other, and how far its reference can be trusted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Array, Float

from nbf import prng
from nbf.capabilities import ContinuousSpace
from nbf.capability import capability
from nbf.contracts import Environment, Filter
from nbf.errors import InputError
from nbf.evaluation.belief_scores import DRAWS, LOWEST, ReferenceBelief, smoothed_log_scores
from nbf.filters.particle import ParticleFilter
from nbf.filters.prediction import PredictionFilter
from nbf.fitting.comparison import Comparison
from nbf.fitting.contenders import PRIOR_PARTICLES, Contender
from nbf.fitting.episodes import StepScores, instance, reference_beliefs, score
from nbf.fitting.filtering import Episodes
from nbf.fitting.rows import Row, Values, is_better
from nbf.fitting.timing import microseconds

MOST_DISAGREEMENT = 0.05
"""Divergence between two runs of the reference from which it is called poor; of an energy distance, times √d."""
LEAST_DISTINCT = 50.0
"""Effective number of different states in the draws of a reference belief over a box, below which it is called poor."""
WORTH_SAYING = 0.1
"""Nats by which a filter must beat the reference's log score for that to be said."""


class Race:
    """The rows so far."""

    def __init__(self, episodes: Episodes, seed: int, quick: bool, blank: Comparison, contenders: Sequence[Contender]):
        """Prepare a race.

        Args:
            episodes: On which filters are compared.
            seed: Root seed of the filters.
            quick: Leave out the times.
            blank: The comparison without any row; its reference counts as sound only if it is exact.
            contenders: The rows to be, the prior first.
        """
        self.episodes, self.seed, self.quick = episodes, seed, quick
        self.blank, self.contenders = blank, contenders
        self.rows: list[Row] = []
        self.notes: list[str] = []
        self.reference: ReferenceBelief | None = None
        self.width: Float[Array, " d"] | None = None
        self.prior: Float[np.ndarray, "episodes steps"] | None = None
        self.truth = ""

    def run(self, chosen: Filter, advance: Callable[[int], None]) -> None:
        """Fill all rows.

        Args:
            chosen: The reference filter.
            advance: Called with 1 after the reference and after each row.
        """
        size = chosen.num_particles if isinstance(chosen, ParticleFilter) else ""
        self.truth = f"{type(chosen).__name__}({size})"
        self.reference, self.width = reference_beliefs(chosen, self._key("reference"), self.episodes)
        advance(1)
        for contender in self.contenders:
            try:
                self.rows.append(self._row(contender))
            except InputError as error:
                if contender.kind in ("prior", "reference", "neural"):
                    raise
                self.notes.append(f"{contender.name} was left out: {error}")
            advance(1)

    def result(self) -> Comparison:
        """What is known so far."""
        done = {row.name for row in self.rows}
        left_out = {note.split(" was left out")[0] for note in self.notes}
        unfinished = tuple(each.name for each in self.contenders if each.name not in done | left_out)
        measure = "JS" if self.width is None else "energy"
        sound, told = True, f"{self.truth}, exact"
        if not self.blank.reference_sound:
            sound, told = self._quality()
        return replace(
            self.blank, rows=tuple(self.rows), notes=(*self.blank.notes, *self.notes, *_surprises(self.rows)),
            unfinished=unfinished, measure=measure, reference=told, reference_sound=sound,
        )  # fmt: skip

    def _key(self, *names: str | int) -> Any:
        return prng.stream(self.seed, "compare", "filters", *names)

    def _row(self, contender: Contender) -> Row:
        assert self.reference is not None
        scored = [
            score(filter, self._key(contender.name, place), self.episodes, self.reference, self.width)
            for place, filter in enumerate(contender.filters)
        ]
        if contender.kind == "prior":
            self.prior = _floored(np.asarray(scored[0].log_prob), contender.filters[0], instance(self.episodes, 0)[0])
        time = None
        if contender.timed and not self.quick:
            time = microseconds(contender.filters[0], self._key(contender.name, "time"), self.episodes)
        calls = None
        if contender.calls is not None:
            calls = contender.calls * float(np.mean([each.attempts for each in scored]))
        return Row(contender.name, contender.kind, contender.particles, calls, time, *self._means(contender, scored))

    def _means(self, contender: Contender, scored: Sequence[StepScores]) -> tuple[Values, Values]:
        """Of each model and episode; what is not finite is said, never averaged."""
        assert self.prior is not None
        log_scores = np.stack([smoothed_log_scores(np.asarray(each.log_prob), self.prior) for each in scored])
        if contender.kind == "prior":
            log_scores = np.maximum(self.prior, LOWEST)[None]
        distances = np.stack([np.asarray(each.divergence, np.float64) for each in scored])
        bad = ~np.isfinite(distances)
        broken = float(np.mean(bad | np.isnan(np.stack([each.log_prob for each in scored]))))
        if np.any(np.all(bad, axis=-1)):
            raise InputError(f"all beliefs of an episode are NaN or infinite ({broken:.0%} of all beliefs).")
        if broken > 0:
            told = "of its beliefs are not finite; they count as excluding the state."
            self.notes.append(f"{contender.name}: {broken:.1%} {told}")
        means = np.nanmean(np.where(bad, np.nan, distances), axis=-1)
        return _values(log_scores.mean(axis=-1)), _values(means)

    def _quality(self) -> tuple[bool, str]:
        """Whether a reference that is not exact can be trusted, and how it is described."""
        second = next((row for row in self.rows if row.kind == "reference"), None)
        if second is None or self.reference is None:
            return False, f"{self.truth}, not yet checked"
        told = [f"two runs differ by {second.divergence:.3f}"]
        limit, distinct = MOST_DISAGREEMENT, None
        if self.reference.draws is not None:
            limit *= float(np.sqrt(self.reference.draws.shape[-1]))
            if capability(instance(self.episodes, 0)[0].space, ContinuousSpace) is not None:
                distinct = _distinct(np.asarray(self.reference.draws))
                told.append(f"{distinct:.0f} different states in {DRAWS} draws")
        sound = second.divergence <= limit and (distinct is None or distinct >= LEAST_DISTINCT)
        verdict = "" if sound else f": POOR, so rows are ranked by log score; {_better_reference(distinct)}"
        return sound, f"{self.truth}, {', '.join(told)}{verdict}"


def _better_reference(distinct: float | None) -> str:
    """What to do about a poor reference, of whose draws so many differ; None where that was not counted."""
    if distinct is None:
        return "give a larger or another `reference`"
    return (
        "give another `reference`, and the same as `teacher` of nbf.fit: nbf.RegularizedParticleFilter(4096) draws its "
        "particles anew where they have become copies, as those of a hidden constant do"
    )


def _floored(
    log_probs: Float[np.ndarray, "episodes steps"], prior: Filter, environment: Environment
) -> Float[np.ndarray, "episodes steps"]:
    """The prior's log-probabilities. A discrete state that none of its particles is in counts as half a particle."""
    found = np.asarray(log_probs, np.float64)
    found = np.where(np.isnan(found), -np.inf, found)
    counted = isinstance(prior, PredictionFilter) and isinstance(prior.filter, ParticleFilter)
    if not counted or capability(environment.space, ContinuousSpace) is not None:
        return found
    return np.maximum(found, np.log(0.5 / PRIOR_PARTICLES))


def _values(numbers: Float[np.ndarray, "models episodes"]) -> Values:
    return tuple(tuple(part) for part in numbers.tolist())


def _distinct(draws: Float[np.ndarray, "episodes steps n d"]) -> float:
    """The effective number of different draws, 1 / Σ (share of each)², in the mean over beliefs."""
    found = []
    for belief in draws.reshape(-1, *draws.shape[2:]):
        counts = np.unique(belief, axis=0, return_counts=True)[1]
        found.append(len(belief) ** 2 / np.sum(counts.astype(np.float64) ** 2))
    return float(np.mean(found))


def _surprises(rows: Sequence[Row]) -> list[str]:
    """Filters that know the true state better than the reference does, which no filter should."""
    reference = next((row for row in rows if row.kind == "reference"), None)
    if reference is None:
        return []
    names = [
        f"{row.name} ({row.log_score:.2f})"
        for row in rows
        if row.log_score > reference.log_score + WORTH_SAYING and is_better(row, reference, "log score")
    ]
    if not names:
        return []
    return [f"Better than the reference ({reference.log_score:.2f}) by log score: {', '.join(names)}."]
