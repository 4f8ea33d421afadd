"""docs/your-own-environment.md, executed block by block as a reader would, keeps what it says."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import matplotlib.pyplot as plt
import numpy as np
import pytest
from run_tutorial import PAGE, blocks, execute, filled, with_constants
from tolerances import FLOAT, monte_carlo

import nbf
from nbf.evaluation.calibration import Calibration
from nbf.fitting.fit import decoder_for
from nbf.models.belief_model import space_config

FIT = nbf.fit
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
    decoder = replace(decoder_for(space), components=2, width=8, depth=1)
    config = nbf.ModelConfig(space_config(space), decoder, nbf.MeanConfig(width=8, depth=1), embedding=8)
    flat, half = np.ones((1, 2)), np.full(1, 0.5)
    calibration = Calibration(
        beliefs=1, embed=1, held_out=1, draws=1, nll=0.0, nll_error=0.0, impossible=0.0, energy=0.0, energy_error=0.0,
        js=None, js_error=None, pit=flat, pit_band=flat, pit_p=np.ones(1), levels=half, coverage=half,
        coverage_band=half, coverage_bias_error=1.0,
    )  # fmt: skip
    teacher = f"a particle filter of {bound['particles']}"
    none = np.zeros(0, np.float32)
    model = config.build(jax.random.key(0))
    return nbf.FittedModel(model, config, calibration, teacher, 1.0, 0.0, bound["steps"], 0.0, none, none)


def words(text: str) -> list[str]:
    """Without numbers, which are of one machine, and the verdict, which depends on the steps."""
    return re.findall(r"[A-Za-z]{3,}", re.sub(r"underconfident|overconfident|uneven|calibrated", "", text))


def assert_sound(names: dict[str, Any], printed: list[str], folder: Path) -> None:
    """The checks pass, every number that the page shows is one, and what the page shows is what is printed."""
    assert names["report"].passed
    assert names["fitted"].teacher == "a particle filter of 256"
    assert names["fitted"].on_walls == 0.0
    infos = names["infos"]
    assert len(infos) == 20
    for info in infos:
        assert np.isfinite(info.log_evidence)
        np.testing.assert_allclose(info.ess, np.clip(info.ess, 1.0, 32.0), **FLOAT)
        assert not info.recovered
    assert float(infos[8].log_evidence) == 0.0  # where the reading is missing
    for leaf in jax.tree.leaves(names["states"]):
        assert np.all(np.isfinite(leaf))
    for bars in (*names["truth"], *names["neural"], *names["particle"]):
        np.testing.assert_allclose(np.sum(bars), 1.0, **FLOAT)
    for values in jax.tree.leaves(names["divergence"]):
        np.testing.assert_allclose(values, np.clip(values, 0.0, np.log(2.0)), **FLOAT)
    assert (folder / "corridor.png").stat().st_size > LEAST_PICTURE
    assert str(names["again"]) == str(names["fitted"])
    assert isinstance(names["tracker"], nbf.NeuralBayesianFilter)
    assert [block.output is None for block in blocks(PAGE.read_text(encoding="utf-8"))] == [
        not text for text in printed
    ]


def test_the_tutorial_runs(tmp_path, monkeypatch):
    """With a model that is not trained, of whose quality nothing is claimed."""
    monkeypatch.setattr(nbf, "fit", untrained)
    names, printed = run(tmp_path, EPISODES=2)
    assert_sound(names, printed, tmp_path)
    check, training = blocks(PAGE.read_text(encoding="utf-8"))[2:4]
    assert [words(block.output or "") for block in (check, training)] == [words(text) for text in printed[2:4]]


@pytest.mark.slow
def test_the_tutorial_keeps_its_promises(tmp_path):
    """As it stands: trained in time, nearer to the truth than a particle filter of the same size in the
    episodes of the family, alarmed by feet and
    not by metres, and printing what the page shows."""
    names, printed = run(tmp_path)
    assert_sound(names, printed, tmp_path)
    assert names["fitted"].seconds < MOST_SECONDS
    neural, particle = (np.asarray(names["divergence"]["kept"][f"{name}, 32"]) for name in ("neural", "particle"))
    gain = particle - neural
    assert gain.mean() > monte_carlo(gain.std(), len(gain))
    key = jax.random.key(7)
    assert not np.any(names["alarms"](key, names["metres"], names["drives"][0]))
    assert np.any(names["alarms"](key, names["feet"], names["drives"][0]))
    for block, text in zip(blocks(PAGE.read_text(encoding="utf-8")), printed, strict=True):
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
