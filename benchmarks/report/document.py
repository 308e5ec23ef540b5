"""What a report consists of, whether it becomes Markdown or a page.

All text is plain: whoever writes it out escapes it, as hostnames and commands come from a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hierring.benchmarks.metrics import busbw_factor
from hierring.benchmarks.result import Result

__all__ = [
    "Alert", "Block", "Paragraph", "Picture", "Section", "Table", "case_label", "counted",
    "duration", "nbytes_text", "rate", "ratio_text", "title",
]  # fmt: skip


@dataclass(frozen=True)
class Paragraph:
    """A sentence or a few."""

    text: str


@dataclass(frozen=True)
class Alert:
    """A sentence that a reader must not miss: "bad" for errors, "warn" for doubts."""

    level: str
    text: str


@dataclass(frozen=True)
class Table:
    """Cells of text.

    Attributes:
        caption: what the rows are.
        left: how many of the first columns are words; the others are numbers, set right.
        heat: for each row and column how strongly a cell is marked, 0 to 1; None for unmarked.
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int = 1
    heat: tuple[tuple[float | None, ...], ...] | None = None


@dataclass(frozen=True)
class Picture:
    """An SVG element that was drawn here; Markdown goes without it."""

    caption: str
    svg: str


Block = Paragraph | Alert | Table | Picture


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it; pictures are added by the page, by the section's key."""

    key: str
    heading: str
    blocks: tuple[Block, ...]


def title(result: Result) -> str:
    """Which run this is, in a line."""
    ranks, nodes = result.topology["size"], result.topology["num_nodes"]
    return (
        f"{counted(ranks, 'rank')} on {counted(nodes, 'node')}, {result.environment.hostname}, "
        f"{result.environment.date[:16].replace('T', ' ')} UTC"
    )


def counted(number: int, word: str) -> str:
    """Say "1 rank" or "4 ranks"."""
    return f"{number} {word}{'' if number == 1 else 's'}"


def nbytes_text(nbytes: float) -> str:
    """Bytes in the largest binary unit that they fill: "64 KiB", "1.5 MiB", "1000 B"."""
    value = float(nbytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{value:.4g} {unit}"


def duration(seconds: float | None) -> str:
    """A time with three digits and its unit."""
    if seconds is None:
        return "–"
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if abs(seconds) * factor >= 1:
            return f"{seconds * factor:.3g} {unit}" if seconds < 1000 else f"{seconds:.0f} s"
    return f"{seconds * 1e6:.3g} µs" if seconds else "0"


def rate(value: float | None) -> str:
    """GB/s with the digits of the table that `hierring bench` prints."""
    if value is None:
        return "–"
    return f"{value:.3f}" if value >= 0.1 else f"{value:.2g}"


def ratio_text(value: float) -> str:
    """A ratio of times."""
    return f"{value:.2f}×"


def case_label(collective: str, dtype: str, op: str, in_place: bool) -> str:
    """Name what contenders are compared in."""
    what = " ".join(word for word in (collective, dtype, op) if word != "none")
    return f"{what}, {'in place' if in_place else 'out of place'}"


def factor_text(collective: str, members: int) -> str:
    """The factor of busbw with this run's numbers: "2(N-1)/N = 1.5 for N = 4"."""
    formula = {"allreduce": "2(N-1)/N", "broadcast": "1"}.get(collective, "(N-1)/N")
    return f"{formula} = {busbw_factor(collective, members):.4g} for N = {members}"


def groups(result: Result) -> Sequence[tuple[str, str, str, bool]]:
    """(collective, dtype, op, in_place) in the order they were measured, out of place first."""
    found = {(c.collective, c.dtype, c.op, c.in_place) for c in result.cases}
    order = list(dict.fromkeys((c.collective, c.dtype, c.op) for c in result.cases))
    return [(*key, side) for key in order for side in (False, True) if (*key, side) in found]
