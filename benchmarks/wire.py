"""`python -m hierring.benchmarks.wire`: hierring and its peers against the bound of a slow wire.

Runs on virtual nodes whose links have a rate. 2(M-1)/M S bytes must leave each of M nodes, at the
rate that the link probe finds in the same job: that is the bound. Prints Markdown.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence

from hierring.benchmarks.figures import Case
from hierring.benchmarks.jobs import Layout, bench_on_nodes, ratio_text, time_text
from hierring.benchmarks.result import Result
from hierring.errors import ConfigurationError, HierringError

__all__ = ["main", "rows"]

LAYOUTS = "2x2,2x4,cyclic:2x4,4x1,4x2"


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; the exit status is 1 if a job failed, 2 for wrong usage."""
    parser = argparse.ArgumentParser(prog="python -m hierring.benchmarks.wire", description=__doc__)
    parser.add_argument("--layouts", default=LAYOUTS, help="(%(default)s)")
    parser.add_argument("--rate", default="1gbit", help="of each link, as tc has it (%(default)s)")
    parser.add_argument("--sizes", default="64K,16M", help="-b and -e of bench (%(default)s)")
    parser.add_argument("--factor", default="16", help="-f of bench (%(default)s)")
    parser.add_argument("--calls", default="7", help="-n of bench (%(default)s)")
    parser.add_argument("--algorithms", default="auto,ring", help="of bench (%(default)s)")
    parser.add_argument("--peers", default="mpi,gloo", help="of mpi,gloo (%(default)s)")
    arguments = parser.parse_args(argv)
    try:
        layouts = [Layout.parse(text) for text in arguments.layouts.split(",")]
    except ConfigurationError as error:
        print(f"hierring: {error}", file=sys.stderr)
        return 2
    begin, _, end = arguments.sizes.partition(",")
    options = ["-b", begin, "-e", end, "-f", arguments.factor, "-n", arguments.calls, "-w", "2"]
    options += ["--algorithms", arguments.algorithms, "--peers", arguments.peers]
    cores = len(os.sched_getaffinity(0))
    failed = False
    for layout in layouts:
        settings = {"OMP_NUM_THREADS": "1"}
        if layout.nodes * layout.ranks > cores:
            settings |= {"OMPI_MCA_mpi_yield_when_idle": "1", "I_MPI_THREAD_YIELD": "3"}
        try:
            result = bench_on_nodes(layout, options, rate=arguments.rate, settings=settings)
        except HierringError as error:
            print(f"hierring: {error}", file=sys.stderr)
            failed = True
            continue
        print(_head(result, layout, arguments.rate, cores))
        print("\n".join(rows(result)), flush=True)
    return 1 if failed else 0


def _head(result: Result, layout: Layout, rate: str, cores: int) -> str:
    environment = result.environment
    return (
        f"\n### {layout} at {rate}, {environment.mpi}\n\n{environment.date}, hierring "
        f"{environment.hierring} ({environment.commit or 'installed'}), {cores} cores for all "
        f"nodes, load {environment.load:.1f}, {result.settings.iterations} calls each, in place\n"
    )


def rows(result: Result) -> Iterator[str]:
    """A table of one job: a line for each size and contender, in place."""
    yield "| bytes | who | time | of the wire bound | time over hierring's |"
    yield "|---:|---|---:|---:|---:|"
    for case in result.cases:
        if case.in_place:
            yield (
                f"| {case.nbytes} | {case.name} | {time_text(case.times.median)} | "
                f"{_percent(case)} | {_ratio(case)} |"
            )


def _percent(case: Case) -> str:
    wire = case.bounds.wire
    return "" if wire is None else f"{100 * wire / case.times.median:.0f} %"


def _ratio(case: Case) -> str:
    ratio = case.ratio
    return "1" if ratio is None else ratio_text(ratio.median, ratio.low, ratio.high)


if __name__ == "__main__":
    sys.exit(main())
