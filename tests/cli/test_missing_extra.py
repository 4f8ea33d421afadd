"""Laws of optional packages: without one, whatever needs it says so in one sentence that names the extra."""

from __future__ import annotations

from pathlib import Path

import pytest
from extras import without

from nbf.errors import missing_extra

MODEL = Path(__file__).parents[2] / "src" / "nbf" / "files" / "8-2D-random.safetensors"
RUN = "from nbf.cli import main; sys.exit(main(sys.argv[1:]))"


@pytest.mark.parametrize("packages", ["tyro", "rich", "tyro rich optax matplotlib PIL"])
def test_the_command_line_names_its_extra(packages: str):
    done = without(packages, RUN, "demo")
    assert (done.returncode, done.stdout) == (2, "")
    (sentence,) = done.stderr.splitlines()
    assert sentence.startswith("nbf: The command line needs ")
    assert sentence.endswith("pip install 'neural-bayesian-filtering[cli]'")


@pytest.mark.parametrize("package", ["matplotlib", "PIL"])
def test_the_demo_names_the_extra_of_its_figures(package: str, tmp_path: Path):
    done = without(package, RUN, "demo", folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [f"nbf: nbf.plot needs {package}: pip install 'neural-bayesian-filtering[plot]'"]
    assert list(tmp_path.iterdir()) == []


def test_demo_and_info_need_no_optimizer():
    done = without("optax diffrax", "import nbf.cli.demonstration\n" + RUN, "info", str(MODEL))
    assert done.returncode == 0, done.stderr
    assert "lattice(8, 8)" in done.stdout


@pytest.mark.parametrize(
    ("package", "code", "extra"),
    [
        ("matplotlib", "import nbf.plot", "plot"),
        ("matplotlib", "import nbf; nbf.plot", "plot"),
    ],
)
def test_the_library_names_the_extra(package: str, code: str, extra: str):
    done = without(package, code)
    assert done.returncode == 1
    error = done.stderr.splitlines()[-1]
    assert error.startswith("nbf.errors.MissingExtraError: nbf.")
    assert error.endswith(f" needs {package}: pip install 'neural-bayesian-filtering[{extra}]'")


def test_figures_need_no_jax():
    done = without(
        "jax jaxlib equinox jaxtyping", "from nbf.plot import belief_figure, calibration_figure, steps_figure"
    )
    assert done.returncode == 0, done.stderr


def test_a_package_of_no_extra_is_not_blamed_on_one():
    assert missing_extra(ModuleNotFoundError("No module named 'nowhere'", name="nowhere"), "This") is None
