"""The rooms of both packages: what each is for, and what it may import. `test_rooms.py` keeps the code to it.

`python tests/rooms.py` draws the actual imports into CONTRIBUTING.md, between `<!-- rooms -->` and `<!-- /rooms -->`.
"""

from __future__ import annotations

import ast
import functools
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "CONTRIBUTING.md"
BEGIN, END = "<!-- rooms -->", "<!-- /rooms -->"


@dataclass(frozen=True)
class Room:
    """A package or module: everything below `name` that is not in a room of its own."""

    name: str
    purpose: str
    may_import: tuple[str, ...] = ()
    """Rooms above it in the list, besides itself."""
    jax: bool = True
    """Whether importing it may import JAX."""
    draws: bool = False
    """Whether importing it may import matplotlib."""


CORE = ("nbf.errors", "nbf.calls", "nbf.capability", "nbf.contracts", "nbf.capabilities", "nbf.prng", "nbf.spaces")
MODELS = (*CORE, "nbf.resampling", "nbf.models")
FILTERS = (*CORE, "nbf.resampling", "nbf.environments", "nbf.beliefs", "nbf.filters")
READ_AND_WRITTEN = ("nbf.files.regular", "nbf.files.atomic")
LIBRARY = (
    *FILTERS,
    "nbf.compiling",
    "nbf.devices",
    "nbf.executors",
    "nbf.models",
    "nbf.sources",
    *READ_AND_WRITTEN,
    "nbf.training",
    "nbf.files",
    "nbf.evaluation",
)
RECORDS = ("nbf.errors", *READ_AND_WRITTEN, "nbf_paper.names", "nbf_paper.records", "nbf_paper.pictures")
PAPER = ("nbf_paper.config", "nbf_paper.donuts")
ZOO = ("nbf_paper.zoo", "nbf.fitting")

