"""The trial at the end of `nbf.fit`: its filter beside others on fresh episodes.

No trial is worth losing a trained model for: whatever goes wrong in it, the model is handed over.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import replace

from nbf.compiling import without_alarms
from nbf.contracts import Family
from nbf.errors import InputError
from nbf.filters.checks import check_counts
from nbf.fitting.compare import ComparisonStopped, trial
from nbf.fitting.fitted import FittedModel


class TrialStopped(KeyboardInterrupt):
    """`nbf.fit` was interrupted while it measured what the model is worth: it is trained, and `fitted` has it."""

    def __init__(self, fitted: FittedModel):
        super().__init__("the model is trained; `fitted` of this error has it")
        self.fitted = fitted


def check_trial(episodes: int) -> None:
    """Raise unless a trial can have so many episodes.

    Args:
        episodes: How many; 0 is no trial.
    """
    check_counts("nbf.fit", least=0, trial=episodes)
    if episodes == 1:
        raise InputError("A trial needs 2 episodes at least, for a standard error, or 0 for no trial; got trial=1.")


def with_trial(
    family: Family, fitted: FittedModel, episodes: int, horizon: int, seed: int, progress: bool
) -> FittedModel:
    """Try the filter of a model.

    Args:
        family: On which it was fitted.
        fitted: The model.
        episodes: How many; 0 is no trial.
        horizon: Steps of an episode.
        seed: Root seed of all randomness.
        progress: Whether to show a progress bar.

    Returns:
        The model with its trial, or as it was, with a warning, if none could be made.
    """
    if episodes == 0:
        return fitted
    begin = time.monotonic()
    try:
        with without_alarms():
            found = trial(family, fitted, episodes=episodes, horizon=horizon, seed=seed, progress=progress)
    except KeyboardInterrupt as stop:
        so_far = stop.comparison if isinstance(stop, ComparisonStopped) else None
        raise TrialStopped(replace(fitted, trial=so_far)) from None
    except Exception as error:
        warnings.warn(f"The model is trained, but its filter could not be tried: {error}", stacklevel=3)
        return fitted
    return replace(fitted, trial=found, seconds=fitted.seconds + time.monotonic() - begin)
