"""The API reference: one page for each room of `nbf` with public names, written for mkdocstrings.

The names are those that `nbf/__init__.py` lists, those in `__all__` of its public packages, and the adapters. Sources
are read, not imported.
"""

from __future__ import annotations

import ast
import functools
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src" / "nbf"
ROOMS = {
    "contracts": "The theory on one page: what every part promises to the others.",
    "capabilities": "What an object may offer beyond its contract, and what each buys.",
    "environments": "Environments that come with the library, and ways to make your own.",
    "filters": "Every filter.",
    "beliefs": "What filters report.",
    "models": "Belief models: encoders, decoders, and their configs.",
    "sources": "Beliefs to train on.",
    "fitting": "From a family to a trained filter; filters compared.",
    "evaluation": "Divergence, calibration.",
    "planning": "Choosing actions from a belief.",
    "plot": "Figures. Needs the extra `plot`.",
    "testing": "Checks of an environment, a model or a filter of your own.",
    "executors": "Who does many calls of a simulator.",
    "files": "Models and states in files.",
    "adapters": "Other libraries: each module has its own extra.",
}
"""The order of pages, and what each says first; a room that is not here comes last."""
PACKAGES = ("capabilities", "executors", "planning", "plot", "testing")
"""Packages whose `__all__` is public."""


@functools.cache
def imported(path: Path) -> dict[str, str]:
    """Read where the names of a module come from.

    Args:
        path: A module's source.

    Returns:
        The module of each name that a `from ... import` statement brings.
    """
    found = {}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {alias.asname or alias.name: node.module for alias in node.names}
    return found


def all_of(path: Path) -> list[str]:
    """Read `__all__`.

    Args:
        path: A module's source.

    Returns:
        The names; none if the module has no such list.
    """
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return sorted(ast.literal_eval(node.value))
    return []


def home(module: str, name: str) -> str:
    """Find where a public name is defined.

    Args:
        module: A module that offers it, for example `nbf.filters.neural`.
        name: The name.

    Returns:
        The module that defines it.
    """
    path = SOURCE.parent / Path(*module.split("."))
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    outer = imported(source).get(name)
    return home(outer, name) if outer is not None and outer.startswith("nbf.") else module


def public_names() -> dict[str, str]:
    """List every public name.

    Returns:
        For each name as a user writes it, such as `nbf.plot.steps_figure`, the module that defines it.
    """
    offered = {
        f"nbf.{name}": home(module, name)
        for name, module in imported(SOURCE / "__init__.py").items()
        if module.startswith("nbf.")  # a package itself is imported from `nbf`
    }
    for package in PACKAGES:
        names = all_of(SOURCE / package / "__init__.py")
        more = {f"nbf.{package}.{name}": home(f"nbf.{package}", name) for name in names}
        offered |= {name: module for name, module in more.items() if f"nbf.{name.split('.')[-1]}" not in offered}
    return offered


@functools.cache
def reference_pages() -> dict[str, str]:
    """Write the pages.

    Returns:
        The Markdown of each, by the name of its room.
    """
    rooms: dict[str, list[str]] = {}
    for name, module in sorted(public_names().items(), key=lambda item: item[0].split(".")[-1].lower()):
        rooms.setdefault(module.split(".")[1], []).append(entry(name, module))
    for path in sorted((SOURCE / "adapters").glob("[!_]*.py")):
        rooms.setdefault("adapters", []).append(
            f"::: nbf.adapters.{path.stem}\n    options:\n      show_root_full_path: true\n"
        )
    ordered = [*[room for room in ROOMS if room in rooms], *sorted(set(rooms) - set(ROOMS))]
    return {room: f"# {room}\n\n{ROOMS.get(room, '')}\n\n" + "\n".join(rooms[room]) for room in ordered}


def entry(name: str, module: str) -> str:
    """Write the lines of one name.

    Args:
        name: As a user writes it.
        module: Where it is defined.

    Returns:
        Markdown; its anchor is the name.
    """
    return f'<a id="{name}"></a>\n\n::: {module}.{name.split(".")[-1]}\n'
