"""`python -m hierring.benchmarks.model.rehearse`: does the model foretell clusters it never saw?

Measures two virtual nodes, calibrates, predicts more of them, and measures those. All virtual nodes
share this machine's cores, which is part of the model; that others use them is not, so it waits
for quiet, and repeats a run during which there was none. All clusters take turns, in rounds. Prints
Markdown.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hierring.benchmarks.jobs import Layout, bench_on_nodes
from hierring.benchmarks.model.calibrate import calibrate
from hierring.benchmarks.model.forecast import Check, check
from hierring.benchmarks.model.measured import points_of
from hierring.benchmarks.model.watch import undisturbed
from hierring.benchmarks.report.document import duration, nbytes_text
from hierring.benchmarks.result import Result, save
from hierring.errors import ConfigurationError, HierringError

__all__ = ["Round", "main", "rehearsal", "rows"]

CALIBRATION = "2x1,2x2"
CHECKED = "2x1,3x1,4x1"
#: Latencies, both sides of each border between ways of working, and what the network takes.
LEARN = ("-b", "1K", "-e", "16M", "-f", "4", "--algorithms", "auto,ring,tree,naive", "-w", "3")
#: 64 KiB come first here, and by then all those calls have made Python and caches warm there.
ASK = ("-b", "64K", "-e", "16M", "-f", "256", "--algorithms", "auto", "-w", "15")


@dataclass(frozen=True)
class Round:
    """Runs that took turns.

    Attributes:
        learnt: those to calibrate with. asked: those to check with.
        others: the largest share of the cores that others used during one of them.
    """

    learnt: tuple[Result, ...]
    asked: tuple[Result, ...]
    others: float


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, calibrate, predict, compare; the exit status is 1 if an error passes the limit."""
    arguments = _parser().parse_args(argv)
    try:
        learn = [Layout.parse(text) for text in arguments.calibrate.split(",")]
        ask = [Layout.parse(text) for text in arguments.layouts.split(",")]
        failed = False
        for rate in arguments.rates.split(","):
            limit = None if rate == "none" else rate
            rounds = [
                _round(learn, ask, limit, arguments, f"{rate}-{index}")
                for index in range(arguments.rounds)
            ]
            checks = rehearsal(rounds)
            print(_head(rate, rounds))
            print("\n".join(rows(checks)), flush=True)
            failed |= any(abs(one.ratio - 1) > arguments.limit / 100 for one in checks)
    except HierringError as error:
        print(f"hierring: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigurationError) else 1
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m hierring.benchmarks.model.rehearse", description=__doc__
    )
    add = parser.add_argument
    add("--calibrate", default=CALIBRATION, help="layouts to learn from (%(default)s)")
    add("--layouts", default=CHECKED, help="layouts to foretell (%(default)s)")
    add("--rates", default="1gbit,none", help="of the links, as tc has it (%(default)s)")
    add("--rounds", default=3, type=int, help="(%(default)s)")
    add("--tries", default=3, type=int, help="of a run that others disturb (%(default)s)")
    add("--calls", default="11", help="-n of bench (%(default)s)")
    add("--limit", default=25.0, type=float, help="%% of error that is borne (%(default)g)")
    add("--python", default=sys.executable, help="whose MPI to use (this one)")
    add("--keep", metavar="FOLDER", help="where to put the JSON of all runs")
    return parser


def _round(
    learn: Sequence[Layout], ask: Sequence[Layout], rate: str | None,
    arguments: argparse.Namespace, name: str,
) -> Round:  # fmt: skip
    """Each layout once."""
    cores = len(os.sched_getaffinity(0))
    found: dict[tuple[Layout, bool], Result] = {}
    others = 0.0
    for layout, learns in [*((one, True) for one in learn), *((one, False) for one in ask)]:
        options = [*(LEARN if learns else ASK), "-n", arguments.calls]
        settings = {"OMP_NUM_THREADS": "1"}
        if layout.nodes * layout.ranks > cores:
            settings |= {"OMPI_MCA_mpi_yield_when_idle": "1", "I_MPI_THREAD_YIELD": "3"}
        measure = partial(
            bench_on_nodes, layout, options, python=arguments.python, rate=rate, settings=settings
        )
        quiet = undisturbed(measure, arguments.tries)
        result, others = quiet.value, max(others, quiet.others)
        if arguments.keep:
            word = "learn" if learns else "ask"
            save(result, Path(arguments.keep) / f"{name}-{word}-{layout}.json")
        found[layout, learns] = result
    return Round(
        tuple(found[one, True] for one in learn),
        tuple(found[one, False] for one in ask),
        others,
    )


def rehearsal(rounds: Sequence[Round]) -> list[Check]:
    """Calibrate with what all rounds learnt, and set what they asked beside the predictions."""
    model = calibrate([result for one in rounds for result in one.learnt])
    return check(model, [point for one in rounds for run in one.asked for point in points_of(run)])


def _head(rate: str, rounds: Sequence[Round]) -> str:
    first = rounds[0].asked[0].environment
    others = 100 * max(one.others for one in rounds)
    links = "links without a limit" if rate == "none" else f"links of {rate}"
    return (
        f"\n### Virtual nodes, {links}\n\n{first.date}, hierring {first.hierring} "
        f"({first.commit or 'installed'}), {first.mpi}, {len(os.sched_getaffinity(0))} cores for "
        f"all nodes, of which others used {others:.0f} % at most, {len(rounds)} rounds\n"
    )


def rows(checks: Sequence[Check]) -> Iterator[str]:
    """A table: a line for each case."""
    yield "| layout | size | algorithm | predicted | measured | spread | predicted / measured |"
    yield "|---|---:|---|---:|---:|---:|---:|"
    for one in checks:
        yield (
            f"| {one.nodes}x{one.ranks} | {nbytes_text(one.nbytes)} | {one.algorithm} | "
            f"{duration(one.predicted)} | {duration(one.measured)} | "
            f"{duration(one.low)} to {duration(one.high)} | {one.ratio:.2f} |"
        )


if __name__ == "__main__":
    sys.exit(main())
