"""`python -m hierring.benchmarks.peers`: hierring beside MPI's own all-reduce and gloo, on a node.

One job for each MPI library and number of ranks. Inside a job all take turns, so the ratios compare
calls made within the same moments. Prints Markdown.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence

from hierring.benchmarks.figures import Case
from hierring.benchmarks.jobs import Layout, bench_on_nodes, ratio_text, time_text
from hierring.benchmarks.result import Result
from hierring.errors import HierringError

__all__ = ["main", "peer_settings", "rows"]

_ASK_S = 60.0


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; the exit status is 1 if a job failed."""
    parser = argparse.ArgumentParser(
        prog="python -m hierring.benchmarks.peers", description=__doc__
    )
    parser.add_argument(
        "--python",
        action="append",
        metavar="FILE",
        help="of an environment with hierring and an MPI library; may be repeated (this one)",
    )
    parser.add_argument("--ranks", default="2,4", help="numbers of ranks (%(default)s)")
    parser.add_argument("--sizes", default="8,64M", help="-b and -e of bench (%(default)s)")
    parser.add_argument("--factor", default="128", help="-f of bench (%(default)s)")
    parser.add_argument("--calls", default="20", help="-n of bench (%(default)s)")
    parser.add_argument("--peers", default="mpi,gloo", help="of mpi,gloo (%(default)s)")
    arguments = parser.parse_args(argv)
    begin, _, end = arguments.sizes.partition(",")
    options = ["-b", begin, "-e", end, "-f", arguments.factor, "-n", arguments.calls]
    options.append("--no-probe")
    failed = False
    for python in arguments.python or [sys.executable]:
        peers = [
            name for name in arguments.peers.split(",") if name != "gloo" or _has_torch(python)
        ]
        for ranks in map(int, arguments.ranks.split(",")):
            settings = peer_settings(ranks, len(os.sched_getaffinity(0)))
            try:
                result = bench_on_nodes(
                    Layout(1, ranks), [*options, "--peers", ",".join(peers)], python=python,
                    settings=settings,
                )  # fmt: skip
            except HierringError as error:
                print(f"hierring: {error}", file=sys.stderr)
                failed = True
                continue
            print("\n".join([*_head(result, ranks, settings), *rows(result)]), flush=True)
    return 1 if failed else 0


def peer_settings(ranks: int, cores: int) -> dict[str, str]:
    """What makes the peers fast here, by whatever library reads it; the others pass over it."""
    crowded = ranks > cores
    settings = {
        "OMP_NUM_THREADS": "1",
        "PRTE_MCA_hwloc_default_binding_policy": "none" if crowded else "core",
        "I_MPI_FABRICS": "shm",
        "I_MPI_PIN": "0" if crowded else "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    if crowded:
        # With more ranks than cores, who spins keeps the others from working.
        settings |= {"OMPI_MCA_mpi_yield_when_idle": "1", "I_MPI_THREAD_YIELD": "3"}
    return settings


def _has_torch(python: str) -> bool:
    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    return subprocess.run([python, "-c", code], timeout=_ASK_S, check=False).returncode == 0


def _head(result: Result, ranks: int, settings: Mapping[str, str]) -> list[str]:
    environment = result.environment
    shown = " ".join(f"{name}={value}" for name, value in settings.items())
    crowded = "more ranks than cores, " if result.topology["oversubscribed"] else ""
    return [
        f"\n### {environment.mpi}, {ranks} ranks on one node\n",
        (
            f"{environment.date}, {environment.hostname}, hierring {environment.hierring} "
            f"({environment.commit or 'installed'}), SIMD {environment.simd_level}, load "
            f"{environment.load:.1f}, {crowded}{result.settings.iterations} calls each; `{shown}`\n"
        ),
        (
            "Times of hierring; of the peers their time over it, call by call: the median and "
            "quartiles. Above 1 hierring is faster.\n"
        ),
    ]


def rows(result: Result) -> Iterator[str]:
    """A table of one job: a line for each size and placement of the result."""
    names = list(dict.fromkeys(case.name for case in result.cases if case.ratio is not None))
    reference = next(case.name for case in result.cases if case.ratio is None)
    yield "| bytes | result | " + " | ".join([reference, *names]) + " |"
    yield "|---:|---|" + "---:|" * (1 + len(names))
    for case in result.cases:
        if case.ratio is None:
            cells = [time_text(case.times.median)]
            cells += [_ratio(result, case, name) for name in names]
            place = "in place" if case.in_place else "out of place"
            yield f"| {case.nbytes} | {place} | " + " | ".join(cells) + " |"


def _ratio(result: Result, reference: Case, name: str) -> str:
    for case in result.cases:
        same = (case.nbytes, case.in_place) == (reference.nbytes, reference.in_place)
        if same and case.name == name and case.ratio is not None:
            return ratio_text(case.ratio.median, case.ratio.low, case.ratio.high)
    return ""


if __name__ == "__main__":
    sys.exit(main())
