"""docs/your-own-environment.md, executed block by block as a reader would, keeps what it says."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import jax
import matplotlib.pyplot as plt
import numpy as np
import pytest
from fits import no_calibration
from run_tutorial import FIGURES, PAGE, blocks, execute, filled, with_constants, words
from tolerances import FLOAT

import nbf
from nbf.fitting.rows import is_better
from nbf.models.belief_model import space_config
from nbf.models.enumerated import EnumeratedDecoderConfig

FIT, COMPARE, TEACHER = nbf.fit, nbf.compare, "the exact filter"
MOST_SECONDS = 300.0
"""Of training, as the page promises."""
LEAST_PICTURE = 10_000
"""Bytes: an empty plot of this size has fewer."""


def run(folder: Path, **constants: int) -> tuple[dict[str, Any], list[str]]:
    """The names that the page's code leaves and what its blocks print, with other constants where they are given."""
    found = execute(with_constants(PAGE.read_text(encoding="utf-8"), **constants), folder)
    plt.close("all")
    return found


def untrained(*arguments: Any, **options: Any) -> nbf.FittedModel:
    """In the place of `nbf.fit`, which has tests of its own: what it builds, but small, not trained, not measured."""
    bound = inspect.signature(FIT).bind(*arguments, **options).arguments
    space = bound["family"].sample(jax.random.key(0))[0].space
    config = nbf.ModelConfig(
        space_config(space), EnumeratedDecoderConfig(width=8, depth=1), nbf.MeanConfig(width=8, depth=1), embedding=8
    )
    none, model = np.zeros(0, np.float32), config.build(jax.random.key(0))
    return nbf.FittedModel(model, config, no_calibration(), TEACHER, None, 0.0, bound["steps"], 0.0, none, none)


def small(family: Any, *arguments: Any, **options: Any) -> nbf.Comparison | str:
    """In the place of `nbf.compare`, which has tests of its own: the same without the rows of the network, with fewer
    others and no times; but the network must be one that it would take. Without a network, an episode."""
    if not arguments:
        states, seen = nbf.rollout(jax.random.key(0), family[0], family[1], 20)
        assert np.all(np.isfinite(states))
        assert np.all(np.isfinite(seen))
        return "an episode"
    bound = inspect.signature(COMPARE).bind(family, *arguments, **options).arguments
    assert isinstance(bound["fitted"], nbf.FittedModel)
    assert bound["fitted"].model.space.signature == family.sample(jax.random.key(0))[0].space.signature
    return COMPARE(family, **options | {"budgets": (32,), "particles": (), "quick": True, "progress": False})


CHECK, TRAINING, COMPARISON, CORRIDOR = 2, 3, 6, 9
"""The places of some blocks of the page."""


def assert_sound(names: dict[str, Any], printed: list[str], folder: Path) -> None:
    """The checks pass, every number that the page shows is one, and each block prints where the page says so."""
    assert names["report"].passed
    assert names["fitted"].teacher == TEACHER
    infos = names["infos"]
    assert len(infos) == 40
    for info in infos:
        assert np.isfinite(info.log_evidence)
        assert not info.recovered
    assert float(infos[8].log_evidence) == 0.0  # where the reading is missing
    for leaf in jax.tree.leaves(names["states"]):
        assert np.all(np.isfinite(leaf))
    for probs in names["shown"].values():
        np.testing.assert_allclose(np.sum(probs, axis=1), 1.0, **FLOAT)
    for picture in FIGURES:
        assert (folder / picture.name).stat().st_size > LEAST_PICTURE
    assert str(names["again"]) == str(names["fitted"])
    assert isinstance(names["tracker"], nbf.NeuralBayesianFilter)
    assert "BranchProposal" in names["tracker"].describe(names["lake"])
    page = blocks(PAGE.read_text(encoding="utf-8"))
    assert [block.output is None for block in page] == [not text for text in printed]
    assert words(page[CHECK].output or "") == words(printed[CHECK])


def test_the_tutorial_runs(tmp_path, monkeypatch):
    """With a model that is not trained, of whose quality nothing is claimed."""
    monkeypatch.setattr(nbf, "fit", untrained)
    monkeypatch.setattr(nbf, "compare", small)
    names, printed = run(tmp_path, EPISODES=2)
    assert_sound(names, printed, tmp_path)


@pytest.mark.slow
def test_the_tutorial_keeps_its_promises(tmp_path):
    """As it stands: trained in time; better than the prior, than particle filters of as many calls, than the same with
    an untrained network; alarmed by the stuck receiver alone; and printing what the page shows."""
    names, printed = run(tmp_path)
    assert_sound(names, printed, tmp_path)
    assert names["fitted"].seconds < MOST_SECONDS
    neural = names["found"].row("neural (32)")
    for other in ("prior", "ParticleFilter(32)", "BranchingFilter(32)", "untrained (32)"):
        assert is_better(neural, names["found"].row(other), "divergence"), other
    key = jax.random.key(7)
    assert not np.any(names["alarms"](key, names["sound"]))
    assert np.any(names["alarms"](key, names["stuck"]))
    for place, (block, text) in enumerate(zip(blocks(PAGE.read_text(encoding="utf-8")), printed, strict=True)):
        if place not in (TRAINING, COMPARISON, CORRIDOR):  # the recommendation depends on times
            assert words(block.output or "") == words(text)


# How the page is filled

SMALL = """Before
```python
first = 1
print("one", first)
```

```text
old

lines
```

Between
```python
N = 5
second = first + N
```
```python
print(second)
```
```text
```
After
"""


def test_code_is_executed_in_order_and_its_output_filled_in(tmp_path):
    names, printed = execute(SMALL, tmp_path)
    assert (names["first"], names["second"]) == (1, 6)
    assert printed == ["one 1\n", "", "6\n"]
    after = filled(SMALL, printed)
    assert after == SMALL.replace("old\n\nlines\n", "one 1\n").replace("```text\n```", "```text\n6\n```")
    assert filled(after, printed) == after
    assert [block.output for block in blocks(after)] == ["one 1\n", None, "6\n"]
    assert [block.line for block in blocks(SMALL)] == [3, 15, 19]


def test_constants_are_exchanged_where_they_stand_once(tmp_path):
    assert execute(with_constants(SMALL, N=7), tmp_path)[0]["second"] == 8
    with pytest.raises(ValueError, match="sets M 0 times"):
        with_constants(SMALL, M=7)


@pytest.mark.parametrize(("printed", "said"), [(["", "", "6\n"], "line 3 prints nothing"), (["1\n"] * 3, "15 has no")])
def test_a_page_without_room_for_an_output_is_refused(printed, said):
    with pytest.raises(ValueError, match=said):
        filled(SMALL, printed)


def test_an_error_tells_the_line_of_the_page(tmp_path):
    with pytest.raises(ZeroDivisionError) as error:
        execute(SMALL.replace("print(second)", "second / 0"), tmp_path)
    assert error.traceback[-1].lineno + 1 == 19
