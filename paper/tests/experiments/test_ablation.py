"""The ablation: what is left out of each arm, and that its labels are read back as what was recorded."""

from __future__ import annotations

from dataclasses import replace

import jax
import pytest
from fits import untrained_on_a_line

from nbf.errors import InputError
from nbf.filters.neural import RegeneratingProposal
from nbf.fitting.fit import model_config
from nbf_paper import zoo
from nbf_paper.audit.meaning import key_of
from nbf_paper.experiments import ablation
from nbf_paper.experiments.ablation import CALLS, AblationJob, without_each_part
from nbf_paper.experiments.choices import Ablation, Amount
from nbf_paper.names import EXPLORATION
from nbf_paper.records import ALL, Record, Run, add
from nbf_paper.report.ablation import page
from nbf_paper.report.labels import label


def arms(name):
    """The filters of a problem, with a model that was not trained."""
    environment, _ = zoo.problem(name).family.sample(jax.random.key(0))
    config = model_config(environment.space, None, None, 8)
    fitted = replace(untrained_on_a_line(), model=config.build(jax.random.key(1)), config=config)
    return environment, dict(without_each_part(fitted, environment))


@pytest.mark.parametrize("name", ["terrain", "search"])
def test_every_arm_differs_from_the_default_filter_and_can_be_used(name):
    environment, found = arms(name)
    for arm, filter in found.items():
        assert f"`{arm}`" in (ablation.__doc__ or "")
        assert filter.num_particles == CALLS
        assert filter.proposal is None or filter.proposal.check(environment, CALLS) is None
    told = [filter.describe(environment).replace("as asked", "") for filter in found.values()]
    default = told.pop(0).partition("(")[0]
    assert default not in told[1:]
    assert len(set(told)) == len(told)


def test_parts_are_left_out_one_at_a_time():
    environment, found = arms("terrain")
    fields = RegeneratingProposal.__dataclass_fields__
    for arm in set(found) - {"default", "faithful", "no moment matching", "trust not measured"}:
        proposal = found[arm].proposal
        assert isinstance(proposal, RegeneratingProposal)
        assert sum(getattr(proposal, field) != getattr(RegeneratingProposal(), field) for field in fields) == 1
    assert found["32 points carried"].init(jax.random.key(0), environment).particles.log_weights.shape == (CALLS,)


def test_labels_are_read_back_as_what_was_recorded():
    for arm in (*arms("terrain")[1], "nothing carried"):
        assert key_of(label("nbf", arm, CALLS, "ablation", ("terrain",)), "ablation") == ("nbf", arm, CALLS)
    assert key_of(label("approx", "default", 0, "ablation", ("terrain",)), "ablation") == ("approx", "default", 0)


def test_jobs_are_of_the_problems_for_exploration():
    jobs = Ablation().jobs(Amount())
    assert [job.problem for job in jobs if isinstance(job, AblationJob)] == list(EXPLORATION)
    with pytest.raises(InputError, match="2 episodes"):
        AblationJob("terrain", episodes=1)


def test_the_page_shows_leads_scores_and_distances(tmp_path):
    def record(config, arm, metric, value):
        return Record("ablation", config, "nbf", arm, CALLS, CALLS, 0, ALL, metric, value, 0.1, 40)

    records = [
        record("terrain", "default", "log_score", -1.0), record("terrain", "kernel alone", "log_score", -1.5),
        record("terrain", "kernel alone", "lead_over_default", -0.5), record("terrain", "kernel alone", "energy", 0.25),
        record("search", "nothing carried", "js", 0.125),
    ]  # fmt: skip
    add(tmp_path, records, Run("terrain/0", 0, "command", 1.0, {}))
    tables = page(tmp_path).tables
    assert set(tables) == {"ablation", "ablation-scores", "ablation-distance", "ablation-divergence"}
    assert "NBF (32), fitted, kernel alone" in tables["ablation"]
    assert "-0.50 ± 0.10" in tables["ablation"]
    assert "-1.00 ± 0.10" in tables["ablation-scores"]
    assert "0.250 ± 0.100" in tables["ablation-distance"]
    assert "0.125 ± 0.100" in tables["ablation-divergence"]
