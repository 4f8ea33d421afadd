"""Who may import whom (`rooms.py`), read from the syntax trees of both packages."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from rooms import DOCUMENT, FILES, NAMES, ROOMS, imported, imports, loaded, room_of, with_picture

from nbf import spaces

JAX = {"jax", "jaxlib", "equinox", "optax", "jaxtyping", "flowjax", "diffrax"}
SPACES = ("Box", "Deals", "Lattice", "Tokens")
MAY_IMPORT = {room.name: {room.name, *room.may_import} for room in ROOMS}


def breaks_the_rooms(module: str, target: str) -> bool:
    """Whether `target` is ours and out of bounds for `module`."""
    if target.split(".")[0] not in ("nbf", "nbf_paper"):
        return False
    room = room_of(module)
    assert room is not None
    return room_of(target) not in MAY_IMPORT[room]


def outsiders(module: str, packages: set[str]) -> set[str]:
    """Those packages that are imported when a module is."""
    return packages & {name.split(".")[0] for name in loaded(module)}


def test_every_module_stands_in_a_room_and_every_room_has_one():
    rooms = {module: room_of(module) for module in FILES}
    assert [module for module, room in rooms.items() if room is None] == []
    assert set(rooms.values()) == set(NAMES)


def test_rooms_are_listed_from_the_bottom_up():
    for place, room in enumerate(ROOMS):
        assert set(room.may_import) <= set(NAMES[:place]), room.name


def test_rooms_import_only_what_they_may():
    broken = [
        f"{module} imports {target}"
        for module in FILES
        for target in sorted(imported(module))
        if breaks_the_rooms(module, target)
    ]
    assert broken == []


def test_the_library_does_not_know_the_paper():
    assert [module for module in FILES if module.startswith("nbf.") and outsiders(module, {"nbf_paper"})] == []


@pytest.mark.parametrize("room", [room.name for room in ROOMS if not room.jax])
def test_a_room_without_jax(room: str):
    assert {module: found for module in FILES if room_of(module) == room and (found := outsiders(module, JAX))} == {}


@pytest.mark.parametrize("room", [room.name for room in ROOMS if not room.draws])
def test_a_room_without_matplotlib(room: str):
    drawn = {"matplotlib"}
    assert {module: found for module in FILES if room_of(module) == room and (found := outsiders(module, drawn))} == {}


def judges_by_class(tree: ast.AST) -> bool:
    """Whether some space is asked for its class, not for what it can do."""
    asked = [node.args[1] for node in ast.walk(tree) if isinstance(node, ast.Call) and len(node.args) == 2
             and isinstance(node.func, ast.Name) and node.func.id in ("isinstance", "issubclass")]  # fmt: skip
    asked += [node.cls for node in ast.walk(tree) if isinstance(node, ast.MatchClass)]
    asked += [node for node in ast.walk(tree) if isinstance(node, ast.Compare) and "type(" in ast.unparse(node)]
    return any(re.search(rf"\b({'|'.join(SPACES)})\b", ast.unparse(part)) for part in asked)


def test_what_a_space_can_do_is_asked_and_not_which_class_it_has():
    assert set(SPACES) <= set(spaces.__all__)
    outside = [module for module in FILES if room_of(module) != "nbf.spaces"]
    assert [module for module in outside if judges_by_class(ast.parse(FILES[module].read_text("utf-8")))] == []


@pytest.mark.parametrize(
    ("source", "judged"),
    [
        ("isinstance(space, Box)", True),
        ("if not isinstance(a.space, Box | Lattice): pass", True),
        ("issubclass(kind, (StateSpace, spaces.Tokens))", True),
        ("type(space) is Deals", True),
        ("match space:\n    case Lattice(shape=shape): pass", True),
        ("isinstance(space, ContinuousSpace)", False),
        ("isinstance(config, BoxConfig); space = Box((0.0,), (1.0,))", False),
    ],
)
def test_the_rule_of_spaces_catches_what_it_should(source: str, judged: bool):
    assert judges_by_class(ast.parse(source)) == judged


def test_contributing_shows_the_rooms_as_they_are():
    document = DOCUMENT.read_text(encoding="utf-8")
    assert with_picture(document) == document, "run `python tests/rooms.py` and commit what it writes"


def test_the_walk_names_files_that_exist_each_once():
    """A bare name is of the folder of the file before it."""
    walk = DOCUMENT.read_text(encoding="utf-8").partition("## A walk")[2].partition("\n## ")[0]
    folder, found = Path(), []
    for name in re.findall(r"`([\w/]+\.py)`", walk):
        folder = Path(name).parent if "/" in name else folder
        found.append(FILES["nbf"].parent / folder / Path(name).name)
    assert len(found) > 15
    assert [str(path) for path in found if path not in FILES.values()] == []
    assert sorted(set(found)) == sorted(found)
    for told in ("fitting/teacher.py", "filters/neural/regenerating.py"):
        assert FILES["nbf"].parent / told in found


@pytest.mark.parametrize(
    ("module", "source", "broken"),
    [
        ("nbf.models.flow", "from nbf.models import set_encoder; from nbf.spaces import Lattice", False),
        ("nbf.models.flow", "from nbf.filters.exact import Exact", True),
        ("nbf.models.flow", "from nbf import filters", True),
        ("nbf.models.flow", "def f():\n    from ..filters import exact", True),
        ("nbf.models.flow", "from nbf_paper import records", True),
        ("nbf.models", "from .flow import Flow", False),
        ("nbf.filters.exact", "import nbf.beliefs.categorical", False),
        ("nbf.plot.style", "from nbf.files.checkpoint import save_model", True),
        ("nbf.plot.style", "from nbf.files.atomic import write_atomically", False),
        ("nbf_paper.report.plots", "from nbf.evaluation.divergence import js", True),
        ("nbf_paper.records", "from nbf.contracts import Filter", True),
        ("nbf_paper.config", "from nbf.cli.main import main", True),
        ("nbf_paper.config", "from nbf_paper.experiments import gridworld", True),
        ("nbf_paper.cli.report", "import nbf.filters", False),
    ],
)
def test_the_rules_catch_what_they_should(module: str, source: str, broken: bool):
    assert any(breaks_the_rooms(module, target) for target in imports(ast.parse(source), module)) == broken
