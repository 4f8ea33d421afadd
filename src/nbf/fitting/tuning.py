"""The width of the kernel of a regularised particle filter, chosen on episodes of a family.

What a neural filter gets from `nbf.fit` (`nbf.fitting.trust`), for the filter without a network: each of several widths
is run on the same episodes with the same random numbers, and the one that tells the true states best is kept.
"""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np

from nbf import prng
from nbf.capabilities import ContinuousSpace, LookAhead
from nbf.capability import capability
from nbf.compiling import without_alarms
from nbf.contracts import Environment, Family, Policy, StateSpace
from nbf.environments.functional import as_family
from nbf.errors import InputError
from nbf.filters.regeneration import KernelSmoother
from nbf.filters.regularized import RegularizedParticleFilter
from nbf.fitting.episodes import draw_episodes, log_scores_in_turn
from nbf.fitting.teacher import horizon_of
from nbf.fitting.trust import EPISODES, LONGEST, SCALES, log_floor
from nbf.training.progress import Progress


def tuned(
    filter: RegularizedParticleFilter,
    family: Family | Environment | tuple[Environment, Policy],
    *,
    horizon: int | None = None,
    seed: int = 0,
    episodes: int = EPISODES,
    progress: bool = True,
) -> RegularizedParticleFilter:
    """Choose the width of the kernel of a regularised particle filter.

    Args:
        filter: With its number of particles, for which the width is chosen.
        family: A family, one environment with its policy, or one environment whose policy is None.
        horizon: Length of an episode, of which at most 32 steps are made; None is 20, or that of an `Episodic` family.
        seed: Root seed of all randomness.
        episodes: On how many.
        progress: Whether to show a progress bar.

    Returns:
        The filter with the width that gives the true states the largest mean log score.
    """
    if not isinstance(filter, RegularizedParticleFilter) or episodes < 1:
        raise InputError(
            f"tuned takes a RegularizedParticleFilter and at least 1 episode; got {filter!r} and {episodes}."
        )
    family = as_family(family)
    space = _space(family, seed)
    steps = min(horizon_of(family, horizon), LONGEST)
    if steps < 1:
        raise InputError(f"tuned needs episodes of at least 1 step; got {horizon}.")
    key, scores = prng.stream(seed, "tuned", "filter"), []
    with without_alarms(), Progress("width of the kernel", len(SCALES), 0, enabled=progress, unit="run") as bar:
        drawn = draw_episodes(family, prng.stream(seed, "tuned", "episodes"), episodes, steps)
        for scale in SCALES:
            # An array, so that all widths are one program.
            tried = replace(filter, smoother=KernelSmoother(jax.numpy.float32(scale)))
            found = np.asarray(log_scores_in_turn(tried, key, drawn), np.float64)
            scores.append(np.mean(np.logaddexp(found, log_floor(space))))
            bar.advance(1)
    best = int(np.argmax(np.nan_to_num(scores, nan=-np.inf)))
    return replace(filter, smoother=KernelSmoother(SCALES[best]))


def _space(family: Family, seed: int) -> StateSpace:
    """The space of a family's states, if its kernels have a width to choose."""
    environment, _ = family.sample(prng.stream(seed, "tuned"))
    continuous = capability(environment.space, ContinuousSpace) is not None
    if continuous and capability(environment, LookAhead) is not None:
        raise InputError(
            f"{type(environment).__name__} can look ahead, so particles are drawn anew at every step, from a kernel of "
            "fixed width: there is nothing to tune."
        )
    return environment.space
