"""Every public function and class of the library says what it is, its arguments and what it returns.

ruff checks the form of docstrings (pydocstyle, Google's convention); that an `Args:` section is there, and names every
argument, is checked here; a contract may describe the arguments of all its methods once, in its class docstring, under
`Arguments of the methods:`. `python tests/test_docstrings.py PATH ...` lists what is missing.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "nbf"
Function = ast.FunctionDef | ast.AsyncFunctionDef


def parsed(folder: Path = SOURCE) -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.py"))}


def is_public(name: str) -> bool:
    return not name.startswith("_")


def documented_methods(trees: dict[Path, ast.Module]) -> set[str]:
    """Names of methods that some class documents: what implements a contract may leave its docstring to it."""
    classes = [node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    methods = [node for kind in classes for node in kind.body if isinstance(node, Function)]
    return {method.name for method in methods if ast.get_docstring(method)}


def missing(tree: ast.Module, inherited: set[str]) -> Iterator[str]:
    """What the public functions and classes of a module do not say."""
    for node in tree.body:
        if isinstance(node, Function) and is_public(node.name):
            yield from missing_in(node, node.name, set())
        elif isinstance(node, ast.ClassDef) and is_public(node.name):
            text = ast.get_docstring(node) or ""
            if not text:
                yield f"{node.lineno}: class {node.name} has no docstring"
            shared = described(text, "Arguments of the methods")
            for method in node.body:
                if isinstance(method, Function) and is_public(method.name):
                    implements = bool(node.bases) and method.name in inherited
                    if ast.get_docstring(method) or not implements:
                        yield from missing_in(method, f"{node.name}.{method.name}", shared)


def described(text: str, title: str) -> set[str]:
    """The names that a section of a docstring describes."""
    section = re.search(rf"^{title}:\n(.*?)(?=^\S|\Z)", text, flags=re.M | re.S)
    return set(re.findall(r"^ +\*{0,2}(\w+):", section[1], flags=re.M)) if section else set()


def missing_in(node: Function, name: str, shared: set[str]) -> Iterator[str]:
    """What one function does not say; `shared` are arguments that its class describes for all methods."""
    text = ast.get_docstring(node)
    if not text:
        yield f"{node.lineno}: {name} has no docstring"
        return
    decorators = {ast.unparse(decorator).split(".")[-1] for decorator in node.decorator_list}
    given = node.args
    arguments = [*given.posonlyargs, *given.args, *given.kwonlyargs, *filter(None, (given.vararg, given.kwarg))]
    names = [argument.arg for argument in arguments if argument.arg not in ("self", "cls")]
    said = described(text, "Args")
    for argument in names:
        if argument not in said | shared and is_public(argument):
            yield f"{node.lineno}: {name} does not say what {argument} is"
    names = names if said or not shared else []  # a contract's one line says what it gives
    returns = node.returns is not None and ast.unparse(node.returns) != "None"
    if names and returns and "overload" not in decorators and not re.search(r"^(Returns|Yields):", text, flags=re.M):
        yield f"{node.lineno}: {name} does not say what it returns"


def test_the_public_library_is_documented():
    trees = parsed()
    inherited = documented_methods(trees)
    found = [f"{path.relative_to(SOURCE)}:{each}" for path, tree in trees.items() for each in missing(tree, inherited)]
    assert found == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('def f(a: int) -> int:\n    """Do.\n\n    Args:\n        a: One.\n\n    Returns:\n        Two.\n    """', []),
        ('def f(a: int) -> None:\n    """Do."""', ["1: f does not say what a is"]),
        (
            'def f(a: int) -> int:\n    """Do.\n\n    Args:\n        a: One.\n    """',
            ["1: f does not say what it returns"],
        ),
        ("def f() -> None: ...", ["1: f has no docstring"]),
        ("def _f(a): ...", []),
        ('class A(B):\n    """A."""\n    def sample(self, n: int): ...', []),
        ('class A:\n    """A."""\n    def sample(self, n: int): ...', ["3: A.sample has no docstring"]),
    ],
)
def test_the_rules_catch_what_they_should(source: str, expected: list[str]):
    assert list(missing(ast.parse(source), {"sample"})) == expected


if __name__ == "__main__":
    everything = parsed()
    for wanted in map(Path, sys.argv[1:] or [str(SOURCE)]):
        for path, tree in everything.items():
            if path.resolve().is_relative_to(wanted.resolve()):
                for each in missing(tree, documented_methods(everything)):
                    print(f"{path}:{each}")
