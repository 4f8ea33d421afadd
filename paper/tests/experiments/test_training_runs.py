"""The training of one model: made once, lengthened at a constant rate, never mistaken for another."""

from __future__ import annotations

from dataclasses import replace

import pytest
from jobs import donuts_job

from nbf.errors import InputError

SHORT = replace(donuts_job("mixture").training, steps=20, batch=2, samples=4, schedule="constant")


def test_a_training_at_a_constant_rate_is_lengthened_and_no_other(tmp_path):
    """It goes on where it was; a shorter one, another rate or schedule is an error that changes nothing."""
    short = replace(donuts_job("mixture").training_run(tmp_path), training=SHORT)
    first, begun = short.train().read_bytes(), short.timing()[1]
    assert short.train().read_bytes() == first
    longer = replace(short, training=replace(SHORT, steps=40))
    for other in (replace(SHORT, schedule="cosine", steps=40), replace(SHORT, learning_rate=0.5, steps=40)):
        with pytest.raises(InputError, match="trained with other settings"):
            replace(short, training=other).train()
    assert short.path.read_bytes() == first

    assert longer.train().read_bytes() != first
    losses = longer.timing()[1]
    assert losses[: len(begun)] == begun
    assert len(losses) == len(begun) + 1
    with pytest.raises(InputError, match="trained with other settings"):
        short.train()
