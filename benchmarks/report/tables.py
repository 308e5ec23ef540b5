"""The sections of one run: every number that a report shows, as it is in the file."""

from __future__ import annotations

from hierring.benchmarks.figures import Case
from hierring.benchmarks.report.cluster import cluster_section
from hierring.benchmarks.report.document import (
    Alert,
    Block,
    Paragraph,
    Section,
    Table,
    case_label,
    duration,
    factor_text,
    groups,
    nbytes_text,
    rate,
    ratio_text,
)
from hierring.benchmarks.report.insight import (
    counters_section,
    phases_section,
    stragglers_section,
)
from hierring.benchmarks.result import Result

__all__ = ["sections"]


def sections(result: Result) -> list[Section]:
    """All sections of a run, in the order of a report."""
    return [
        _summary(result), cluster_section(result), _results(result), _choice(result),
        phases_section(result), stragglers_section(result), counters_section(result),
        _method(result),
    ]  # fmt: skip


def _summary(result: Result) -> Section:
    blocks: list[Block] = []
    if result.wrong:
        blocks.append(Alert("bad", f"{result.wrong} elements were wrong: distrust all figures."))
    if result.wrong is None:
        blocks.append(Alert("warn", "Results were not checked."))
    if not result.complete:
        blocks.append(
            Alert("warn", "Cut short by --max-seconds: sizes are missing or had fewer calls.")
        )
    if result.topology.get("simulated"):
        blocks.append(
            Alert("warn", "Nodes are pretended, on one machine: only ratios mean something.")
        )
    blocks += [Alert("warn", _sentence(text)) for text in result.topology.get("warnings", [])]
    blocks += [Alert("bad", f"Slow: {s.text}.") for s in result.stragglers if s.stands_out]
    rows = [
        ("wrong elements", "not checked" if result.wrong is None else str(result.wrong)),
        *_best(result),
        *[(f"slowest {s.kind}, within the usual", s.text)
          for s in result.stragglers if not s.stands_out],
    ]  # fmt: skip
    blocks.append(Table("", ("what", "figure"), tuple(rows), left=2))
    return Section("summary", "Summary", tuple(blocks))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _best(result: Result) -> list[tuple[str, str]]:
    cases = [case for case in result.cases if case.library == "hierring"]
    if not cases:
        return []
    # One rank alone sends nothing, so its busbw is 0 at any speed.
    figure = "busbw" if len(cases[0].ranks) > 1 else "algbw"
    best = max(cases, key=lambda case: float(getattr(case, figure)))
    least = min(cases, key=lambda case: case.times.median)
    return [
        (f"highest {figure} of hierring", f"{rate(getattr(best, figure))} GB/s at {_where(best)}"),
        ("that is of the bound", f"{best.bounds.percent:.1f} %"),
        ("shortest call of hierring", f"{duration(least.times.median)} at {_where(least)}"),
    ]


def _where(case: Case) -> str:
    label = case_label(case.collective, case.dtype, case.op, case.in_place)
    return f"{nbytes_text(case.nbytes)} ({case.name}, {label})"


_RESULT_COLUMNS = (
    "size", "who", "chosen", "median", "min", "p99", "max", "algbw GB/s", "busbw GB/s",
    "intra busbw", "inter busbw", "% of bound", "time / auto", "#wrong", "tolerance", "count",
    "calls",
)  # fmt: skip


def _results(result: Result) -> Section:
    blocks: list[Block] = [
        Paragraph(
            "Times are of the slowest rank. busbw is algbw times "
            + "; ".join(
                f"{factor_text(name, len(result.cases[0].ranks))} ({name})"
                for name in dict.fromkeys(case.collective for case in result.cases)
            )
            + ". 1 GB = 1e9 bytes."
        )
    ] if result.cases else [Paragraph("No case was measured.")]  # fmt: skip
    for key in groups(result):
        cases = [c for c in result.cases if (c.collective, c.dtype, c.op, c.in_place) == key]
        rows = tuple(_result_row(case) for case in sorted(cases, key=lambda case: case.nbytes))
        blocks.append(Table(case_label(*key), _RESULT_COLUMNS, rows, left=3))
    blocks += [Paragraph(f"Not measured: {one.what}: {one.why}.") for one in result.skipped]
    return Section("results", "Bandwidth and latency", tuple(blocks))


def _result_row(case: Case) -> tuple[str, ...]:
    times = case.times
    return (
        nbytes_text(case.nbytes), case.name, case.chosen or "–", duration(times.median),
        duration(times.min), duration(times.p99), duration(times.max), rate(case.algbw),
        rate(case.busbw), rate(case.intra_busbw), rate(case.inter_busbw),
        f"{case.bounds.percent:.1f}", ratio_text(case.ratio.median) if case.ratio else "1",
        "–" if case.wrong is None else str(case.wrong), f"{case.tolerance:.3g}", str(case.count),
        str(case.iterations),
    )  # fmt: skip


