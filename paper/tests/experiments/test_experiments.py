"""Experiments end to end, tiny: trained, scored, recorded once, drawn."""

from __future__ import annotations

import pytest
from jobs import donuts_job, drawn, goofspiel_job, run_twice, triangulation_job

from nbf.errors import InputError
from nbf_paper.experiments import goofspiel
from nbf_paper.records import RecordError
from nbf_paper.report import donuts


@pytest.mark.slow
def test_donuts(tmp_path):
    folder, records = run_twice("donuts", donuts_job("mixture"), tmp_path)
    found = {record.metric: record.value for record in records}
    assert found["nll"] - found["entropy"] == pytest.approx(found["nll_gap"], abs=1.0)  # another entropy's estimate
    page = drawn("donuts", folder)
    assert set(page.figures) == {"donuts.png", "donuts-densities.png"}
    (folder / "mixture.npz").write_bytes(b"PK\x03\x04 no picture")
    with pytest.raises(RecordError, match="make it anew with `nbf-paper reproduce donuts`"):
        donuts.page(folder)


def assert_bounded(records):
    for record in records:
        if record.metric in ("js", "js_pf1024"):
            assert -1e-6 <= record.value <= 0.6932, record


@pytest.mark.slow
def test_triangulation(tmp_path):
    _, records = run_twice("triangulation", triangulation_job("mixture"), tmp_path)
    assert_bounded(records)
    assert {(record.filter, record.arm) for record in records} == {("approx", "mixture"), ("nbf", "mixture")}
    assert sum(record.metric == "js" for record in records) == 2 * (1 + 10)


@pytest.mark.slow
def test_triangulation_with_every_filter(tmp_path):
    folder, records = run_twice("triangulation", triangulation_job("faithful"), tmp_path)
    assert_bounded(records)
    exact = [record.value for record in records if record.filter == "exact" and record.metric == "js"]
    assert max(exact) < 1e-6
    page = drawn("triangulation", folder)
    assert set(page.figures) == {f"triangulation{name}.png" for name in ("", "-distance", "-episode")}
    for line in ("PF (1024)", "PF + KDE (16)", "EKF", "UKF", "NBF (16)", "Approx Beliefs", "0.459 ± 0.002"):
        assert line in page.tables["triangulation"]


@pytest.mark.slow
def test_goofspiel(tmp_path):
    _, records = run_twice("goofspiel", goofspiel_job("autoregressive-context"), tmp_path)
    assert_bounded(records)
    assert {(record.filter, record.arm, record.config) for record in records} == {
        (name, "autoregressive-context", config) for name in ("approx", "nbf") for config in ("k=3", "k=3-run")
    }
    assert sum(record.metric == "js" for record in records) == 2 * 2 * (1 + 2)
    assert {record.value for record in records if record.metric == "legality"} == {1.0}


@pytest.mark.slow
def test_goofspiel_with_every_filter(tmp_path):
    folder, records = run_twice("goofspiel", goofspiel_job("faithful"), tmp_path)
    assert_bounded(records)
    exact = [record.value for record in records if record.filter == "exact" and record.metric == "js"]
    assert max(exact) < 1e-6
    told = {(record.filter, record.metric) for record in records}
    assert {("nbf", "legality"), ("nbf", "zero_weight"), ("pf", "zero_weight"), ("emp", "js")} <= told
    assert {("pf", "us_per_update"), ("nbf", "js_sharp"), ("emp", "entropy_diffuse")} <= told
    assert {record.config for record in records} == {"k=3", "k=3-run"}
    page = drawn("goofspiel", folder)
    assert set(page.figures) == {"goofspiel.png", "goofspiel-run.png", "goofspiel-loss.png"}
    for line in ("Exact samples (64)", "PF (16)", "NBF (8)", "Approx Beliefs"):
        assert line in page.tables["goofspiel"]


@pytest.mark.parametrize(
    ("job", "known"), [(donuts_job, "mixture"), (triangulation_job, "mixture"), (goofspiel_job, "autoregressive")]
)
def test_unknown_arms_are_refused_by_name(job, known):
    with pytest.raises(InputError, match=rf"no .* 'nonsense'.*{known}"):
        job("nonsense")


def test_a_game_that_cannot_be_listed_is_refused():
    with pytest.raises(InputError, match=r"cards must be 3 to 8.*got 9"):
        goofspiel.GoofspielJob(9)
