"""The long fault tests: 10 000 steps, a million particles."""

from __future__ import annotations

import pytest
from constructors import FILTERS
from faults import MILLIONS, check_bad_days, check_million

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", FILTERS)
def test_ten_thousand_steps(name, key):
    """Days of 10 000 steps on which the first, all, one in ten or none of the observations are impossible."""
    check_bad_days(name, key, 10_000)


@pytest.mark.parametrize("name", MILLIONS)
def test_a_million_particles(name, key):
    check_million(name, key)
