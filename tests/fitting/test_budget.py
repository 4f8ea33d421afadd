"""The time that a fit may take, and how it is shared out."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import nbf
from nbf.errors import InputError
from nbf.fitting import budget
from nbf.fitting.budget import Budget


def test_minutes_or_steps_or_the_default():
    assert Budget.of(2.0, None).minutes == 2.0
    assert Budget.of(None, None).minutes == budget.DEFAULT_MINUTES
    unlimited = Budget.of(None, 100)
    assert unlimited.for_beliefs() is None
    assert unlimited.for_training() is None


@pytest.mark.parametrize("minutes", [0, -1.0, float("nan"), float("inf"), True, "5"])
def test_a_time_that_is_none_is_refused(minutes, unchecked):
    with pytest.raises(InputError, match="a number above 0"):
        nbf.fit(nbf.gridworld_family(5, 2), minutes=minutes)


def test_minutes_and_steps_together_are_refused():
    with pytest.raises(InputError, match="not both"):
        nbf.fit(nbf.gridworld_family(5, 2), minutes=1.0, steps=100)


def test_parts_add_up_to_no_more_than_the_whole(monkeypatch):
    clock = iter([0.0, 30.0, 200.0])
    monkeypatch.setattr(budget, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    allowed = Budget.of(4.0, None)
    assert allowed.begin == 0.0
    assert allowed.for_beliefs() == budget.BELIEFS * 240.0
    assert allowed.for_training() == (1.0 - budget.AFTERWARDS) * 240.0 - 30.0  # 30 s are spent by now
    assert allowed.spent == 200.0


def test_a_budget_that_is_spent_before_training_says_how_much_is_needed(monkeypatch):
    monkeypatch.setattr(budget, "time", SimpleNamespace(monotonic=lambda: 100.0))
    with pytest.raises(InputError, match=r"minutes=1 is too little: .* took 90 s. Allow at least 5 minutes"):
        Budget(1.0, begin=10.0).for_training()
