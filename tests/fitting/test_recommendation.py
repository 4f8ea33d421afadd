"""Laws of the recommendation: pure functions of made-up rows, whose crossing costs are computed by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from tolerances import EXACT

import nbf
from nbf.errors import InputError
from nbf.fitting.recommendation import as_fast, crossing, front, picks, reasons_against, recommendation, within_calls
from nbf.fitting.rows import Row, advantage, is_better

NOISE = np.asarray([-0.01, 0.0, 0.01])
EPISODES = np.asarray([0.5, 0.0, -0.5])
"""What all filters share in an episode: paired differences do not see it."""


def row(name, kind, particles, microseconds, loss, *, calls=None) -> Row:
    values = loss + EPISODES + NOISE * (len(name) % 3 - 1)
    calls = particles if calls is None else calls
    calls = None if calls is None else float(calls)
    return Row(name, kind, particles, calls, microseconds, (tuple((-values).tolist()),), (tuple(values.tolist()),))


PRIOR = row("prior", "prior", None, None, 1.0)
SMALL, LARGE = row("PF(100)", "particle", 100, 10.0, 0.8), row("PF(2000)", "particle", 2000, 100.0, 0.2)
HUGE = row("PF(9000)", "particle", 9000, 900.0, 0.1)
KERNEL = row("regularised", "regularised", 50, 60.0, 0.6)
NEURAL = row("neural", "neural", 50, 300.0, 0.4)
ROWS = [PRIOR, SMALL, LARGE, HUGE, KERNEL, NEURAL]


def test_lines_cross_where_both_take_equally_long():
    cost = crossing(NEURAL, LARGE)
    assert cost is not None
    np.testing.assert_allclose(cost, (300.0 - 100.0) / (2000 - 50), **EXACT)
    np.testing.assert_allclose(NEURAL.time(cost), LARGE.time(cost), **EXACT)
    assert crossing(NEURAL, KERNEL) is None  # as many calls
    assert crossing(NEURAL, HUGE) is None  # slower at every cost
    assert crossing(NEURAL, PRIOR) is None  # no time


def test_in_the_time_of_the_neural_filter_the_choice_changes_at_the_crossing():
    """PF(2000) is better and fits into 300 µs until a call costs 200/1950 µs; PF(9000) never fits."""
    found = picks(ROWS, NEURAL, "divergence")
    assert [pick.row and pick.row.name for pick in found] == ["PF(2000)", "neural"]
    np.testing.assert_allclose([pick.from_cost for pick in found], [0.0, 200.0 / 1950.0], **EXACT)
    text = " ".join(recommendation(ROWS, 0.0, "divergence", (50,)))
    assert "In the time of neural, 300 µs here: up to 0.1 µs a call PF(2000), from there on neural." in text
    assert "At equal calls: 50 calls neural." in text


def test_a_filter_with_fewer_calls_enters_where_calls_are_dear():
    """An accurate filter of one call and 700 µs fits into 300 + 50 c from c = 400/49 on."""
    kalman = row("Kalman", "kalman", None, 700.0, 0.05, calls=1)
    found = picks([*ROWS, kalman], NEURAL, "divergence")
    assert [pick.row and pick.row.name for pick in found] == ["PF(2000)", "neural", "Kalman"]
    np.testing.assert_allclose(found[-1].from_cost, 400.0 / 49.0, **EXACT)


def test_of_filters_that_are_level_the_one_with_fewest_calls_is_taken():
    level = row("PF(8000)", "particle", 8000, 90.0, 0.2)
    assert within_calls([*ROWS, level], 8000.0, "divergence") is LARGE
    assert within_calls(ROWS, 49.0, "divergence") is None
    assert within_calls([PRIOR], 1e9, "divergence") is None  # a yardstick is nothing to take
    again = row("sometimes twice", "neural", 50, 300.0, 0.4, calls=50.5)
    assert within_calls([PRIOR, again], 50.0, "divergence") is again


def test_what_the_prior_beats_is_not_recommended():
    poor = row("neural", "neural", 50, 300.0, 1.5)
    text = " ".join(recommendation([PRIOR, poor, LARGE], 0.0, "divergence", (50,)))
    assert "At equal calls: 50 calls nothing that is better than the prior." in text
    assert "up to 0.1 µs a call PF(2000), from there on nothing that is better than the prior." in text
    assert "The network adds nothing here, by divergence from the reference: neural (1.500) is no better than " in text


def test_what_is_near_and_sure_of_the_wrong_is_not_recommended():
    """Better than the prior by the divergence, and worse by the log score of the true state."""
    sure = dataclasses.replace(LARGE, name="certain", log_scores=row("", "particle", 1, 1.0, 9.0).log_scores)
    text = " ".join(recommendation([PRIOR, sure], 0.0, "divergence", (2000,)))
    assert "2000 calls nothing that is better than the prior" in text
    assert "Worth their time" not in text
    assert "PF(2000)" in " ".join(recommendation([PRIOR, LARGE], 0.0, "divergence", (2000,)))


def test_the_front_holds_what_no_faster_filter_reaches():
    assert [each.name for each in front(ROWS, 0.0, "divergence")] == ["PF(100)", "regularised", "PF(2000)", "PF(9000)"]
    dear = [each.name for each in front(ROWS, 10.0, "divergence")]
    assert dear == ["regularised", "neural", "PF(2000)", "PF(9000)"]


def test_differences_are_paired_by_episode():
    mean, error = advantage(LARGE, SMALL, "divergence")
    np.testing.assert_allclose(mean, 0.6, **EXACT)
    assert error < 0.05 < LARGE.divergence_error
    assert is_better(LARGE, SMALL, "log score")
    assert not is_better(SMALL, LARGE, "log score")


def test_a_network_that_earns_its_place_is_not_spoken_against():
    assert reasons_against(NEURAL, ROWS, "divergence") == []
    assert as_fast(NEURAL, ROWS, 1.0, "divergence") == []


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([row("prior", "prior", None, None, 0.4), NEURAL], "the prior"),
        ([PRIOR, row("regularised", "regularised", 50, 60.0, 0.3), NEURAL], "regularised with as many calls"),
        ([PRIOR, row("branching", "branching", 50, 60.0, 0.3), NEURAL], "branching with as many calls"),
        ([PRIOR, row("untrained", "untrained", 50, None, 0.4), NEURAL], "the same with an untrained network"),
    ],
)
def test_a_network_that_adds_nothing_is_said_to(rows, reason):
    text = " ".join(recommendation(rows, 1.0, "divergence", (50,)))
    assert "The network adds nothing here, by divergence from the reference: neural (0.400) is no better than" in text
    assert reason in text


def test_a_particle_filter_as_fast_is_named_but_does_not_make_the_network_useless():
    """Where calls are dearer, it no longer is as fast."""
    cheap, dear = (" ".join(recommendation(ROWS, cost, "divergence", (50,))) for cost in (0.0, 1.0))
    assert "neural (0.400) is no better than PF(2000), which takes no longer at what a call costs here" in cheap
    assert "no better than PF(2000)" not in dear
    assert "adds nothing" not in cheap


def test_the_gap_to_the_ceiling_is_said():
    ceiling = row("ceiling", "ceiling", None, None, 0.1)
    assert any(
        "reaches 0.100 on samples" in each for each in recommendation([*ROWS, ceiling], 1.0, "divergence", (50,))
    )


def test_errors_cover_models_where_there_are_several():
    """Two models that differ by 2 in every episode: the error is that of their means, |2|/2."""
    apart = Row("neural", "neural", 8, 8.0, None, ((0.0, 0.1), (2.0, 2.1)), ((0.0, 0.1), (2.0, 2.1)))
    np.testing.assert_allclose(apart.divergence_error, 1.0, **EXACT)
    np.testing.assert_allclose(apart.log_score, 1.05, **EXACT)


# --- the whole -----------------------------------------------------------------------------------


def comparison(rows=tuple(ROWS), **changes) -> nbf.Comparison:
    told: dict[str, Any] = {
        "problem": "World, lattice(3,)", "measure": "JS", "reference": "ExactFilter(), exact", "reference_sound": True,
        "episodes": 3, "horizon": 4, "models": 1, "budgets": (50,), "call_cost": 0.0, "rows": tuple(rows),
        "notes": ("Something was left out: it needs what is not here.",), "unfinished": (),
    }  # fmt: skip
    return nbf.Comparison(**(told | changes))


def test_a_comparison_is_read_as_it_was_written(tmp_path):
    found = comparison()
    found.save(tmp_path / "found.json")
    again = nbf.Comparison.load(tmp_path / "found.json")
    assert again == found
    assert again.recommendation == found.recommendation == tuple(found.to_dict()["recommendation"])


@pytest.mark.parametrize("content", ["[]", "{", '{"problem": "a"}', '{"rows": NaN}'])
def test_another_file_is_refused(content, tmp_path):
    (tmp_path / "other.json").write_text(content)
    with pytest.raises(InputError, match="comparison"):
        nbf.Comparison.load(tmp_path / "other.json")
    with pytest.raises(InputError, match="cannot be read"):
        nbf.Comparison.load(tmp_path / "nowhere.json")


def test_scores_that_are_no_numbers_are_refused():
    told = comparison().to_dict()
    told["rows"][1]["divergences"] = [[float("nan"), 0.0, 0.0]]
    with pytest.raises(InputError, match="A row of this comparison"):
        nbf.Comparison.from_dict(told)


def test_what_is_printed_fits_and_has_every_row():
    text = str(comparison(unfinished=("PF(7)",)))
    assert max(map(len, text.splitlines())) <= 100
    for each in ROWS:
        assert any(line.startswith(each.name) for line in text.splitlines())
    assert "0.400 ± 0.294" in text  # the deviation of 0.51, 0, -0.51 is 0.51, over √3
    assert "+0.60" in text  # the gain of the neural filter over the prior
    assert "PF(7)" in text
    assert "! Something was left out" in text


def test_a_poor_reference_ranks_by_log_score():
    assert comparison().ranked_by == "divergence"
    assert comparison(reference_sound=False).ranked_by == "log score"


def test_the_figure_has_a_panel_for_calls_and_one_for_time(tmp_path):
    figure = comparison().plot(tmp_path / "figure.png")
    assert [axis.get_xlabel() for axis in figure.axes] == ["simulator calls per update", "µs per update"]
    assert (tmp_path / "figure.png").stat().st_size > 10_000
    untimed = [
        Row(each.name, each.kind, each.particles, each.calls, None, each.log_scores, each.divergences) for each in ROWS
    ]
    assert len(comparison(untimed).plot().axes) == 1
