"""Imports go downwards only, and neither MPI nor torch starts because something was imported.

Read from the sources, so that an import inside a function counts as well.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# The rooms of the package by level; a module may import rooms of lower levels only.
LEVELS: dict[str, int] = {
    "_version": 0,
    "errors": 0,
    "config": 0,
    "_core": 0,
    "topology": 1,
    "ring": 1,
    "dtypes": 1,
    "buffers": 1,
    "environment": 1,
    "intranode": 2,
    "internode": 2,
    "nccl": 2,
    "communicator": 3,
    "world": 3,
    "": 3,  # hierring/__init__.py
    "cli": 4,
    "benchmarks": 4,
    "launch": 4,
    "torch": 4,
    "__main__": 5,
    "_testing": 5,
}
# Within one level. (A room always imports itself.)
NEIGHBOURS = {
    ("config", "errors"),
    ("buffers", "dtypes"),
    ("topology", "environment"),
    ("world", "communicator"),
    ("", "communicator"),
    ("", "world"),
    ("benchmarks", "launch"),
    ("cli", "benchmarks"),
    ("cli", "launch"),
}
# Start as soon as they are imported, so functions import them.
HEAVY = ("mpi4py.MPI", "torch")


def sources() -> Iterator[tuple[str, str, Path]]:
    """Yield (module, room, file) of the package as it is installed."""
    for directory, package in (
        ("hierring", "hierring"),
        ("topology", "hierring.topology"),
        ("launch", "hierring.launch"),
        ("benchmarks", "hierring.benchmarks"),
    ):
        for file in sorted((ROOT / directory).rglob("*.py")):
            parts = [*package.split("."), *file.relative_to(ROOT / directory).with_suffix("").parts]
            module = ".".join(parts).removesuffix(".__init__")
            yield module, module.removeprefix("hierring").strip(".").split(".")[0], file


def imports(tree: ast.AST, package: str) -> Iterator[tuple[str, int]]:
    """Yield (module, line) of every import, and of every name taken from hierring itself."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")
                base = ".".join([*parts[: len(parts) - node.level + 1], *filter(None, [base])])
            if base in ("hierring", "mpi4py"):
                yield from ((f"{base}.{alias.name}", node.lineno) for alias in node.names)
            else:
                yield base, node.lineno


def at_import(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yield the statements that run when the module is imported, classes and conditions opened."""
    pending: list[ast.stmt] = list(tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            pending += node.orelse
            continue
        yield node
        pending += [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)]
        for handler in getattr(node, "handlers", []):
            pending += handler.body


MODULES = list(sources())


@pytest.mark.parametrize(("module", "room", "file"), MODULES, ids=[m for m, _, _ in MODULES])
def test_imports_go_downwards(module: str, room: str, file: Path) -> None:
    assert room in LEVELS, f"{file}: give the room {room!r} a level"
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    wrong = []
    for name, line in imports(ast.parse(file.read_text(encoding="utf-8")), package):
        if name != "hierring" and not name.startswith("hierring."):
            continue
        target = name.removeprefix("hierring").strip(".").split(".")[0]
        target = target if target in LEVELS else ""  # a public name of hierring itself
        if target == room or (room, target) in NEIGHBOURS or LEVELS[target] < LEVELS[room]:
            continue
        wrong.append(f"{file.relative_to(ROOT)}:{line}: {room or 'hierring'} imports {name}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(("module", "room", "file"), MODULES, ids=[m for m, _, _ in MODULES])
def test_importing_starts_nothing(module: str, room: str, file: Path) -> None:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    flat = ast.Module(
        [node for node in at_import(tree) if isinstance(node, ast.Import | ast.ImportFrom)], []
    )
    found = [
        f"{file.relative_to(ROOT)}:{line}: {name}"
        for name, line in imports(flat, module)
        if any(name == heavy or name.startswith(f"{heavy}.") for heavy in HEAVY)
    ]
    assert not found, "import it inside a function:\n" + "\n".join(found)


def test_every_room_is_seen() -> None:
    assert {"errors", "config", "topology", "internode", "communicator"} <= {
        r for _, r, _ in MODULES
    }
