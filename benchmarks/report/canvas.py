"""Draws with matplotlib, as SVG that goes into a page.

matplotlib writes colours as numbers. Those used here stand for variables of the page and are
replaced by them, so that the same picture follows the reader's light or dark. Text stays text.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

from hierring.benchmarks.report.style import SERIES

__all__ = ["COLOURS", "INK", "LINE", "SOFT", "draw"]

#: Of the series, in the order of the page's variables.
COLOURS = tuple(f"#0a0b0{index}" for index in range(SERIES))
INK, SOFT, LINE = "#0a0c01", "#0a0c02", "#0a0c03"
_VARIABLES = {
    **{colour: f"var(--c{index})" for index, colour in enumerate(COLOURS)},
    INK: "var(--ink)", SOFT: "var(--soft)", LINE: "var(--line)",
}  # fmt: skip


def draw(fill: Callable[[Any], None], salt: str, size: tuple[float, float]) -> str:
    """An SVG element.

    Args:
        fill: draws into an empty matplotlib figure.
        salt: makes the ids inside differ from those of the page's other pictures.
        size: width and height in inches.
    """
    import matplotlib
    from matplotlib.figure import Figure

    looks: Any = {
        "svg.fonttype": "none", "svg.hashsalt": salt, "text.parse_math": False,
        "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"], "font.size": 10.5,
        "text.color": INK, "axes.labelcolor": INK, "xtick.color": SOFT, "ytick.color": SOFT,
        "xtick.labelcolor": INK, "ytick.labelcolor": INK, "axes.edgecolor": SOFT,
        "axes.grid": True, "grid.color": LINE, "grid.linewidth": 0.7, "axes.axisbelow": True,
        "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False,
        "hatch.linewidth": 0.6,
    }  # fmt: skip
    with matplotlib.rc_context(looks):
        figure = Figure(figsize=size, layout="constrained")
        fill(figure)
        written = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(written, format="svg", transparent=True, metadata=nothing)
    return _inline(written.getvalue())


def _inline(svg: str) -> str:
    """The element alone, with variables for colours and without anything that reaches outside."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = svg.replace("'DejaVu Sans'", "system-ui, 'DejaVu Sans'")
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, variable)
    return svg.strip()
