"""Files and functions that fit into one's head: upper bounds of their lines, in both packages."""

from __future__ import annotations

import ast

from rooms import FILES

LONGEST_FILE, LONGEST_FUNCTION, LONGEST_OF_THE_NEURAL_FILTER = 350, 50, 200


def test_no_file_is_too_long():
    lines = {module: path.read_text(encoding="utf-8").count("\n") for module, path in FILES.items()}
    assert {module: count for module, count in lines.items() if count >= LONGEST_FILE} == {}
    neural = {module: count for module, count in lines.items() if module.startswith("nbf.filters.neural")}
    assert len(neural) > 5
    assert {module: count for module, count in neural.items() if count > LONGEST_OF_THE_NEURAL_FILTER} == {}


def test_no_function_is_too_long():
    functions = {
        f"{module}.{node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for module, path in FILES.items()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {name: count for name, count in functions.items() if count >= LONGEST_FUNCTION} == {}
