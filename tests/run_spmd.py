"""Run tests/mpi under mpiexec on every layout and every MPI given, and add the results up.

    python tests/run_spmd.py                                  # all layouts, the MPI of this Python
    python tests/run_spmd.py --python .venv/bin/python --python .venv-openmpi/bin/python
    python tests/run_spmd.py --layouts 2x2 cluster:3,1 -- -k allreduce -x

A layout is a number of ranks on one node, a value of HIERRING_SIMULATE_NODES, or `cluster:` and
such a value: then the nodes are virtual ones, with networks and hostnames of their own, made by
`hierring cluster run`. Each job has a time limit, after which its whole family of processes is
ended. Exit code 0 means that every job passed and that every test ran on some layout of each MPI.

Without --thorough, the first MPI runs every file on the pretended layouts in WHOLE; all other jobs
deal the files out among the layouts of a kind: each runs every FOURTH file, and those that a layout
is all about run on each.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from hierring.launch.mpi import Launcher

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted(path.name for path in (ROOT / "tests" / "mpi").glob("test_*.py"))
FOURTH = 4
EVERYWHERE = ("test_topology.py",)


@dataclass(frozen=True)
class Layout:
    """Ranks on nodes; `nodes` as HIERRING_SIMULATE_NODES writes them, None for one node.

    With `cluster`, arguments of `hierring cluster run`, the nodes are virtual and not pretended.
    """

    name: str
    size: int
    nodes: str | None
    cluster: str = ""


# Odd, uneven and interleaved ones break other assumptions.
PRETENDED = (
    Layout("1", 1, None),
    Layout("2", 2, None),
    Layout("3", 3, None),
    Layout("4", 4, None),
    Layout("2x2", 4, "2x2"),
    Layout("3,1", 4, "3,1"),
    Layout("1,1,2", 4, "1,1,2"),
    Layout("cyclic:2", 4, "cyclic:2"),
    Layout("2,2,1", 5, "2,2,1"),
)
CLUSTERS = (
    Layout("cluster:2x2", 4, "2x2", "--nodes 2 --ranks-per-node 2"),
    Layout("cluster:4x1", 4, "4x1", "--nodes 4 --ranks-per-node 1"),
    Layout("cluster:3,1", 4, "3,1", "--ranks-per-node 3,1"),
    Layout("cluster:1,1,2", 4, "1,1,2", "--ranks-per-node 1,1,2"),
    Layout("cluster:2x4", 8, "2x4", "--nodes 2 --ranks-per-node 4"),
    Layout("cluster:cyclic:2", 8, "cyclic:2", "--nodes 2 --ranks-per-node 4 --placement cyclic"),
)
#: One node and several, and all that tests of one number of ranks ask for.
WHOLE = ("1", "2", "4", "2x2", "3,1")
LAYOUTS = {layout.name: layout for layout in (*PRETENDED, *CLUSTERS)}
OUTCOMES = ("passed", "failed", "error", "skipped", "xfailed", "deselected")


@dataclass(frozen=True)
class Mpi:
    """A Python and the mpiexec that starts its MPI's jobs."""

    python: Path
    launcher: Launcher

    @property
    def name(self) -> str:
        """The MPI library's short name."""
        return self.launcher.vendor


@dataclass
class Result:
    """What one job came to; `lists` has the names of the tests by outcome."""

    mpi: str
    layout: str
    seconds: float = 0.0
    trouble: str = ""
    lists: dict[str, list[str]] = field(default_factory=dict)

    def count(self, outcome: str) -> int:
        """Return how many tests had this outcome."""
        return len(self.lists.get(outcome, []))

    @property
    def failed(self) -> int:
        """Count failures; a job that died without a result is one."""
        return self.count("failed") + self.count("error") or int(bool(self.trouble))


