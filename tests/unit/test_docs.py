"""What the documents say that can be checked: links, settings, errors, names, an example."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hierring
from hierring.config import Config

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
SOURCES = "\n".join(
    file.read_text(encoding="utf-8")
    for directory in ("hierring", "topology", "launch", "benchmarks", "csrc")
    for file in (ROOT / directory).rglob("*")
    if file.suffix in {".py", ".pyi", ".cpp", ".hpp"}
)


def anchors(text: str) -> set[str]:
    """The names that headings get on the usual hosts."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda file: file.name)
def test_links_lead_somewhere(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)]+)\)", text):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = (file.parent / path).resolve() if path else file
        assert target.exists(), f"{link}: no such file"
        if anchor:
            assert anchor in anchors(target.read_text(encoding="utf-8")), f"{link}: no such heading"


def test_settings_are_those_of_config() -> None:
    text = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(HIERRING_\w+)` \| (\S+) \| (yes)? *\| (.*) \|$", text, re.MULTILINE)
    expected = [
        (
            f"HIERRING_{field.name.upper()}",
            "unset" if field.default is None else f"`{field.default}`",
            "yes" if field.metadata["protocol"] else "",
            field.metadata["doc"],
        )
        for field in dataclasses.fields(Config)
    ]
    assert rows == expected


def test_every_error_is_explained() -> None:
    text = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    errors = {name for name in hierring.__all__ if name.endswith("Error")}
    assert errors
    for name in errors - {"HierringError"}:
        assert f"| `{name}` |" in text
        assert f"**`{name}`.**" in text


def test_architecture_names_what_is_there() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    names = set(re.findall(r"`([A-Za-z_][\w.]*)(?:\(\))?`", text))
    assert {"Engine.run", "Rails.begin", "Contact.agree"} <= names
    for name in names:
        last = name.rsplit(".", 1)[-1]
        assert re.search(rf"\b{last}\b", SOURCES), f"{name} is nowhere in the sources"


def test_the_first_example_runs(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(code.splitlines()) <= 12
    done = subprocess.run(
        [sys.executable, "-P", "-W", "error", "-c", code],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "hierring: 1 rank on 1 node" in done.stdout
    assert "Statistics(operations=4" in done.stdout
