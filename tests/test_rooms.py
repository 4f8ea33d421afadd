"""Who may import whom (CONTRIBUTING.md, "Rooms"), read from the syntax trees of the package."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src"
FILES = {".".join(path.relative_to(SOURCE).with_suffix("").parts): path for path in sorted(SOURCE.rglob("*.py"))}
MODULES = {name.removesuffix(".__init__") for name in FILES}

COMMON = ("nbf.contracts", "nbf.prng", "nbf.spaces", "nbf.resampling.optimal")
COMMANDS = ("nbf.cli.main", "nbf.cli.command")
FREE = {"__init__", "cli", "commands", "experiments", "fitting", "testing", "config"}  # config: all but COMMANDS
READ = ("nbf_paper.records", "nbf_paper.pictures")  # what a report reads with
MAY_IMPORT = {  # a room -> what it may import of ours, besides itself
    **dict.fromkeys(("prng", "spaces", "spread"), COMMON),
    "contracts": (*COMMON, "nbf.dispatch"),
    "dispatch": (),
    "shipped": (*COMMON, "nbf.models", "nbf.training"),
    **dict.fromkeys(("environments", "beliefs", "models", "training"), COMMON),
    **dict.fromkeys(("filters", "evaluation"), (*COMMON, "nbf.beliefs")),
    "adapters": (*COMMON, "nbf.beliefs", "nbf.environments"),
    "report": READ,
}
JAX = {"jax", "jaxlib", "equinox", "optax", "jaxtyping", "flowjax"}
MAY_PLOT = {"report", "cli", "commands", "experiments"}


def imports(tree: ast.AST, module: str, *, top_level: bool = False) -> Iterator[str]:
    """The modules that a syntax tree imports; with `top_level`, not those that a function imports when called."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = module.split(".")[: -node.level] if node.level else []
            source = ".".join(filter(None, [*above, node.module]))
            names = (f"{source}.{alias.name}" for alias in node.names)
            yield from (name if name in MODULES else source for name in names)
        elif not (top_level and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)):
            yield from imports(node, module, top_level=top_level)


def is_within(target: str, package: str) -> bool:
    return target == package or target.startswith(package + ".")


def breaks_the_rooms(module: str, target: str) -> bool:
    """Whether `target` is ours and out of bounds for `module`, or is jax in a room that must do without."""
    # What a report reads with must be free of jax too, hence of everything of ours: contracts import it.
    room = "report" if module in READ else module.split(".")[1]
    if not is_within(target, "nbf"):
        return room == "report" and target.split(".")[0] in JAX
    if room in FREE:
        return room == "config" and any(is_within(target, top) for top in COMMANDS)
    return not any(is_within(target, package) for package in (f"nbf.{room}", *MAY_IMPORT[room]))


def plots_too_early(module: str, target: str) -> bool:
    """Whether `target` is matplotlib in a module that may import it only when it is called, if at all."""
    return is_within(target, "matplotlib") and module.split(".")[1] not in MAY_PLOT


def violations(rule: Callable[[str, str], bool], *, top_level: bool) -> list[str]:
    trees = {module: ast.parse(path.read_text(encoding="utf-8")) for module, path in FILES.items()}
    return [
        f"{module} imports {target}"
        for module, tree in trees.items()
        for target in imports(tree, module, top_level=top_level)
        if rule(module, target)
    ]


def test_every_module_stands_in_a_known_room():
    assert {module.split(".")[1] for module in FILES} - FREE - MAY_IMPORT.keys() == set()


def test_rooms_import_only_what_they_may():
    assert violations(breaks_the_rooms, top_level=False) == []


def test_only_what_draws_imports_matplotlib():
    assert violations(plots_too_early, top_level=True) == []


@pytest.mark.parametrize(
    ("module", "source", "broken"),
    [
        ("nbf.models.flow", "from nbf.models import set_encoder; from nbf.spaces import Lattice", False),
        ("nbf.models.flow", "from nbf.filters.exact import Exact", True),
        ("nbf.models.flow", "from nbf import filters", True),
        ("nbf.models.flow", "def f():\n    from ..filters import exact", True),
        ("nbf.models.__init__", "from .flow import Flow", False),
        ("nbf.filters.exact", "import nbf.beliefs.categorical", False),
        ("nbf_paper.report.plots", "from nbf.evaluation.divergence import js", True),
        ("nbf_paper.report.plots", "import jax.numpy as jnp", True),
        ("nbf_paper.records", "from nbf.contracts import InputError", True),
        ("nbf_paper.config", "from nbf.cli.main import main", True),
        ("nbf_paper.config", "from nbf.cli.command import say", True),
        ("nbf_paper.cli.report", "import nbf.filters", False),
    ],
)
def test_the_rules_catch_what_they_should(module: str, source: str, broken: bool):
    assert any(breaks_the_rooms(module, target) for target in imports(ast.parse(source), module)) == broken
