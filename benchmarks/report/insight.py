"""The sections that say why a figure is what it is: phases, stragglers, counters."""

from __future__ import annotations

from dataclasses import fields

from hierring.benchmarks.figures import Case, Phases
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
from hierring.benchmarks.result import Result

__all__ = [
    "PHASES", "counters_section", "lost_by_rank", "mean_phases", "phase_cases", "phases_section",
    "stragglers_section",
]  # fmt: skip

PHASES = tuple(field.name for field in fields(Phases) if field.name != "total")
#: Ranks that a table lists one by one; beyond, the most awaited ones.
_LISTED = 64


def phase_cases(result: Result) -> list[Case]:
    """The cases of the first contender whose phases are shown: out of place where there is that."""
    own = [c for c in result.cases if c.library == "hierring" and c.ratio is None and c.ranks]
    own = [case for case in own if case.ranks[0].phases is not None]
    if not own:
        return []
    first = own[0]
    same = [
        case
        for case in own
        if (case.collective, case.dtype, case.op, case.in_place)
        == (first.collective, first.dtype, first.op, first.in_place)
    ]
    return sorted(same, key=lambda case: case.nbytes)


def mean_phases(case: Case) -> dict[str, float]:
    """Seconds of each phase in a call, the mean over ranks; and "total"."""
    known = [rank.phases for rank in case.ranks if rank.phases is not None]
    return {
        name: sum(getattr(phases, name) for phases in known) / len(known)
        for name in (*PHASES, "total")
    }


def phases_section(result: Result) -> Section:
    """Where time went: by size, and by rank at the largest size."""
    cases = phase_cases(result)
    if not cases:
        return Section("phases", "Where the time goes", (Paragraph("No phases in this file."),))
    first, last = cases[0], cases[-1]
    label = case_label(first.collective, first.dtype, first.op, first.in_place)
    by_size = tuple(
        (nbytes_text(case.nbytes), case.chosen, *(duration(mean[name]) for name in PHASES),
         duration(mean["total"]))
        for case in cases
        for mean in [mean_phases(case)]
    )  # fmt: skip
    ranks = sorted(last.ranks, key=lambda rank: rank.phases.total if rank.phases else 0)
    listed = sorted(ranks[-_LISTED:], key=lambda rank: rank.rank)
    by_rank = tuple(
        (f"{rank.rank}", f"{rank.node}", *(duration(getattr(rank.phases, n)) for n in PHASES),
         duration(rank.phases.total))
        for rank in listed
        if rank.phases is not None
    )  # fmt: skip
    names = tuple(name.replace("_", " ") for name in PHASES)
    blocks = (
        Paragraph(
            "Each instant of a call belongs to one phase, so phases add up to the total. "
            "stage: packing what others read. reduce scatter: adding up inside the node. inter "
            "node: MPI, doing or waiting for the network. allgather: copying the result out. wait "
            "arrival: until all ranks of the node make the call. wait verdict: the opening round "
            "between nodes. wait peer: for ranks of the node in the midst of the call. other: "
            "Python and the rest."
        ),
        Table(f"Per call, mean over ranks ({first.name}, {label})",
              ("size", "chosen", *names, "total"), by_size, left=2),
        Table(f"Per call and rank at {nbytes_text(last.nbytes)}",
              ("rank", "node", *names, "total"), by_rank, left=2),
    )  # fmt: skip
    return Section("phases", "Where the time goes", blocks)


def lost_by_rank(result: Result, evidence: str) -> dict[int, float]:
    """Seconds per call of "lateness" or "awaited", over all calls of hierring; who has it."""
    cases = [case for case in result.cases if case.library == "hierring"]
    calls = sum(case.iterations for case in cases)
    lost: dict[int, float] = {}
    unknown = set()
    for case in cases:
        for rank in case.ranks:
            value = getattr(rank, evidence)
            if value is None:
                unknown.add(rank.rank)
            else:
                lost[rank.rank] = lost.get(rank.rank, 0.0) + value * case.iterations / calls
    return {rank: value for rank, value in lost.items() if rank not in unknown}


