"""The table that people read and the one that programs read, of the same figures."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

from hierring.benchmarks.figures import Case
from hierring.benchmarks.result import Result

__all__ = ["CSV_COLUMNS", "closing", "csv_row", "header", "rows", "write_csv"]

_HALF = f"{'time':>10} {'p99':>10} {'algbw':>8} {'busbw':>8} {'#wrong':>7}"
_UNITS = f"{'(us)':>10} {'(us)':>10} {'(GB/s)':>8} {'(GB/s)':>8} {'':>7}"
_LEFT = f"{'size':>12} {'count':>12} {'type':>10} {'redop':>6}  {'who':<24}"
_UNITS_LEFT = f"{'(B)':>12} {'(elements)':>12} {'':>10} {'':>6}  {'':<24}"


def header(collective: str) -> str:
    """The head of one collective's rows."""
    width = len(_HALF)
    return "\n".join(
        [
            f"# {collective}",
            f"#{'':>{len(_LEFT)}} {'out of place':^{width}} | {'in place':^{width}} | %bound",
            f"#{_LEFT} {_HALF} | {_HALF} |",
            f"#{_UNITS_LEFT} {_UNITS} | {_UNITS} |",
        ]
    )


def rows(cases: Sequence[Case]) -> Iterator[str]:
    """Lines for the cases of one row: one for each contender, out of place beside in place."""
    names = dict.fromkeys(case.name for case in cases)
    for name in names:
        sides = {case.in_place: case for case in cases if case.name == name}
        any_side = next(iter(sides.values()))
        left = (
            f"{any_side.nbytes:>12} {any_side.count:>12} {any_side.dtype:>10} "
            f"{any_side.op:>6}  {name:<24}"
        )
        percent = max(case.bounds.percent for case in sides.values())
        halves = " | ".join(_half(sides.get(side)) for side in (False, True))
        yield f" {left} {halves} | {percent:5.1f}"


def _half(case: Case | None) -> str:
    if case is None:
        return " " * len(_HALF)
    wrong = "N/A" if case.wrong is None else str(case.wrong)
    return (
        f"{case.times.median * 1e6:>10.2f} {case.times.p99 * 1e6:>10.2f} "
        f"{case.algbw:>8.3f} {case.busbw:>8.3f} {wrong:>7}"
    )


def closing(result: Result) -> str:
    """What the rows together say: errors, ratios, stragglers."""
    lines = [f"# wrong elements: {'not checked' if result.wrong is None else result.wrong}"]
    if not result.complete:
        lines.append("# cut short by --max-seconds: later sizes are missing or had fewer calls")
    lines += [f"# not measured: {one.what}: {one.why}" for one in result.skipped]
    for one in result.faster:
        place = "in place" if one.in_place else "out of place"
        lines.append(
            f"# at {one.nbytes} bytes {place} ({one.collective} {one.dtype} {one.op}) {one.better} "
            f"took {one.ratio:.2f} of the time of the first algorithm ({one.chosen})"
        )
    for link in result.links:
        lines.append(
            f"# link {link.nodes[0]}-{link.nodes[1]}: {link.latency * 1e6:.1f} us, "
            f"{link.forth:.3f} GB/s there, {link.back:.3f} back, {link.both:.3f} each way at once"
        )
    for straggler in result.stragglers:
        word = "slow" if straggler.stands_out else "slowest, but within the usual"
        lines.append(f"# {word}: {straggler.text}")
    return "\n".join(lines)


CSV_COLUMNS = (
    "schema", "collective", "library", "algorithm", "chosen", "leaders", "cell_bytes", "dtype",
    "op", "nbytes", "count", "in_place", "iterations", "median_s", "min_s", "max_s", "p99_s",
    "mean_s", "algbw_gbs", "busbw_gbs", "intra_busbw_gbs", "inter_busbw_gbs", "wrong", "tolerance",
    "bound_s", "percent_of_bound", "ratio", "bytes_between_nodes", "bytes_between_nodes_theory",
    "num_ranks", "num_nodes",
)  # fmt: skip


def csv_row(case: Case, result: Result) -> list[object]:
    """The cells of one case, in the order of CSV_COLUMNS; None is an empty cell."""
    times, moved = case.times, case.bytes
    return [
        result.schema, case.collective, case.library, case.algorithm, case.chosen, case.leaders,
        case.cell_bytes, case.dtype, case.op, case.nbytes, case.count, case.in_place,
        case.iterations, times.median, times.min, times.max, times.p99, times.mean, case.algbw,
        case.busbw, case.intra_busbw, case.inter_busbw, case.wrong, case.tolerance,
        case.bounds.bound, case.bounds.percent, case.ratio.median if case.ratio else None,
        moved.between_nodes if moved else None, moved.between_nodes_theory if moved else None,
        len(case.ranks), result.topology["num_nodes"],
    ]  # fmt: skip


def write_csv(result: Result, path: Path | str) -> None:
    """Write all cases; numbers with all their digits, as in the JSON."""
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(CSV_COLUMNS)
        writer.writerows(csv_row(case, result) for case in result.cases)