ROOMS = (
    Room("nbf.errors", "the error of bad input, and of a missing extra", jax=False),
    Room("nbf.executors", "who does many calls: this process, others, a Ray cluster", ("nbf.errors",), jax=False),
    Room("nbf.capability", "how an object tells what it can do", ("nbf.errors",)),
    Room("nbf.compiling", "what the compiler is doing, and what it prints about that", jax=False),
    Room("nbf.devices", "a batch over several devices", ("nbf.errors",)),
    Room("nbf.dispatch", "one compiled program for calls of one kind", ("nbf.errors",)),
    Room("nbf.calls", "what a call of a filter must fit", ("nbf.errors",)),
    Room("nbf.contracts", "the abstract classes of all others", ("nbf.calls", "nbf.capability", "nbf.dispatch")),
    Room("nbf.capabilities", "what they may offer beyond that", ("nbf.capability", "nbf.contracts")),
    Room("nbf.prng", "named random streams, and draws", ("nbf.errors",)),
    Room("nbf.spaces", "what states are, as numbers for a network", CORE[:6]),
    Room("nbf.resampling", "few weighted points for many; log weights", CORE),
    Room(
        "nbf.environments", "Gridworld, Goofspiel, Triangulation, linear-Gaussian, your own", (*CORE, "nbf.executors")
    ),
    Room(
        "nbf.beliefs",
        "particles, categorical, Gaussian, kernel density, ...",
        (*CORE, "nbf.dispatch", "nbf.resampling"),
    ),
    Room("nbf.models", "encoders and decoders: what embeds a set of states and samples it anew", MODELS[:-1]),
    Room("nbf.filters", "every filter", (*FILTERS[:-1], "nbf.dispatch")),
    Room("nbf.sources", "beliefs to train on", (*FILTERS, "nbf.executors")),
    Room("nbf.files.regular", "reading of regular files alone", jax=False),
    Room("nbf.files.atomic", "files that are only ever replaced whole", ("nbf.errors", "nbf.files.regular"), jax=False),
    Room("nbf.files", "checkpoints, saved states, the shipped model", (*MODELS, *READ_AND_WRITTEN)),
    Room(
        "nbf.training",
        "the optimisation loop",
        (*CORE, "nbf.compiling", "nbf.devices", *READ_AND_WRITTEN, "nbf.files"),
    ),
    Room("nbf.evaluation", "divergence, scores, calibration", (*CORE, "nbf.resampling", "nbf.beliefs")),
    Room("nbf.plot", "figures, and the live view", ("nbf.errors", *READ_AND_WRITTEN), jax=False, draws=True),
    Room("nbf.fitting", "`nbf.fit`: from a family to a trained filter; `nbf.compare`", (*LIBRARY, "nbf.plot")),
    Room(
        "nbf.planning",
        "decide with a belief: tree search, policies and values that are trained on beliefs",
        (*FILTERS, "nbf.models", "nbf.compiling", "nbf.training", "nbf.evaluation"),
    ),
    Room("nbf.testing", "checks of an environment, a model or a filter of your own", FILTERS),
    Room("nbf.adapters", "Gymnasium, MuJoCo, gymnax, OpenSpiel, pomdp-py", (*FILTERS, "nbf.models")),
    Room("nbf.play", "`nbf play`: a page where you steer an agent", (*LIBRARY, "nbf.fitting", "nbf.plot"), draws=True),
    Room("nbf.cli", "the command `nbf`", (*LIBRARY, "nbf.fitting", "nbf.testing", "nbf.plot", "nbf.play"), draws=True),
    Room(
        "nbf",
        "the public names",
        (*LIBRARY, "nbf.fitting", "nbf.planning", "nbf.testing", "nbf.plot"),
        jax=False,
    ),
    Room("nbf_paper.names", "names of configurations and options, as records have them", jax=False),
    Room(
        "nbf_paper.audit",
        "the tables once more, from the records alone",
        ("nbf.errors", "nbf.files.regular", "nbf_paper.names"),
        jax=False,
    ),
    Room("nbf_paper.records", "the records of runs", RECORDS[:4], jax=False),
    Room("nbf_paper.pictures", "arrays for figures beside the records", RECORDS[:5], jax=False),
    Room("nbf_paper.config", "what one run is", (*CORE, "nbf.environments", "nbf_paper.names")),
    Room("nbf_paper.donuts", "the donuts of the paper", CORE),
    Room(
        "nbf_paper.zoo",
        "small problems of users' kinds, with references",
        (*FILTERS, "nbf.adapters", "nbf_paper.names"),
    ),
    Room("nbf_paper.report", "figures and tables of each experiment", (*RECORDS, "nbf.plot"), jax=False, draws=True),
    Room(
        "nbf_paper.experiments",
        "what runs and records",
        (*LIBRARY, "nbf.adapters", "nbf.planning", *RECORDS, *PAPER, *ZOO),
    ),
    Room(
        "nbf_paper.experiments.choices",
        "every experiment: its options, its jobs, its page",
        (*RECORDS, *PAPER, "nbf_paper.report", "nbf_paper.experiments"),
        jax=False,
    ),
    Room(
        "nbf_paper.protocol",
        "what the paper did, and what that would take here",
        (*RECORDS, "nbf_paper.report", "nbf_paper.experiments.choices"),
        jax=False,
    ),
    Room(
        "nbf_paper.report.pages",
        "all pages: the documentation's tables, one HTML file",
        (*RECORDS, "nbf.plot", "nbf_paper.report", "nbf_paper.experiments.choices", "nbf_paper.protocol"),
        jax=False,
        draws=True,
    ),
    Room(
        "nbf_paper.cli",
        "the command `nbf-paper`",
        (
            *(*LIBRARY, "nbf.cli", "nbf.plot", *RECORDS, *PAPER),
            *("nbf_paper.report", "nbf_paper.experiments", "nbf_paper.experiments.choices", "nbf_paper.report.pages"),
            *("nbf_paper.audit", "nbf_paper.protocol"),
        ),
        jax=False,
    ),
    Room("nbf_paper", "nothing by itself", jax=False),
)  # fmt: skip
"""From the bottom up: a room imports rooms that stand above it in this list."""
NAMES = tuple(room.name for room in ROOMS)

FILES = {
    ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__"): path
    for source in (ROOT / "src", ROOT / "paper" / "src")
    for path in sorted(source.rglob("*.py"))
}
"""Every module of both packages."""


def room_of(module: str) -> str | None:
    """The innermost room of a module; None for a module that is not ours, or stands in no room."""
    inside = [name for name in NAMES if module == name or ("." in name and module.startswith(f"{name}."))]
    return max(inside, key=len, default=None)