def stragglers_section(result: Result) -> Section:
    """Who kept the others waiting, in words and as a map."""
    blocks: list[Block] = []
    for one in result.stragglers:
        if one.stands_out:
            blocks.append(Alert("bad", f"Slow {one.kind}: {one.text}."))
        else:
            blocks.append(Paragraph(f"Slowest {one.kind}, within the usual: {one.text}."))
    if not result.stragglers:
        blocks.append(Paragraph("Nobody kept others waiting, or there is nobody to wait for."))
    lateness, awaited = lost_by_rank(result, "lateness"), lost_by_rank(result, "awaited")
    worst: dict[int, float] = {}
    places: dict[int, int] = {}
    for case in result.cases:
        for figures in case.ranks if case.library == "hierring" else ():
            places[figures.rank] = figures.node
            worst[figures.rank] = max(worst.get(figures.rank, 0.0), figures.lateness_max)
    if len(places) > 1:
        order = sorted(places, key=lambda r: -max(lateness.get(r, 0.0), awaited.get(r, 0.0)))
        listed = sorted(order[:_LISTED])
        top = max([*lateness.values(), *awaited.values(), 1e-12])
        blocks.append(
            Table(
                "Straggler map: seconds per call that a rank costs others, over all calls of "
                "hierring; the more, the stronger the colour"
                + ("" if len(listed) == len(places) else f"; the {len(listed)} worst"),
                ("rank", "node", "comes late by", "worst call", "awaited by its node"),
                tuple(
                    (str(r), str(places[r]), duration(lateness.get(r)), duration(worst[r]),
                     duration(awaited.get(r)))
                    for r in listed
                ),
                left=2,
                heat=tuple(
                    (None, None, lateness.get(r, 0.0) / top, None, awaited.get(r, 0.0) / top)
                    for r in listed
                ),
            )
        )  # fmt: skip
    return Section("stragglers", "Who keeps others waiting", tuple(blocks))


def counters_section(result: Result) -> Section:
    """Bytes that were counted against those that must be."""
    rows, heat = [], []
    for case in result.cases:
        moved = case.bytes
        if moved is None:
            continue
        pairs = (
            (moved.between_nodes, moved.between_nodes_theory), (moved.mpi, moved.mpi_theory),
            (moved.shared_memory, moved.shared_memory_theory),
        )  # fmt: skip
        off = any(theory is not None and value != theory for value, theory in pairs)
        cells = [text for pair in pairs for text in _against(*pair)]
        rows.append(
            (nbytes_text(case.nbytes), case.name,
             case_label(case.collective, case.dtype, case.op, case.in_place), moved.formula,
             *cells, nbytes_text(moved.headers), "NO" if off else "yes")
        )  # fmt: skip
        heat.append((*[None] * 11, 1.0 if off else None))
    columns = (
        "size", "who", "case", "theory", "between nodes", "theory", "MPI in all", "theory",
        "shared memory", "theory", "headers", "equal",
    )  # fmt: skip
    text = "Bytes that all ranks together sent or wrote in one call; theory where one is stated."
    unequal = sum(row[-1] == "NO" for row in rows)
    blocks: list[Block] = [Paragraph(text)]
    if unequal:
        blocks.append(Alert("bad", f"{unequal} of {len(rows)} cases differ from theory."))
    elif rows:
        blocks.append(Paragraph(f"All {len(rows)} cases equal theory."))
    if rows:
        blocks.append(Table("Counters", columns, tuple(rows), left=4, heat=tuple(heat)))
    return Section("counters", "Counters against theory", tuple(blocks))


def _against(value: float, theory: float | None) -> tuple[str, str]:
    return f"{value:,.0f}", "–" if theory is None else f"{theory:,.0f}"