def _choice(result: Result) -> Section:
    """What auto chose, and how the best other algorithm and the best peer compare with it."""
    rows, marks = [], []
    for key in groups(result):
        same = [c for c in result.cases if (c.collective, c.dtype, c.op, c.in_place) == key]
        for nbytes in sorted({case.nbytes for case in same}):
            at_size = [case for case in same if case.nbytes == nbytes]
            first = next((case for case in at_size if case.ratio is None), None)
            if first is None or first.library != "hierring":
                continue
            others = [c for c in at_size if c.library == "hierring" and c.ratio is not None]
            peers = [c for c in at_size if c.library != "hierring" and c.ratio is not None]
            rows.append(
                (case_label(*key), nbytes_text(nbytes), first.chosen, *_rival(others),
                 *_rival(peers))
            )  # fmt: skip
            marks.append((None, None, None, None, _mark(others), None, _mark(peers)))
    blocks: list[Block] = []
    for one in result.faster:
        label = case_label(one.collective, one.dtype, one.op, one.in_place)
        blocks.append(
            Alert(
                "warn",
                f"At {nbytes_text(one.nbytes)} ({label}) {one.better} took {one.ratio:.2f} of the "
                f"time of what auto chose ({one.chosen}).",
            )
        )
    if not result.faster:
        blocks.append(Paragraph("No other algorithm of hierring was clearly faster than auto's."))
    if rows:
        blocks.append(
            Table(
                "Time of the best other algorithm and of the best peer over auto's, call by call: "
                "median (quartiles); below 1 it was faster",
                ("case", "size", "auto chose", "best other", "its time / auto's", "best peer",
                 "its time / auto's"),
                tuple(rows), left=7, heat=tuple(marks),
            )
        )  # fmt: skip
    return Section("choice", "Which algorithm was chosen", tuple(blocks))


def _fastest(cases: list[Case]) -> Case | None:
    return min(cases, key=lambda case: case.ratio.median if case.ratio else 1.0, default=None)


def _rival(cases: list[Case]) -> tuple[str, str]:
    best = _fastest(cases)
    if best is None or best.ratio is None:
        return "–", "–"
    ratio = best.ratio
    return best.name, f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"


def _mark(cases: list[Case]) -> float | None:
    """Mark a rival that was faster even by the upper quartile."""
    best = _fastest(cases)
    return 0.5 if best is not None and best.ratio is not None and best.ratio.high < 1 else None


def _method(result: Result) -> Section:
    method, environment, settings = result.method, result.environment, result.settings
    how = (
        ("timed region", method.timed_region), ("time", method.time), ("buffers", method.buffers),
        ("in place", method.in_place), ("check", method.check), ("order", method.order),
        ("calls of a case", f"{settings.iterations} timed after {settings.warmup} warm-ups"),
        ("tolerance", "in the results, by case; wrong counts elements further off; 0 is exact"),
        ("units", "1 GB = 1e9 bytes; 1 MiB = 1048576 bytes; rates are GB/s"),
    )  # fmt: skip
    where = (
        ("host", environment.hostname), ("date", environment.date),
        ("took", f"{environment.seconds:.1f} s"),
        ("hierring", f"{environment.hierring} {environment.commit or '(no checkout)'}"),
        ("MPI", environment.mpi), ("launcher", environment.launcher),
        ("SIMD level", environment.simd_level), ("kernel", environment.kernel),
        ("Python, NumPy, torch", f"{environment.python}, {environment.numpy}, {environment.torch}"),
        ("load before", f"{environment.load:.2f}"), ("tuning table", result.tuning or "none"),
        ("command", "hierring " + " ".join(settings.command)),
    )  # fmt: skip
    config = tuple((name, str(value)) for name, value in settings.config.items())
    symbols = Paragraph(
        "In formulas S is the size in bytes, N the number of ranks "
        f"({result.topology['size']}), M of nodes ({result.topology['num_nodes']}), n of ranks on "
        f"the largest node ({max((n['local_size'] for n in result.topology['nodes']), default=1)})."
    )
    return Section(
        "method", "How it was measured",
        (
            Table("Method", ("what", "how"), how, left=2),
            symbols,
            Table("Definitions", ("figure", "definition"), tuple(method.definitions.items()),
                  left=2),
            Table("Environment", ("what", "value"), where, left=2),
            Table("Settings of the communicator", ("setting", "value"), config, left=2),
        ),
    )  # fmt: skip