def imports(tree: ast.AST, module: str, *, top_level: bool = False) -> Iterator[str]:
    """The modules that a syntax tree imports, without those for a type checker alone.

    With `top_level`, also without those that a function imports when it is called.
    """
    package = module if FILES.get(module, Path()).name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            above = parts[: len(parts) - node.level + 1] if node.level else []
            source = ".".join(filter(None, [*above, node.module]))
            names = (f"{source}.{alias.name}" for alias in node.names)
            yield from (name if name in FILES else source for name in names)
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" and module != "nbf":
            for other in node.orelse:
                yield from imports(ast.Module([other], []), module, top_level=top_level)
        elif not (top_level and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)):
            yield from imports(node, module, top_level=top_level)


@functools.cache
def imported(module: str, *, top_level: bool = False) -> frozenset[str]:
    """What a module of ours imports."""
    tree = ast.parse(FILES[module].read_text(encoding="utf-8"))
    return frozenset(imports(tree, module, top_level=top_level))


@functools.cache
def loaded(module: str) -> frozenset[str]:
    """Every module that is imported when a module of ours is, its packages among them."""
    found, todo = {module}, [module]
    while todo:
        name = todo.pop()
        above = {name.rpartition(".")[0]} if "." in name else set()
        # The public names of `nbf` are loaded when they are first used.
        told = imported(name, top_level=True) if name in FILES and name != "nbf" else frozenset()
        new = (told | above) - found
        found |= new
        todo += new
    return frozenset(found)


def graph() -> dict[str, set[str]]:
    """Which rooms each room imports."""
    found: dict[str, set[str]] = {name: set() for name in NAMES}
    for module in FILES:
        room = room_of(module)
        if room is not None:
            found[room] |= {other for target in imported(module) if (other := room_of(target)) not in (None, room)}
    return found


def reduced(graph: dict[str, set[str]]) -> dict[str, list[str]]:
    """A graph without the arrows that follow from others."""

    @functools.cache
    def reachable(name: str) -> frozenset[str]:
        return frozenset(graph[name]).union(*(reachable(other) for other in graph[name]))

    return {
        name: [other for other in NAMES if other in targets and not any(other in reachable(t) for t in targets)]
        for name, targets in graph.items()
    }


def _node(name: str) -> str:
    return f'{name.replace(".", "_")}["{name.partition(".")[2] or name}"]'


def picture() -> str:
    """The rooms as a Mermaid flowchart of what they import, and as a table of what is in them."""
    shown = [name for name in NAMES if "." in name]
    lines = ["```mermaid", "flowchart BT"]
    for package in ("nbf", "nbf_paper"):
        lines += [
            f"  subgraph {package}",
            *(f"    {_node(name)}" for name in shown if _package(name) == package),
            "  end",
        ]
    arrows = reduced(graph())
    lines += [f"  {name.replace('.', '_')} --> {other.replace('.', '_')}" for name in shown for other in arrows[name]]
    lines += ["```", "", "| room | what is in it |", "|---|---|"]
    lines += [f"| `{room.name}` | {room.purpose} |" for room in ROOMS if room.name in shown]
    return "\n".join([*lines, "", *textwrap.wrap(_outsiders(), 120, break_on_hyphens=False)])


def _outsiders() -> str:
    """Who imports JAX and matplotlib, in words."""
    drawing = ", ".join(f"`{room.name}`" for room in ROOMS if room.draws)
    without = ", ".join(f"`{room.name}`" for room in ROOMS if not room.jax)
    return (
        f"Matplotlib is imported at top level by these alone: {drawing}. Importing these imports no JAX, so that a "
        f"table or a figure is made without it: {without}."
    )


def _package(name: str) -> str:
    return name.partition(".")[0]


def with_picture(document: str) -> str:
    """A document with the picture between its markers."""
    pattern = re.compile(f"{BEGIN}\n.*?{END}", re.DOTALL)
    text, found = pattern.subn(lambda _: f"{BEGIN}\n{picture()}\n{END}", document)
    if found != 1:
        raise ValueError(f"The document must have one block from {BEGIN} to {END}; it has {found}.")
    return text


if __name__ == "__main__":
    DOCUMENT.write_text(with_picture(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
