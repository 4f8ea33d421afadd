"""Laws of training without its packages: one sentence names the extra, and a fitted model still filters."""

from __future__ import annotations

from pathlib import Path

import pytest
from extras import without

MODEL = Path(__file__).parents[2] / "src" / "nbf" / "files" / "8-2D-random.safetensors"


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("packages", "code", "sentence"),
    [
        ("optax", "nbf.fit", "nbf.fit needs optax: pip install 'neural-bayesian-filtering[train]'"),
        ("rich", "nbf.train", "nbf.train needs rich: pip install 'neural-bayesian-filtering[train]'"),
        (
            "diffrax",
            "nbf.FlowMatchingConfig().check(nbf.Box((0.0, 0.0), (1.0, 1.0)))",
            "Flow matching needs diffrax: pip install 'neural-bayesian-filtering[flow-matching]'",
        ),
    ],
)
def test_the_extra_is_named_in_one_sentence(packages: str, code: str, sentence: str):
    done = without(packages, f"import nbf; {code}")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"nbf.errors.MissingExtraError: {sentence}"


def test_a_model_that_was_fitted_elsewhere_needs_no_extra():
    done = without("optax rich diffrax", "import nbf; nbf.load_model(sys.argv[1]); nbf.FittedModel", str(MODEL))
    assert done.returncode == 0, done.stderr
