"""Curves and bars, drawn by matplotlib as SVG that goes into the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from hierring.benchmarks.figures import Case
from hierring.benchmarks.report.canvas import COLOURS, LINE, SOFT, draw
from hierring.benchmarks.report.document import case_label, duration, groups, nbytes_text
from hierring.benchmarks.report.insight import PHASES, mean_phases, phase_cases
from hierring.benchmarks.report.style import SERIES
from hierring.benchmarks.result import Result
from hierring.errors import HierringError

__all__ = ["curves", "phase_bars", "require_matplotlib"]

_MARKERS = "osD^vPX*"
_SIZE = (5.0, 4.0)
#: As many ranks as bars can be told apart.
_BARS = 32
#: A page of a hundred plots helps nobody.
_MOST_GROUPS = 16


def require_matplotlib(option: str = "--html") -> None:
    """Say in one line that it is missing, and which option asks for it."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise HierringError(
            f"a page is drawn with matplotlib, which can't be imported ({error}): pip install "
            f"'hierring[report]', or leave {option} out"
        ) from error


def curves(result: Result) -> list[tuple[str, str]]:
    """(caption, SVG): bandwidth and time by size, for each collective, type, operation and side."""
    found = []
    for key in groups(result)[:_MOST_GROUPS]:
        cases = [c for c in result.cases if (c.collective, c.dtype, c.op, c.in_place) == key]
        if len({case.nbytes for case in cases}) < 2:
            continue
        label = case_label(*key)
        salt = "-".join(map(str, key))
        found.append(
            (f"Bandwidth, {label}: algbw of the median call; more is better",
             _draw(partial(_bandwidth, cases=cases), f"bandwidth-{salt}"))
        )  # fmt: skip
        found.append(
            (f"Latency, {label}: median call, shaded from minimum to p99; less is better",
             _draw(partial(_latency, cases=cases), f"latency-{salt}"))
        )  # fmt: skip
    return found


def _by_name(cases: Sequence[Case]) -> dict[str, list[Case]]:
    names = dict.fromkeys(case.name for case in cases)
    return {
        name: sorted((c for c in cases if c.name == name), key=lambda case: case.nbytes)
        for name in names
    }


def _bandwidth(axes: Any, cases: Sequence[Case]) -> None:
    _bounds(axes, cases, lambda case, seconds: case.nbytes / seconds / 1e9)
    for index, (name, own) in enumerate(_by_name(cases).items()):
        axes.plot([c.nbytes for c in own], [c.algbw for c in own], **_look(index, name))
    axes.set_ylabel("algbw, GB/s")
    _scales(axes, cases, lambda value: f"{value:g}")


def _latency(axes: Any, cases: Sequence[Case]) -> None:
    _bounds(axes, cases, lambda case, seconds: seconds)
    for index, (name, own) in enumerate(_by_name(cases).items()):
        sizes = [case.nbytes for case in own]
        axes.fill_between(
            sizes, [c.times.min for c in own], [c.times.p99 for c in own],
            color=COLOURS[index % SERIES], alpha=0.13, linewidth=0,
        )  # fmt: skip
        axes.plot(sizes, [c.times.median for c in own], **_look(index, name))
    axes.set_ylabel("time of a call")
    _scales(axes, cases, duration)


def _look(index: int, name: str) -> dict[str, Any]:
    return {
        "color": COLOURS[index % SERIES],
        "marker": _MARKERS[index % len(_MARKERS)],
        "markersize": 4.5,
        "linewidth": 1.8,
        "label": name,
    }


def _bounds(axes: Any, cases: Sequence[Case], figure: Callable[[Case, float], float]) -> None:
    """Dashed: the wire; dotted: memory. They are the same for all contenders of a size."""
    by_size = {case.nbytes: case for case in sorted(cases, key=lambda case: case.nbytes)}
    memory = [(n, figure(c, c.bounds.memory)) for n, c in by_size.items() if c.bounds.memory > 0]
    wire = [(n, figure(c, c.bounds.wire)) for n, c in by_size.items() if c.bounds.wire]
    for points, style, name in ((wire, "--", "wire bound"), (memory, ":", "memory bound")):
        if points:
            sizes, values = zip(*points, strict=True)
            axes.plot(sizes, values, color=SOFT, linestyle=style, linewidth=1.6, label=name)


def _scales(axes: Any, cases: Sequence[Case], value_text: Callable[[float], str]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    sizes = sorted({case.nbytes for case in cases})
    step = -(-len(sizes) // 6)
    axes.set_xticks(sizes[::step], [nbytes_text(size) for size in sizes[::step]])
    axes.xaxis.set_minor_locator(NullLocator())
    low, high = axes.get_ylim()
    subs = (1.0, 2.0, 5.0) if high / low < 100 else (1.0,)
    axes.yaxis.set_major_locator(LogLocator(10, subs=subs, numticks=12))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: value_text(value)))
    axes.set_xlabel("size")


def phase_bars(result: Result) -> list[tuple[str, str]]:
    """(caption, SVG): shares of phases by size, and their time by rank at the largest size."""
    cases = phase_cases(result)
    if not cases:
        return []
    means = [mean_phases(case) for case in cases]
    shares = {
        name: [100 * mean[name] / mean["total"] if mean["total"] else 0.0 for mean in means]
        for name in PHASES
    }
    last = cases[-1]
    ranks = [rank for rank in last.ranks if rank.phases is not None]
    worst = sorted(ranks, key=lambda r: r.phases.total if r.phases else 0.0)[-_BARS:]
    listed = sorted(worst, key=lambda rank: rank.rank)
    times = {name: [getattr(rank.phases, name) * 1e3 for rank in listed] for name in PHASES}
    labels = [nbytes_text(case.nbytes) for case in cases]
    names = [f"rank {rank.rank}" for rank in listed]
    rest = "" if len(listed) == len(ranks) else f", the {len(listed)} with the longest calls"
    return [
        (f"Shares of a call by size, mean over ranks ({last.name})",
         _draw(lambda axes: _stack(axes, labels, shares, "% of the time in a call"), "shares")),
        (f"By rank at {nbytes_text(last.nbytes)}{rest}",
         _draw(lambda axes: _stack(axes, names, times, "ms per call"), "ranks",
               max(_SIZE[1], 1.7 + 0.24 * len(names)))),
    ]  # fmt: skip


#: Work is solid, waiting is hatched, so that they differ without colour as well.
_WAITS = ("wait_arrival", "wait_verdict", "wait_peer")


def _stack(axes: Any, labels: Sequence[str], parts: dict[str, list[float]], unit: str) -> None:
    left = [0.0] * len(labels)
    for index, (name, values) in enumerate(parts.items()):
        axes.barh(
            range(len(labels)), values, left=left, height=0.7, color=COLOURS[index % SERIES],
            alpha=0.55 if name in _WAITS else 1.0, hatch="////" if name in _WAITS else None,
            edgecolor=LINE, linewidth=0.4, label=name.replace("_", " "),
        )  # fmt: skip
        left = [a + b for a, b in zip(left, values, strict=True)]
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.set_xlabel(unit)
    axes.grid(visible=False, axis="y")


def _draw(fill: Callable[[Any], None], salt: str, height: float = _SIZE[1]) -> str:
    def whole(figure: Any) -> None:
        fill(figure.add_subplot())
        figure.legend(loc="outside lower center", ncols=3, fontsize=9)

    return draw(whole, salt, (_SIZE[0], height))
