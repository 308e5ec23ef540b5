"""The command `hierring report`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from hierring.errors import HierringError

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add files and outputs."""
    parser.add_argument("files", nargs="+", metavar="FILE.json", help="from hierring bench --json")
    parser.add_argument(
        "--html", metavar="FILE", help="write one self-contained page (needs hierring[report])"
    )
    parser.add_argument(
        "--markdown",
        metavar="FILE",
        help="write Markdown; - is stdout, which it goes to if neither option is given",
    )


def run(arguments: argparse.Namespace) -> int:
    """Read the files and write the report; needs no MPI."""
    from hierring.benchmarks.report.compare import comparison
    from hierring.benchmarks.report.document import Section, title
    from hierring.benchmarks.report.markdown import markdown
    from hierring.benchmarks.report.page import Part, heading_of, page
    from hierring.benchmarks.report.plots import require_matplotlib
    from hierring.benchmarks.report.tables import sections
    from hierring.benchmarks.result import load

    if arguments.html:
        require_matplotlib()
    results = [load(file) for file in arguments.files]
    names = _names(arguments.files)
    parts: list[Part] = [
        (
            f"Comparison of {names[0]} and {name}",
            None,
            [comparison(results[0], other, (names[0], name))],
        )
        for name, other in zip(names[1:], results[1:], strict=True)
    ]
    for name, result in zip(names, results, strict=True):
        label = title(result) if len(results) == 1 else f"{name}: {title(result)}"
        parts.append((label, result, sections(result)))
    heading = heading_of(results)
    if arguments.html:
        _write(arguments.html, page(heading, parts))
    if arguments.markdown or not arguments.html:
        flat = [
            section if len(parts) == 1 or result is None
            else Section(section.key, f"{section.heading} ({label})", section.blocks)
            for label, result, its in parts
            for section in its
        ]  # fmt: skip
        text = markdown(heading, flat)
        if arguments.markdown in (None, "-"):
            sys.stdout.write(text)
        else:
            _write(arguments.markdown, text)
    return 0


def _names(files: Sequence[str]) -> list[str]:
    """File names without directories, unless they are alike then."""
    short = [Path(file).stem for file in files]
    return short if len(set(short)) == len(short) else list(files)


def _write(path: str, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise HierringError(f"the report can't be written: {error}") from error
