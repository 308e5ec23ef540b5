"""`hierring bench` on virtual nodes: a slow link and a stopped rank are named; the wire bound."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hierring.benchmarks.result import Result, load
from hierring.launch.cluster import VirtualCluster
from hierring.launch.cluster.tools import why_impossible
from hierring.launch.mpi import Launcher

WHY_NOT = why_impossible()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT)),
]
FAULTY = Path(__file__).with_name("bench_with_faults.py")
# Far apart, so that other work on the machine does not hide the difference.
FAST, SLOW, SLOW_GB_S = "400mbit", "40mbit", 0.005
OPTIONS = ("-b", "16K", "-e", "1M", "-f", "64", "-n", "5", "-w", "1", "--peers", "mpi")
LIMIT_S = 120
HEADS = ("job", "bytes", "nodes")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run on three nodes: the last one behind a slow link, rank 1 stopped for a while."""
    folder = tmp_path_factory.mktemp("bench")
    written = folder / "a.json"
    program = [sys.executable, "-P", str(FAULTY), "stopped", "1", *OPTIONS, "--json", str(written)]
    with VirtualCluster(3, rate=FAST, share=[FAULTY.parent, folder]) as cluster:
        cluster.set_rate(2, SLOW)
        command = cluster.mpiexec(Launcher.beside(), [2, 1, 1], "block", program)
        done: subprocess.CompletedProcess[str] = cluster.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S
        )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return written


@pytest.fixture(scope="module")
def result(file: Path) -> Result:
    """What the run found."""
    return load(file)


def test_nodes_are_those_of_the_cluster(result: Result) -> None:
    assert [node["hostname"] for node in result.topology["nodes"]] == ["node0", "node1", "node2"]
    assert not result.topology["simulated"]
    assert [rank.node for rank in result.cases[0].ranks] == [0, 0, 1, 2]


def test_the_node_behind_the_slow_link_is_named(result: Result) -> None:
    """Before all: a busy machine may slow another one down as well, but not as much."""
    slow = [one for one in result.stragglers if one.evidence == "bandwidth"]
    worst = min(slow, key=lambda one: one.value)
    assert (worst.members, worst.stands_out) == ((2,), True)
    assert any(one.text.startswith("node 2 sends") for one in slow)


def test_the_stopped_rank_is_named(result: Result) -> None:
    (found,) = (one for one in result.stragglers if one.kind == "rank")
    assert (found.members, found.stands_out) == ((1,), True)


def test_the_report_names_them(file: Path) -> None:
    command = [sys.executable, "-P", "-m", "hierring", "report", str(file), "--markdown", "-"]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S,
        check=True,
    )  # fmt: skip
    summary = done.stdout.partition("Summary")[2].partition("\n## ")[0]
    assert "Slow: node 2 sends" in summary
    assert "Slow: rank 1 (node 0)" in summary


def test_no_algorithm_is_faster_than_the_wire(result: Result) -> None:
    """2(M-1)/M S at the rate that was found; and at the rate that the kernel lets through.

    Other work on the machine makes the first rate smaller, as it does with any measured one, but
    nothing makes the second one larger, save the bucket once at a time.
    """
    large = [case for case in result.cases if case.nbytes == 2**20]
    assert {case.library for case in large} == {"hierring", "mpi"}
    slowest = min(link.both for link in result.links)
    assert slowest < 1.5 * SLOW_GB_S
    for case in large:
        assert case.bounds.wire == pytest.approx(4 / 3 * 2**20 / slowest / 1e9, rel=1e-9)
        assert case.bounds.bound == case.bounds.wire
        # MPI may let the odd node send S alone, 3/4 of that, and the bucket counts once more.
        assert case.times.min > 0.5 * 4 / 3 * 2**20 / SLOW_GB_S / 1e9


def test_bytes_between_nodes_are_those_of_theory(result: Result) -> None:
    ours = [case for case in result.cases if case.bytes is not None]
    assert ours
    for case in ours:
        assert case.bytes is not None
        assert case.bytes.between_nodes == case.bytes.between_nodes_theory
    assert {case.chosen for case in ours} == {"staged, doubling", "staged, ring"}


@pytest.mark.parametrize(
    ("module", "arguments", "lines"),
    [
        ("peers", ("--ranks", "2", "--sizes", "8,64K", "--factor", "8192"), 2 + 4),
        ("wire", ("--layouts", "cyclic:2x2", "--sizes", "64K,64K"), 1 + 1),
    ],
)
def test_tables_of_peers_come_from_one_command(
    module: str, arguments: tuple[str, ...], lines: int
) -> None:
    program = [sys.executable, "-P", "-m", f"hierring.benchmarks.{module}", *arguments]
    done = subprocess.run(
        [*program, "--python", sys.executable, "--peers", "mpi", "--calls", "3", "--rounds", "1"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    before, _, after = done.stdout.partition("### Where hierring stands")
    tables = after.partition("## Settings of the peers")[0]
    rows = [line.strip("|").split("|") for line in tables.splitlines() if line[:1] == "|"]
    # Two tables, each with a head and a rule.
    figures = [row for row in rows if "---" not in row[0] and row[0].strip() not in HEADS]
    assert len(figures) >= lines
    assert all(cell.strip() for row in figures for cell in row)
    assert "How to distrust it" in before
    assert "OMP_NUM_THREADS=1" in done.stdout
