"""Learning while filtering: which jobs there are, what a teacher may spend, and the page."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from jobs import Bar
from tolerances import EXACT

from nbf import prng
from nbf.errors import InputError
from nbf.fitting.history import Round
from nbf.sources.pool import BeliefPool
from nbf_paper.audit.meaning import key_of
from nbf_paper.experiments.choices import Amount, Learning
from nbf_paper.experiments.learning import CALLS, LADDER, ChangeJob, LearningJob, label_of, task
from nbf_paper.names import LEARNED, LEARNED_CHANGES
from nbf_paper.records import ALL, Record, Run, add
from nbf_paper.report.labels import label
from nbf_paper.report.learning import page


def test_jobs_are_of_the_problems_and_of_their_changes():
    jobs = Learning().jobs(Amount())
    assert [job.problem for job in jobs if isinstance(job, LearningJob)] == list(LEARNED)
    assert {job.problem for job in jobs if isinstance(job, ChangeJob)} == set(LEARNED_CHANGES)
    assert len({job.key for job in jobs}) == len(jobs)
    with pytest.raises(InputError, match="got 'chess'"):
        Learning(problems=("chess",)).jobs(Amount())
    with pytest.raises(InputError, match="rounds are 1 to 9"):
        LearningJob("terrain", rounds=10)


@pytest.mark.parametrize("name", [*LEARNED, *LEARNED_CHANGES.values()])
def test_tasks_have_their_names(name):
    assert task(name).name == name


def test_a_teacher_makes_no_more_calls_than_were_made(monkeypatch):
    """As many whole episodes as fit, and one at least."""
    made: list[tuple[int, int]] = []

    def pool(source, key, *, episodes: int, samples: int, batch: int) -> Any:
        made.append((source.filter.num_calls, episodes))
        raise InterruptedError

    monkeypatch.setattr(BeliefPool, "of_episodes", pool)
    job, asked = LearningJob("8-2D-random"), task("8-2D-random")
    environment, run = asked.family.sample(prng.stream(0, "test"))[0], replace(job, met=2).begun(asked)
    for calls, wanted in ((5 * 512 * 20 + 511, 5), (5 * 512 * 20 - 1, 4), (100, 1)):
        run.state.rounds = [Round(2, calls, 512, False, -1.0, 0.1, None, None, False, 1.0)]
        with pytest.raises(InterruptedError):
            job._taught(asked, run, 1, environment)
        assert made[-1] == (LADDER[0], wanted)


def test_the_arms_are_read_back():
    for arm in (label_of("learned", 3), label_of("new world alone", 9), "untrained"):
        assert key_of(label("nbf", arm, CALLS, "learning"), "learning") == ("nbf", arm, CALLS)
        assert key_of(label("approx", arm, 0, "learning"), "learning") == ("approx", arm, 0)


def test_the_page_shows_errors_calls_and_changes(tmp_path):
    base = Record("learning", "terrain", "nbf", "", CALLS, CALLS, 0, ALL, "error", 0.0, 0.01, 8)
    found = []
    for number in (1, 3, 9):
        for kind, error in (("learned", 0.9 / number), ("taught", 0.8 / number)):
            row = replace(base, arm=label_of(kind, number), value=error)
            found += [row, replace(row, metric="log_score", value=-error)]
            found.append(replace(row, metric="million_calls", value=0.25 * number, se=None))
        changed = replace(base, config="8-2D-random-walls", arm=label_of("changed", number), value=0.7 / number)
        found += [changed, replace(changed, arm=label_of("new world alone", number))]
    found.append(replace(base, filter="prior", particles=0, calls=0, value=0.5))
    add(tmp_path, found, Run("terrain/0/x", 0, "test", 1.0, {}))
    made = page(tmp_path)
    assert set(made.tables) == {"learning", "learning-scores", "learning-calls", "learning-changed"}
    assert set(made.tables) | set(made.figures) == set(made.captions)
    assert "NBF (32), learned, round 9 | 0.100 ± 0.010" in " ".join(made.tables["learning"].split())
    assert "0.75" in made.tables["learning-calls"]
    assert "8-2D-random-walls" in made.tables["learning-changed"]
    assert "8-2D-random-walls" not in made.tables["learning"]
    axes = made.figures["learning.png"]().axes
    learned = axes[0].containers[0].lines[0].get_xydata()
    np.testing.assert_allclose(learned, [(0.25 * n, 0.9 / n) for n in (1, 3, 9)], **EXACT)


@pytest.mark.slow
def test_a_small_run(tmp_path):
    """All rows of a problem and of a change, from runs of a round."""
    small: dict[str, Any] = {"rounds": 1, "met": 3, "steps": 20, "episodes": 2}
    rows = {(r.filter, r.arm) for r in LearningJob("8-2D-random", **small).measure(tmp_path, tmp_path, Bar())}
    assert {("nbf", "untrained"), ("nbf", "learned, round 1"), ("nbf", "taught, round 1"), ("prior", "")} < rows
    assert {("approx", "learned, round 1"), ("approx", "taught, round 1"), ("branching", "")} < rows
    records = ChangeJob("8-2D-random", **small, before=1).measure(tmp_path, tmp_path, Bar())
    assert {r.config for r in records} == {"8-2D-random-walls"}
    assert {("nbf", f"{kind}, round 1") for kind in ("changed", "new world alone")} < {
        (r.filter, r.arm) for r in records
    }
