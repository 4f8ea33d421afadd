"""The time that `nbf.fit` may take, and how it is shared out: beliefs, training, and what is measured afterwards."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

from nbf.errors import InputError

DEFAULT_MINUTES = 5.0
"""Where neither minutes nor steps are named."""
BELIEFS = 0.25
"""The share of the time that may go into making beliefs to train on."""
AFTERWARDS = 0.25
"""The share that is kept for measuring the model when it is trained."""


@dataclass(frozen=True)
class Budget:
    """A span of time that has begun; without `minutes`, no limit."""

    minutes: float | None
    """In all."""
    begin: float = field(default_factory=lambda: time.monotonic())
    """When it began, by the monotonic clock."""

    @classmethod
    def of(cls, minutes: float | None, steps: int | None) -> Budget:
        """Begin a budget.

        Args:
            minutes: As asked for, or None.
            steps: Training steps, as asked for, or None.

        Returns:
            The budget: without limit if the steps are named, `DEFAULT_MINUTES` if nothing is.
        """
        if minutes is not None and steps is not None:
            raise InputError(
                f"Name the minutes or the steps of a fit, not both; got minutes={minutes} and steps={steps}."
            )
        if minutes is None:
            return cls(DEFAULT_MINUTES if steps is None else None)
        if isinstance(minutes, bool) or not isinstance(minutes, int | float) or not 0 < minutes < math.inf:
            raise InputError(f"minutes is the time that a fit may take, a number above 0; got {minutes!r}.")
        return cls(float(minutes))

    @property
    def spent(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self.begin

    def for_beliefs(self) -> float | None:
        """Seconds that making beliefs may take from now; None without limit."""
        return None if self.minutes is None else BELIEFS * 60.0 * self.minutes

    def for_training(self) -> float | None:
        """Seconds that compiling and training may take from now; None without limit."""
        if self.minutes is None:
            return None
        left = (1.0 - AFTERWARDS) * 60.0 * self.minutes - self.spent
        if left <= 0:
            raise InputError(
                f"minutes={self.minutes:g} is too little: making beliefs, with what is compiled for it, took "
                f"{self.spent:.0f} s. Allow at least {math.ceil(self.spent / 20.0)} minutes."
            )
        return left
