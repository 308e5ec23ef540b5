"""`python -m hierring.benchmarks.wire`: hierring and its peers against the bound of a slow wire.

Runs on virtual nodes whose links have a rate. 2(M-1)/M S bytes must leave each of M nodes, at the
rate that the link probe finds in the same job: that is the bound. Makes an environment for each MPI
library, unless --python names some that are there. Prints Markdown; progress goes to stderr.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

from hierring.benchmarks.contest import (
    Job,
    Outcome,
    add_arguments,
    compete,
    environments_of,
    say_on_stderr,
    task_of,
)
from hierring.benchmarks.figures import Case
from hierring.benchmarks.jobs import Layout, time_text
from hierring.benchmarks.preface import measure_and_print
from hierring.benchmarks.report.document import nbytes_text
from hierring.benchmarks.standing import Row, Standing, round_rows, standing_rows
from hierring.errors import HierringError
from hierring.launch.cluster.tools import why_impossible

__all__ = ["main", "parser", "rows", "run", "sections"]

_OPENING = "hierring beside MPI's own all-reduce and gloo, on virtual nodes with slow links."
LAYOUTS = "2x2,2x4,cyclic:2x4,4x1,4x2"
_EXPLAINED = """\
Between nodes hierring uses the MPI library of its job, so a ratio says what a program gains that
calls hierring instead of the all-reduce of the MPI library that it has. A percentage is the share
of the wire bound that is reached: the time that 2(M-1)/M S bytes take at the rate that the link
probe found in the same job, over the time of the call. Results are in place. Layouts are nodes
times ranks on each; cyclic ones deal the ranks out to the nodes in turn, as many schedulers do."""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; the exit status is 1 if a job failed, 2 for wrong usage."""
    return measure_and_print(parser(), argv, run, sections, _OPENING)


def parser() -> argparse.ArgumentParser:
    """What it takes."""
    found = argparse.ArgumentParser(prog="python -m hierring.benchmarks.wire", description=__doc__)
    found.add_argument("--layouts", default=LAYOUTS, help="(%(default)s)")
    found.add_argument("--rate", default="1gbit", help="of each link, as tc has it (%(default)s)")
    found.add_argument("--algorithms", default="auto", help="of bench (%(default)s)")
    add_arguments(found, sizes="64K,16M", factor=16, calls=5, rounds=1)
    return found


def run(arguments: argparse.Namespace) -> Outcome:
    """All jobs that succeeded, and why others failed.

    Raises:
        HierringError: there is no environment to run them in, or no way to make nodes.
    """
    layouts = [Layout.parse(text) for text in arguments.layouts.split(",")]
    why_not = why_impossible()
    if why_not is not None:
        raise HierringError(str(why_not))
    task = task_of(arguments, layouts, ["--algorithms", arguments.algorithms], arguments.rate)
    return compete(task, environments_of(arguments, say_on_stderr), say_on_stderr)


def sections(jobs: Sequence[Job]) -> Iterator[str]:
    """Tables of the jobs, as Markdown."""
    in_place = [_in_place(job) for job in jobs]
    yield from ["", "### Where hierring stands between nodes", "", _EXPLAINED, ""]
    yield from standing_rows(Standing(in_place))
    yield from ["", "### Shares of the wire bound", ""]
    yield from rows(in_place)
    yield from round_rows(in_place)


def rows(jobs: Sequence[Job]) -> Iterator[str]:
    """A line for each layout, size and MPI library."""
    standing = Standing(jobs)
    others = [who for who in standing.contenders if who not in {j.environment.title for j in jobs}]
    yield " | ".join(["| nodes", "bytes", "over", "hierring", "MPI's own", *others]) + " |"
    yield "|---|---:|---|---:|---:|" + "---:|" * len(others)
    for place in standing.places:
        for nbytes in standing.sizes(place):
            for title in dict.fromkeys(job.environment.title for job in jobs):
                here = [
                    j for j in jobs if j.layout == place.layout and j.environment.title == title
                ]
                if here:
                    cells = list(_cells(here, Row(place, nbytes), others))
                    start = [str(place.layout), nbytes_text(nbytes), title]
                    yield "| " + " | ".join([*start, *cells]) + " |"


def _cells(jobs: Sequence[Job], row: Row, others: Sequence[str]) -> Iterator[str]:
    """Of one layout, size and MPI library: times and ratios of everybody, and shares."""
    standing = Standing(jobs)
    cases: dict[str, list[Case]] = {}
    for job in jobs:
        for case in job.result.cases:
            if case.nbytes == row.nbytes:
                who = job.who(case) if case.ratio is not None else ""
                cases.setdefault(who, []).append(case)
    for who in ("", jobs[0].environment.title, *others):
        if who not in cases:
            yield ""
            continue
        ratio = standing.ratio(row, who)
        own = time_text(statistics.median(case.times.median for case in cases[who]))
        shares = [_share(case) for case in cases[who]]
        known = [share for share in shares if share is not None]
        share = f", {statistics.median(known):.0f} %" if known else ""
        yield f"{own if ratio is None else ratio}{share}"


def _share(case: Case) -> float | None:
    """Percent of the wire bound that is reached."""
    wire = case.bounds.wire
    return None if wire is None else 100 * wire / case.times.median


def _in_place(job: Job) -> Job:
    cases = tuple(case for case in job.result.cases if case.in_place)
    return replace(job, result=replace(job.result, cases=cases))


if __name__ == "__main__":
    sys.exit(main())
