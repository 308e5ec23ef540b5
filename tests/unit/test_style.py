"""House rules that no linter knows, read from the sources."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DIRECTORIES = (
    *("csrc", "hierring", "topology", "launch", "benchmarks"),
    *("tests", "examples", "cmake", ".ci"),
)
SOURCES = sorted(
    file
    for directory in DIRECTORIES
    for file in (ROOT / directory).rglob("*")
    if file.suffix in {".py", ".pyi", ".cpp", ".hpp", ".cmake", ".txt"} or file.name == "run"
)
CAP, HARD_CAP = 300, 500
UNFINISHED = re.compile(
    "|".join(["TO" + "DO", "FIX" + "ME", "X" + "XX", "raise NotImplemented" + "Error"])
)
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def name(file: Path) -> str:
    """Name a file from the root of the tree."""
    return str(file.relative_to(ROOT))


def test_the_sources_are_seen() -> None:
    assert {"csrc/flags.hpp", "hierring/errors.py", "tests/conftest.py"} <= set(map(name, SOURCES))


@pytest.mark.parametrize("file", SOURCES, ids=name)
def test_length(file: Path) -> None:
    """A file has at most 300 lines; up to 500 if its head says why it is one file."""
    if "recorded" in file.parts or "data" in file.parts or file.suffix == ".pyi":
        return  # data, not code; the stub of a module, which can have but one
    lines = file.read_text(encoding="utf-8").splitlines()
    head = "\n".join(lines[:40]).lower()
    assert len(lines) <= HARD_CAP, f"{len(lines)} lines; split it"
    assert len(lines) <= CAP or "one file" in head, (
        f"{len(lines)} lines; split it, or say in its head why it is 'one file'"
    )


@pytest.mark.parametrize("file", SOURCES, ids=name)
def test_nothing_is_left_for_later(file: Path) -> None:
    found = UNFINISHED.search(file.read_text(encoding="utf-8"))
    assert found is None, f"{name(file)} holds {found.group()!r}"


@pytest.mark.parametrize("file", [f for f in SOURCES if f.parts[-2] == "csrc"], ids=name)
def test_shared_words_are_atomics(file: Path) -> None:
    """`volatile` orders nothing between processes; beside `asm` it is another word."""
    code = COMMENT.sub("", file.read_text(encoding="utf-8"))
    assert not re.search(r"(?<!asm )\bvolatile\b", code)
