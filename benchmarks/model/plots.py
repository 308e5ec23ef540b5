"""Predicted times by number of nodes, one panel for each size and ranks on a node."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hierring.benchmarks.model.forecast import NODES_AHEAD, Check, beyond
from hierring.benchmarks.model.parameters import Model
from hierring.benchmarks.model.predict import ALGORITHMS, predict
from hierring.benchmarks.model.sections import long_duration
from hierring.benchmarks.model.shape import Shape
from hierring.benchmarks.report.canvas import COLOURS, INK, LINE, SOFT, draw
from hierring.benchmarks.report.document import Picture, Section, counted, nbytes_text
from hierring.benchmarks.report.page import page
from hierring.benchmarks.report.style import VARIABLES
from hierring.errors import HierringError

__all__ = ["picture", "write_plot"]

_PANEL = (4.4, 3.4)
#: Points of a curve: enough to show the steps at powers of two, few enough to draw at once.
_POINTS = 160
#: More panels than this help nobody.
_MOST = 24


_At = tuple[int, float]


def write_plot(
    path: Path, model: Model, shapes: Sequence[Shape], sizes: Sequence[int],
    checks: Sequence[Check], parts: Sequence[Section],
) -> None:  # fmt: skip
    """Write an SVG file, or a page with the picture and all that was said."""
    svg = picture(model, shapes, sizes, checks)
    if path.suffix == ".html":
        drawn = Section("picture", "By number of nodes", (Picture(_caption(model, checks), svg),))
        heading = "What an all-reduce would take"
        made_by = "Made by hierring model from what hierring bench measured."
        text = page(heading, [(heading, None, [drawn, *parts])], made_by)
    else:
        style = f"<style>{VARIABLES}</style>"
        at = svg.index(">") + 1
        text = f'<?xml version="1.0" encoding="utf-8"?>\n{svg[:at]}{style}{svg[at:]}\n'
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise HierringError(f"the plot can't be written: {error}") from error


def _caption(model: Model, checks: Sequence[Check]) -> str:
    text = (
        "Lines are predictions, dashed where they are extrapolated; the calibration repeats its "
        f"own cases with an error of {100 * model.fit.typical:.0f} % (median) and "
        f"{100 * model.fit.worst:.0f} % (worst)."
    )
    if checks:
        text += (
            f" Marks with a bar are measured, with the spread of their runs: {error_text(checks)}."
        )
    return text


def error_text(checks: Sequence[Check]) -> str:
    """The worst case within reach, in words."""
    near = [one for one in checks if not one.beyond] or list(checks)
    worst = max(max(one.ratio, 1 / one.ratio) - 1 for one in near)
    return f"{counted(len(near), 'case')}, predicted within {100 * worst:.0f} %"


def picture(
    model: Model, shapes: Sequence[Shape], sizes: Sequence[int], checks: Sequence[Check]
) -> str:
    """An SVG element with variables for colours."""
    by_ranks = {shape.ranks: shape for shape in shapes}
    panels = [(shape, size) for shape in by_ranks.values() for size in sizes][:_MOST]
    if not panels:
        raise HierringError("nothing to plot: give --nodes")
    counts = [shape.nodes for shape in shapes]
    columns = min(len(sizes), 3)
    lines = math.ceil(len(panels) / columns)

    def fill(figure: Any) -> None:
        grid = figure.subplots(lines, columns, squeeze=False)
        for axes, (shape, size) in zip(grid.flat, panels, strict=False):
            _panel(axes, model, shape, size, _grid(min(counts), max(counts)), checks)
        for axes in grid.flat[len(panels) :]:
            axes.set_axis_off()
        handles, names = grid.flat[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=len(names), fontsize=9)
        if checks:
            figure.suptitle(error_text(checks), fontsize=10.5, color=SOFT)

    return draw(fill, "model", (columns * _PANEL[0], lines * _PANEL[1] + 0.6))


def _grid(low: int, high: int) -> list[int]:
    """Numbers of nodes for a curve, evenly spread on a logarithmic scale."""
    if low == high:
        low, high = max(1, low // 2), 2 * high
    span = math.log(high / low)
    found = {round(low * math.exp(span * i / (_POINTS - 1))) for i in range(_POINTS)}
    return sorted(found | {low, high})


def _panel(
    axes: Any, model: Model, shape: Shape, size: int, counts: Sequence[int],
    checks: Sequence[Check],
) -> None:  # fmt: skip
    from matplotlib.ticker import FuncFormatter, NullLocator

    there = [Shape(nodes, shape.ranks, shape.cores, shape.one_machine) for nodes in counts]
    away = [bool(beyond(model.reach, one, size)) for one in there]
    curves = {
        name: [predict(name, size, one, model.parameters, model.engine).seconds for one in there]
        for name in ALGORITHMS
    }
    for index, (name, values) in enumerate(curves.items()):
        points = list(zip(counts, values, strict=True))
        near = [point for point, far in zip(points, away, strict=True) if not far]
        _line(axes, near, "-", index, name)
        for part in _sides(near, [point for point in points if point not in near]):
            _line(axes, part, (0, (4, 2)), index, None if near else name)
        _marks(axes, checks, name, shape, size, index)
    # Who is a hundred times slower than the best need not be seen to the end.
    best = [min(values) for values in zip(*curves.values(), strict=True)]
    axes.set_ylim(best[0] / 3, 100 * max(best))
    axes.axvline(NODES_AHEAD * model.reach.nodes[1], color=LINE, linewidth=1.2)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: long_duration(value)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_title(f"{nbytes_text(size)}, {counted(shape.ranks, 'rank')} a node", fontsize=10.5)
    axes.set_xlabel("nodes")


def _sides(near: Sequence[_At], far: Sequence[_At]) -> list[list[_At]]:
    """What is extrapolated, to the left and to the right of what is not, which it goes on from."""
    if not near:
        return [list(far)]
    left = [one for one in far if one < near[0]]
    right = [one for one in far if one > near[-1]]
    return [[*left, near[0]] if left else [], [near[-1], *right] if right else []]


def _line(
    axes: Any, points: Sequence[tuple[int, float]], style: Any, index: int, label: str | None
) -> None:
    if points:
        axes.plot(
            [nodes for nodes, _ in points], [value for _, value in points], linestyle=style,
            color=COLOURS[index], linewidth=1.8, label=label,
        )  # fmt: skip


def _marks(
    axes: Any, checks: Sequence[Check], algorithm: str, shape: Shape, size: int, index: int
) -> None:
    own = [
        one for one in checks
        if (one.algorithm, one.ranks, one.nbytes) == (algorithm, shape.ranks, size)
    ]  # fmt: skip
    if own:
        below = [one.measured - min(one.low, one.measured) for one in own]
        above = [max(one.high, one.measured) - one.measured for one in own]
        axes.errorbar(
            [one.nodes for one in own], [one.measured for one in own], yerr=[below, above],
            fmt="o", markersize=5, markeredgecolor=INK, color=COLOURS[index], capsize=3,
        )  # fmt: skip
