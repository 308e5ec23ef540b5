"""A report as Markdown, for the log of a job or a comment in a review."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from hierring.benchmarks.report.document import (
    Alert,
    Block,
    Paragraph,
    Section,
    Table,
)

__all__ = ["escape", "markdown"]

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~])")


def markdown(title: str, sections: Sequence[Section]) -> str:
    """The whole text."""
    lines = [f"# {escape(title)}", ""]
    for section in sections:
        lines += [f"## {escape(section.heading)}", ""]
        for block in section.blocks:
            lines += [*_lines(block), ""]
    return "\n".join(lines)


def escape(text: str) -> str:
    """Words that stay words: no markup, no HTML, no end of a cell or a line."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split())).replace("&", "&amp;")


def _lines(block: Block) -> Iterator[str]:
    if isinstance(block, Paragraph):
        yield escape(block.text)
    elif isinstance(block, Alert):
        yield f"> **{ {'bad': 'Error', 'warn': 'Note'}[block.level] }:** {escape(block.text)}"
    elif isinstance(block, Table):
        yield from _table(block)


def _table(table: Table) -> Iterator[str]:
    if table.caption:
        yield f"**{escape(table.caption)}**"
        yield ""
    cells = [[escape(cell) for cell in row] for row in (table.columns, *table.rows)]
    widths = [max(3, *map(len, column)) for column in zip(*cells, strict=True)]
    rules = ["-" * w if i < table.left else "-" * (w - 1) + ":" for i, w in enumerate(widths)]
    for index, row in enumerate(cells):
        texts = [
            cell.ljust(width) if i < table.left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield f"| {' | '.join(texts)} |"
        if index == 0:
            yield f"| {' | '.join(rules)} |"