def end_family(process: subprocess.Popen[bytes]) -> None:
    """End a launcher and all it started: first asking it, since it knows how, then by force."""
    with contextlib.suppress(psutil.NoSuchProcess):
        family = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGTERM)
        _, alive = psutil.wait_procs(family, timeout=5)
        for member in alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def environment(nodes: str | None, cluster: bool = False) -> dict[str, str]:
    """Make the environment of a job: no setting of the caller's shell, one thread per rank."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("HIERRING_") or "_TEST_" in k}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # else every rank rewrites every test module's asserts
    env.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", PYTHONHASHSEED="0")
    env["UCX_LOG_LEVEL"] = "error"  # it warns of requests that a broken communicator leaves open
    if nodes is not None:
        env["HIERRING_TEST_NODES" if cluster else "HIERRING_SIMULATE_NODES"] = nodes
    return env


def share(layout: Layout, mpi_index: int, thorough: bool) -> list[str]:
    """Name the files that one MPI runs on this layout."""
    if thorough or (mpi_index == 0 and layout.name in WHOLE):
        return FILES
    turn = (CLUSTERS if layout.cluster else PRETENDED).index(layout) + mpi_index
    return sorted({*FILES[turn % FOURTH :: FOURTH], *EVERYWHERE})


def command(mpi: Mpi, layout: Layout, arguments: list[str]) -> list[str]:
    """Start these arguments of Python on all ranks of the layout."""
    program = [str(mpi.python), "-P", *arguments]
    if layout.cluster:
        cluster = ["-P", "-m", "hierring", "cluster", "run", *layout.cluster.split()]
        return [str(mpi.python), *cluster, "--", *program]
    launcher = mpi.launcher
    start = (str(launcher.mpiexec), *launcher.options(), "-n", str(layout.size))
    return [*start, *program]


def run(
    mpi: Mpi, layout: Layout, files: list[str], timeout_s: float, arguments: list[str]
) -> Result:
    """Run the tests once; never raises for what the job does."""
    result = Result(mpi.name, layout.name)
    print(f"\n==== {mpi.name}, layout {layout.name}, {layout.size} ranks", flush=True)
    build = ROOT / "build"  # not /tmp, of which each virtual node has its own
    build.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="spmd-", dir=build) as scratch:
        results = Path(scratch) / "results.json"
        tests = (
            [] if any("tests/mpi" in a for a in arguments) else [f"tests/mpi/{f}" for f in files]
        )
        started = time.monotonic()
        process = subprocess.Popen(
            command(
                mpi,
                layout,
                [
                    *("-m", "pytest", "-p", "no:cacheprovider", "-p", "no:logging", "--color=no"),
                    *(f"--spmd-results={results}", *arguments, *tests),
                ],
            ),
            cwd=ROOT,
            env=environment(layout.nodes, bool(layout.cluster)),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            code = process.wait(timeout=timeout_s)
            result.trouble = "" if code == 0 else f"exit code {code}"
        except subprocess.TimeoutExpired:
            result.trouble = f"not done after {timeout_s:.0f} s"
        finally:
            end_family(process)
        result.seconds = time.monotonic() - started
        if results.exists():
            result.lists = json.loads(results.read_text(encoding="utf-8"))
        elif not result.trouble:
            result.trouble = "no results"
    return result


def no_clusters(python: Path) -> str:
    """Say why this machine makes no virtual nodes; empty if it does."""
    attempt = [str(python), "-P", "-m", "hierring", "cluster", "run", "--nodes", "1", "--", "true"]
    done = subprocess.run(attempt, capture_output=True, text=True, timeout=60, cwd=ROOT)
    return "" if done.returncode == 0 else done.stderr.strip() or f"exit code {done.returncode}"


def never_ran(results: list[Result]) -> dict[str, set[str]]:
    """Name the tests, by MPI, that every layout left out: nothing would make them fail."""
    missing = {}
    for mpi in sorted({result.mpi for result in results}):
        lists = [result.lists for result in results if result.mpi == mpi]
        left_out = {name for one in lists for name in one.get("deselected", [])}
        ran = {name for one in lists for key in OUTCOMES[:5] for name in one.get(key, [])}
        if left_out - ran:
            missing[mpi] = left_out - ran
    return missing


def report(results: list[Result]) -> None:
    """Print the table, and what was in trouble."""
    print(f"\n{'MPI':8} {'layout':17}" + "".join(f"{name:>11}" for name in OUTCOMES) + "   seconds")
    for result in results:
        counts = "".join(f"{result.count(name):11}" for name in OUTCOMES)
        print(f"{result.mpi:8} {result.layout:17}{counts}{result.seconds:10.1f}  {result.trouble}")


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", action="append", type=Path, help="a Python of one MPI")
    parser.add_argument("--layouts", nargs="+", default=list(LAYOUTS), metavar="LAYOUT")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for one job")
    parser.add_argument("--thorough", action="store_true", help="every file on every layout")
    parser.add_argument("arguments", nargs="*", help="for pytest, after --")
    return parser.parse_args()


def main() -> int:
    """Run the command line."""
    options = parse()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # ends the job, too
    # Absolute, but not resolved: a virtual environment's Python is a link.
    pythons = [Path(os.path.abspath(p)) for p in options.python or [Path(sys.executable)]]
    mpis = [Mpi(python, Launcher.beside(python)) for python in pythons]
    layouts = [LAYOUTS.get(name) or Layout(name, int(name), None) for name in options.layouts]
    whole = set(options.layouts) >= set(LAYOUTS) and not options.arguments
    skipped = no_clusters(pythons[0]) if any(layout.cluster for layout in layouts) else ""
    if skipped:
        layouts = [layout for layout in layouts if not layout.cluster]
    results = [
        run(
            mpi,
            layout,
            share(layout, index, options.thorough or not whole),
            options.timeout,
            options.arguments,
        )
        for index, mpi in enumerate(mpis)
        for layout in layouts
    ]
    report(results)
    missing = never_ran(results) if whole else {}
    for mpi, names in missing.items():
        print(f"{mpi}: no layout runs {', '.join(sorted(names))}")
    passed = sum(result.count("passed") for result in results)
    failed = sum(result.failed for result in results) + sum(map(len, missing.values()))
    if skipped:
        print(f"skipped: the layouts of virtual nodes: {skipped}")
        failed += os.environ.get("HIERRING_TEST_REQUIRE_ALL") == "1"
    print(f"\n{passed} passed, {failed} failed", flush=True)
    return 1 if failed or any(result.trouble for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
