"""MPI jobs on virtual nodes: placement, sums, the wire and its rate, and too little memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hierring.launch.cluster import NodeSpec, VirtualCluster
from hierring.launch.cluster.placement import place
from hierring.launch.cluster.tools import why_impossible
from hierring.launch.mpi import Launcher

WHY_NOT = why_impossible()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT)),
]
JOB = Path(__file__).with_name("virtual_job.py")
ROOT = Path(__file__).resolve().parents[2]
# So that a full /dev/shm is hierring's trouble and not MPI's own, which would die of SIGBUS.
MPI_WITHOUT_SHM = {
    "MPIR_CVAR_NOLOCAL": "1",
    "UCX_TLS": "tcp,self",
    "OMPI_MCA_btl": "self,tcp",
    "OMPI_MCA_pml": "ob1",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[VirtualCluster]:
    specs = [NodeSpec("node0"), NodeSpec("node1"), NodeSpec("node2")]
    with VirtualCluster([*specs, NodeSpec("tiny", shm_nbytes=64 << 20)], share=[JOB]) as made:
        yield made


def start(
    cluster: VirtualCluster,
    counts: list[int],
    *arguments: object,
    placement: str = "block",
    python: str = sys.executable,
    settings: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run the job to its end and return all it said."""
    program = [python, "-P", str(JOB), *map(str, arguments)]
    command = cluster.mpiexec(Launcher.beside(python), counts, placement, program)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HIERRING_")}
    environment |= {"OMP_NUM_THREADS": "1", **(settings or {})}
    return cluster.run(
        command,
        env=environment,
        timeout=120,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def results(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    """What the ranks of a job found, in rank order."""
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found = [
        json.loads(line.partition("RESULT ")[2])
        for line in done.stdout.splitlines()
        if "RESULT " in line
    ]
    return sorted(found, key=lambda row: int(row["rank"]))


def check_report(rows: list[dict[str, Any]], counts: list[int], placement: str) -> None:
    """Every rank is where it belongs, and knows where the others are."""
    where = place(counts, placement)
    nodes = [[r for r, n in enumerate(where) if n == node] for node in range(len(counts))]
    assert [row["hostname"] for row in rows] == [f"node{node}" for node in where]
    for row in rows:
        assert row["nodes"] == nodes
        assert row["right"]


@pytest.mark.parametrize(
    ("counts", "placement"),
    [([2, 2], "block"), ([2, 2], "cyclic"), ([3, 1], "cyclic"), ([1, 1, 2], "block")],
)
def test_ranks_are_placed_and_their_sums_are_right(
    cluster: VirtualCluster, counts: list[int], placement: str
) -> None:
    rows = results(start(cluster, counts, "report", placement=placement))
    check_report(rows, counts, placement)
    assert sum(row["between"] for row in rows) > 0


def test_nodes_send_what_statistics_say(cluster: VirtualCluster) -> None:
    names = ["node0", "node1"]
    before = [cluster.tx_nbytes(name) for name in names]
    rows = results(start(cluster, [2, 2], "traffic", 64 << 20))
    sent = [cluster.tx_nbytes(name) - count for name, count in zip(names, before, strict=True)]
    for name, nbytes in zip(names, sent, strict=True):
        counted = sum(row["nbytes"] for row in rows if row["hostname"] == name)
        assert counted >= 64 << 20  # two nodes send all of it once, in two phases of half
        assert nbytes == pytest.approx(counted, rel=0.03)
    assert all(row["right"] for row in rows)


def test_a_link_is_no_faster_than_its_rate(cluster: VirtualCluster) -> None:
    nbytes, slow, fast = 4 << 20, 40e6, 400e6
    seconds = {}
    for rate in (slow, fast):
        for name in ("node0", "node1"):
            cluster.set_rate(name, f"{rate:.0f}bit")
        rows = results(start(cluster, [1, 1], "timed", nbytes))
        seconds[rate] = max(row["seconds"] for row in rows)
    # Not to the bit: a bucket's worth goes at once, and it may be full on both sides of the link.
    assert seconds[slow] > 0.8 * nbytes * 8 / slow
    assert seconds[fast] < seconds[slow] / 2


def test_too_little_shared_memory_is_an_error_that_says_so(cluster: VirtualCluster) -> None:
    done = start(cluster, [1, 1, 1, 2], "squeeze", 8192, settings=MPI_WITHOUT_SHM)
    assert done.returncode != 0
    assert "SharedMemoryError" in done.stderr, done.stdout[-3000:] + done.stderr[-3000:]
    assert "bytes in /dev/shm and 8192 are free" in done.stderr


def test_a_job_leaves_nothing_on_its_nodes(cluster: VirtualCluster) -> None:
    def files() -> str:
        places = ["find", "/dev/shm", "/tmp", "-xdev", "-mindepth", "1"]
        listed = [
            cluster.run(places, node=node, capture_output=True, text=True, check=True).stdout
            for node in ("node0", "node1")
        ]
        return "".join(listed)

    before = files()
    results(start(cluster, [2, 2], "report"))
    assert files() == before


def test_intel_mpi_runs_on_virtual_nodes(cluster: VirtualCluster) -> None:
    given = os.environ.get("HIERRING_TEST_IMPI_PYTHON")
    python = Path(given) if given else ROOT / ".venv-impi" / "bin" / "python"
    if not python.exists():
        pytest.skip("Intel MPI is not installed: make .venv-impi, or set HIERRING_TEST_IMPI_PYTHON")
    program = ["hierring", "cluster", "run", "--ranks-per-node", "2,1", "--placement", "cyclic"]
    done = subprocess.run(
        [str(python), "-P", "-m", *program, "--", str(JOB), "report"],
        cwd=ROOT,
        timeout=120,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    check_report(results(done), [2, 1], "cyclic")
