"""The interface declared for the compiled module is the one it has.

mypy's stubtest takes nanobind's functions for no functions, so names, parameters and defaults are
compared here, from the signatures that nanobind keeps.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from hierring import _core

STUB = ast.parse(Path(_core.__file__).with_name("_core.pyi").read_text(encoding="utf-8"))
# Shapes of dictionaries, for type checkers only.
CLASSES = {
    node.name: node
    for node in STUB.body
    if isinstance(node, ast.ClassDef) and "TypedDict" not in ast.dump(ast.Tuple(node.bases))
}


def functions(body: list[ast.stmt]) -> dict[str, ast.FunctionDef]:
    """Return the functions of a body by name, properties included."""
    return {node.name: node for node in body if isinstance(node, ast.FunctionDef)}


def is_property(node: ast.FunctionDef) -> bool:
    """Tell whether a method is declared as a property."""
    return any(ast.unparse(decorator) == "property" for decorator in node.decorator_list)


def constants() -> dict[str, Any]:
    """Return the stub's constants with their values."""
    return {
        node.target.id: ast.literal_eval(node.value)
        for node in STUB.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value
    }


def compared(node: ast.FunctionDef, runtime: Any) -> tuple[object, object]:
    """Return parameters and their defaults as declared, and as the module has them."""
    (signature, _, values) = runtime.__nb_signature__[0]
    text = signature
    for i, value in enumerate(values or ()):
        text = text.replace(f"\\{i}", repr(value))
    names = text.partition("(")[2].rpartition(" -> ")[0].removesuffix(")")
    real = ast.parse(f"def f({_plain(names)}): ...").body[0]
    assert isinstance(real, ast.FunctionDef)
    return _parameters(node), _parameters(real)


def _plain(parameters: str) -> str:
    """Drop the annotations, which nanobind writes in words of its own ("shape=(*, 3)")."""
    kept, depth, skipping, quote = "", 0, False, ""
    for char in parameters:
        quote = "" if char == quote else quote or (char if char in "'\"" else "")
        depth += 0 if quote else (char in "([{") - (char in ")]}")
        at_top = not quote and depth == 0
        if at_top and char == ":":
            skipping = True
        elif at_top and char in ",=":
            skipping = False
        kept += "" if skipping else char
    return kept


def _parameters(node: ast.FunctionDef) -> list[tuple[str, str]]:
    """Return (name, default) of each parameter; the default is empty where there is none."""
    arguments = node.args.posonlyargs + node.args.args
    defaults = [ast.unparse(value) for value in node.args.defaults]
    padded = [""] * (len(arguments) - len(defaults)) + defaults
    return [(argument.arg, value) for argument, value in zip(arguments, padded, strict=True)]


def test_names_of_the_module() -> None:
    declared = {*functions(STUB.body), *CLASSES, *constants()}
    assert declared == {name for name in vars(_core) if not name.startswith("__")}


def test_constants() -> None:
    assert constants() == {name: getattr(_core, name) for name in constants()}


@pytest.mark.parametrize("name", functions(STUB.body))
def test_function(name: str) -> None:
    declared, real = compared(functions(STUB.body)[name], getattr(_core, name))
    assert declared == real


@pytest.mark.parametrize("name", CLASSES)
def test_class(name: str) -> None:
    """Names, and what is a property; parameters and defaults of every method."""
    declared = functions(CLASSES[name].body)
    real = vars(getattr(_core, name))
    assert set(declared) - {"__init__"} == {key for key in real if not key.startswith("__")}
    for key, node in declared.items():
        assert is_property(node) == isinstance(real[key], property), key
        if not is_property(node) and hasattr(
            member := getattr(getattr(_core, name), key), "__nb_signature__"
        ):
            assert compared(node, member)[0] == compared(node, member)[1], key
