"""The experiment on fine-tuning at test time, end to end and tiny."""

from __future__ import annotations

import pytest
from jobs import drawn, run_twice

from nbf.errors import InputError
from nbf_paper.experiments import fine_tuned


@pytest.mark.slow
def test_the_experiment_is_recorded_once_and_drawn(tmp_path):
    scored = fine_tuned.FineTunedEvaluation(episodes=2, gradient_steps=(0, 1), batch=4, neural_filters=(8,))
    folder, records = run_twice("fine-tuned", fine_tuned.FineTunedJob(0, 20, scored), tmp_path)
    found = {(record.filter, record.arm, record.calls) for record in records}
    assert found == {("fine-tuned", "m=0", 0), ("fine-tuned", "m=1", 42), ("nbf", "faithful", 8)}
    page = drawn("fine-tuned", folder)
    assert set(page.tables) | set(page.figures) == {"fine-tuned", "fine-tuned.png"} == set(page.captions)
    assert "Fine-tuned, m=1" in page.tables["fine-tuned"]


def test_an_experiment_of_one_episode_is_refused():
    with pytest.raises(InputError, match=r"at least 2 episodes; got 1"):
        fine_tuned.FineTunedEvaluation(episodes=1)
