"""Two runs side by side: before and after, cluster A and B."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from hierring.benchmarks.figures import Case
from hierring.benchmarks.report.document import (
    Alert,
    Block,
    Paragraph,
    Section,
    Table,
    case_label,
    duration,
    nbytes_text,
)
from hierring.benchmarks.report.places import nodes_of
from hierring.benchmarks.result import Result

__all__ = ["Pair", "comparison", "differences", "pairs", "verdict"]

Pair = tuple[Case, Case]


def pairs(first: Result, second: Result) -> tuple[list[Pair], int]:
    """Cases that both runs measured, and how many only one of them did."""
    theirs = {_key(case): case for case in second.cases}
    both = [(case, theirs[_key(case)]) for case in first.cases if _key(case) in theirs]
    return both, len(first.cases) + len(second.cases) - 2 * len(both)


def _key(case: Case) -> tuple[object, ...]:
    return (case.name, case.collective, case.dtype, case.op, case.nbytes, case.in_place)


def verdict(a: Case, b: Case) -> str:
    """What may be said of b: nothing, while either median lies within the other's spread."""
    apart = not _within(a, b) and not _within(b, a)
    if not apart:
        return "within spread"
    return "faster" if b.times.median < a.times.median else "slower"


def _within(one: Case, other: Case) -> bool:
    return other.times.min <= one.times.median <= other.times.p99


def comparison(first: Result, second: Result, names: tuple[str, str]) -> Section:
    """Ratios by case, and what else is not the same."""
    both, lone = pairs(first, second)
    rows, heat = [], []
    for a, b in sorted(both, key=lambda pair: (pair[0].name, pair[0].in_place, pair[0].nbytes)):
        found = verdict(a, b)
        rows.append(
            (nbytes_text(a.nbytes), a.name, case_label(a.collective, a.dtype, a.op, a.in_place),
             found, _spread(a), _spread(b), f"{b.times.median / a.times.median:.2f}",
             f"{b.times.min / a.times.min:.2f}", f"{a.bounds.percent:.1f}",
             f"{b.bounds.percent:.1f}")
        )  # fmt: skip
        heat.append((None, None, None, 0.6 if found == "slower" else None, *[None] * 6))
    blocks: list[Block] = [
        Paragraph(
            f"A is {names[0]}, B is {names[1]}. Ratios are time of B over time of A: below 1, B is "
            "faster. The runs took no turns, so the load of the machine is in the ratio; “within "
            "spread” says that one median lies between minimum and p99 of the other."
        )
    ]
    if lone:
        blocks.append(Paragraph(f"{lone} cases are in one run only and not compared."))
    changed = differences(first, second)
    if changed:
        text = "Settings, software or topology differ: ratios compare these, too."
        blocks.append(Alert("warn", text))
        blocks.append(Table("What differs", ("what", "A", "B"), tuple(changed), left=3))
    else:
        blocks.append(Paragraph("Settings, software and topology are the same."))
    if both:
        blocks.append(_overall(both))
        columns = (
            "size", "who", "case", "verdict", "A: median (min to p99)", "B: median (min to p99)",
            "B/A", "B/A of minima", "A % of bound", "B % of bound",
        )  # fmt: skip
        blocks.append(Table("By case", columns, tuple(rows), left=4, heat=tuple(heat)))
    return Section("comparison", f"A ({names[0]}) against B ({names[1]})", tuple(blocks))


def _spread(case: Case) -> str:
    times = case.times
    return f"{duration(times.median)} ({duration(times.min)} to {duration(times.p99)})"


def _overall(both: Sequence[Pair]) -> Table:
    rows = []
    for name in dict.fromkeys(a.name for a, _ in both):
        found = [(a, b) for a, b in both if a.name == name]
        ratios = sorted(b.times.median / a.times.median for a, b in found)
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        words = [verdict(a, b) for a, b in found]
        rows.append(
            (name, str(len(ratios)), f"{mean:.2f}", f"{ratios[0]:.2f}", f"{ratios[-1]:.2f}",
             *(str(words.count(word)) for word in ("faster", "slower", "within spread")))
        )  # fmt: skip
    columns = (
        "who", "cases", "B/A, geometric mean", "least", "most", "faster", "slower", "within spread",
    )  # fmt: skip
    return Table("By contender", columns, tuple(rows))


def differences(first: Result, second: Result) -> list[tuple[str, str, str]]:
    """What is set, installed or wired in another way; not the date."""
    a, b = _facts(first), _facts(second)
    names = dict.fromkeys([*a, *b])
    return [(n, a.get(n, "–"), b.get(n, "–")) for n in names if a.get(n) != b.get(n)]


def _facts(result: Result) -> dict[str, str]:
    environment = {
        name: value
        for name, value in asdict(result.environment).items()
        if name not in ("date", "seconds", "load")
    }
    topology: dict[str, Any] = {
        name: result.topology.get(name)
        for name in ("size", "num_nodes", "placement", "shared_memory", "simulated",
                     "oversubscribed", "leader_order")
    }  # fmt: skip
    nodes = nodes_of(result)
    topology["ranks of each node"] = [len(node.ranks) for node in nodes]
    topology["hosts"] = _few([node.hostname for node in nodes])
    topology["cores"] = _few([node.cores for node in nodes])
    topology["NUMA nodes"] = _few([len(node.numa) for node in nodes])
    topology["network"] = _few([node.nics for node in nodes])
    topology["binding"] = _few([rank.cpus for node in nodes for rank in node.ranks])
    timed = {name: getattr(result.settings, name) for name in ("iterations", "warmup", "check")}
    found = {**environment, **topology, **timed, **result.settings.config, "tuning": result.tuning}
    return {name.replace("_", " "): str(value) for name, value in found.items()}


def _few(values: Sequence[object]) -> str:
    """The values without repeats, cut short."""
    texts = list(dict.fromkeys(map(str, values)))
    return ", ".join(texts[:8]) + (" …" if len(texts) > 8 else "")
