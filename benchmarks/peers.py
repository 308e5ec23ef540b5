"""`python -m hierring.benchmarks.peers`: hierring beside MPI's own all-reduce and gloo, on a node.

Makes an environment for each MPI library, unless --python names some that are there, and runs all
of them in turn. Prints Markdown; progress goes to stderr.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator, Sequence

from hierring.benchmarks.contest import (
    Job,
    Outcome,
    add_arguments,
    compete,
    environments_of,
    say_on_stderr,
    task_of,
)
from hierring.benchmarks.jobs import Layout, time_text
from hierring.benchmarks.preface import measure_and_print
from hierring.benchmarks.report.document import nbytes_text
from hierring.benchmarks.standing import Place, Row, Standing, round_rows, standing_rows
from hierring.errors import ConfigurationError

__all__ = ["main", "parser", "run", "sections"]

_OPENING = "hierring beside MPI's own all-reduce and gloo, on one node."


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; the exit status is 1 if a job failed, 2 for wrong usage."""
    return measure_and_print(parser(), argv, run, sections, _OPENING)


def parser() -> argparse.ArgumentParser:
    """What it takes."""
    found = argparse.ArgumentParser(prog="python -m hierring.benchmarks.peers", description=__doc__)
    found.add_argument("--ranks", default="2,4", help="numbers of ranks (%(default)s)")
    add_arguments(found, sizes="64,64M", factor=32, calls=7, rounds=2)
    return found


def run(arguments: argparse.Namespace) -> Outcome:
    """All jobs that succeeded, and why others failed.

    Raises:
        HierringError: there is no environment to run them in.
    """
    try:
        layouts = [Layout(1, int(text)) for text in arguments.ranks.split(",")]
    except ValueError:
        raise ConfigurationError(f"--ranks {arguments.ranks!r}: give numbers, as 2,4") from None
    # The link probe looks at links between nodes.
    task = task_of(arguments, layouts, ["--no-probe"])
    return compete(task, environments_of(arguments, say_on_stderr), say_on_stderr)


def sections(jobs: Sequence[Job]) -> Iterator[str]:
    """Tables of the jobs, as Markdown."""
    standing = Standing(jobs)
    yield from ["", "### Where hierring stands on one node", ""]
    yield from standing_rows(standing)
    for layout in dict.fromkeys(job.layout for job in jobs):
        crowded = any(job.result.topology["oversubscribed"] for job in jobs if job.layout == layout)
        shared = ", more than there are cores" if crowded else ""
        yield from ["", f"### {layout.ranks} ranks on one node{shared}", ""]
        yield from rows(standing, [job for job in jobs if job.layout == layout])
    yield from round_rows(jobs)


def rows(standing: Standing, jobs: Sequence[Job]) -> Iterator[str]:
    """A line for each size and placement of the result in one layout."""
    others = standing.contenders
    yield "| bytes | result | hierring | " + " | ".join(others) + " | fastest peer |"
    yield "|---:|---|---:|" + "---:|" * len(others) + "---|"
    for place in standing.places:
        if place.layout != jobs[0].layout:
            continue
        for nbytes in standing.sizes(place):
            row = Row(place, nbytes)
            fastest = standing.fastest(row)
            ratios = [standing.ratio(row, who) for who in others]
            cells = [nbytes_text(nbytes), place.names[1], time_text(_own_time(jobs, row))]
            cells += ["" if ratio is None else str(ratio) for ratio in ratios]
            yield "| " + " | ".join([*cells, fastest[0] if fastest else ""]) + " |"


def _own_time(jobs: Sequence[Job], row: Row) -> float:
    """Of the calls that all others are compared to: the median over jobs."""
    return statistics.median(
        case.times.median
        for job in jobs
        for case in job.result.cases
        if case.ratio is None
        and (Place(job.layout, case.in_place), case.nbytes) == (row.place, row.nbytes)
    )


if __name__ == "__main__":
    sys.exit(main())
