"""Which ranks are on which node, where names, launchers, MPI and networks say something else."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from hierring._testing.cluster_job import MPI_WITHOUT_SHM, ClusterJob
from hierring.launch.cluster import NodeSpec, VirtualCluster
from hierring.launch.cluster.placement import mpiexec_command
from hierring.launch.cluster.tools import why_impossible
from hierring.launch.cluster.virtual import SHELL
from hierring.launch.mpi import Launcher

WHY_NOT = why_impossible()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT)),
]
JOB = Path(__file__).with_name("case_job.py")
BOX = Path(__file__).with_name("in_box.py")
# Names that differ only after the dot, and one that two machines have.
NAMES = ("gpu.rack1", "gpu.rack2", "gpu.rack1")
INIT_S = 4
LIMIT_S = 15  # for the whole of a job that ends by that deadline


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[VirtualCluster]:
    misnamed = [NodeSpec(f"alias{index}", name) for index, name in enumerate(NAMES)]
    specs = [NodeSpec("node0"), NodeSpec("node1"), *misnamed]
    with VirtualCluster(specs, share=[JOB, BOX, folder]) as made:
        yield made


def on(
    nodes: Sequence[str], counts: Sequence[int], *arguments: object, wrap: Sequence[str] = ()
) -> list[str]:
    """The command that runs the job on so many ranks of these nodes."""
    program = [*wrap, sys.executable, "-P", str(JOB), *map(str, arguments)]
    return mpiexec_command(Launcher.beside(), nodes, counts, "block", program, SHELL)


def test_containers_of_one_machine(cluster: VirtualCluster) -> None:
    """MPI has its ranks all on one node (Open MPI) or each on its own (MPICH): neither is true."""
    make = "mkdir -p /tmp/box/$0 && mount -t tmpfs -o size=64m tmpfs /tmp/box/$0"
    for letter in "ABC":
        cluster.run(["sh", "-c", make, letter], node="node0", check=True)
    wrap = (sys.executable, "-P", str(BOX), "/tmp/box", "ABAC", ",".join(NAMES))
    command = on(["node0"], [4], "report", wrap=wrap)
    with ClusterJob(cluster, command, MPI_WITHOUT_SHM) as job:
        rows = job.results()
    for row in rows:
        assert row["right"]
        assert row["nodes"] == [[0, 2], [1], [3]]
        assert row["hosts"] == list(NAMES)
        assert any("share no memory" in text for text in row["warnings"])
    # Not what a rank's node begins with, so the test has its point.
    assert [row["mpi"] for row in rows] != [0, 1, 0, 3]


def test_nodes_with_misleading_names(cluster: VirtualCluster) -> None:
    """Open MPI's launcher takes them for fewer, and gives up: then no rank gets as far as us."""
    command = on(["alias0", "alias1", "alias2"], [2, 1, 1], "report")
    with ClusterJob(cluster, command) as job:
        if Launcher.beside().vendor == "openmpi" and job.wait(30) != 0:
            assert "RESULT" not in job.output
            assert "MPI_Init" in job.errors
            return
        for row in job.results():
            assert row["right"]
            assert row["nodes"] == [[0, 1], [2], [3]]
            assert row["hosts"] == list(NAMES)


def test_a_bridge_with_one_address_on_all_nodes(cluster: VirtualCluster) -> None:
    """As Docker makes it. Open MPI sends to it if it is not told better, and reaches itself."""
    for node in ("node0", "node1"):
        for command in (
            "ip link add docker0 type bridge",
            "ip address add 172.17.0.1/16 dev docker0",
            "ip link set docker0 up",
        ):
            cluster.run(command.split(), node=node, check=True)
    command = on(["node0", "node1"], [2, 1], "fresh")
    if "btl_tcp_if_include" in command:
        at = command.index("btl_tcp_if_include")
        del command[at - 1 : at + 2]
    limits = {"HIERRING_INIT_TIMEOUT_S": str(INIT_S), "OMPI_MCA_pml": "ob1"}
    with ClusterJob(cluster, command, limits) as job:
        if Launcher.beside().vendor == "openmpi" and job.wait(LIMIT_S) != 0:
            assert "RESULT" not in job.output
            by_us = "name the right one by OMPI_MCA_btl_tcp_if_include=eth0" in job.errors
            assert by_us or "172.17.0.1" in job.errors, job.said
            return
        for row in job.results():
            assert (row["right"], row["nodes"]) == (True, [[0, 1], [2]])


@pytest.mark.parametrize(
    ("when", "named"),
    [
        ("before", "OMPI_MCA_btl_tcp_if_include=eth0 (Open MPI), FI_TCP_IFACE=eth0 and"),
        ("after", "waiting for rank 1 on node1"),
    ],
    ids=["before", "after"],
)
def test_a_link_that_is_lost(cluster: VirtualCluster, folder: Path, when: str, named: str) -> None:
    """Before or after the first contact: an error in time that says where to look."""
    cut = folder / when
    limits = {"HIERRING_INIT_TIMEOUT_S": str(INIT_S)} if when == "before" else {}
    command = on(["node0", "node1"], [1, 1], "parted", when, cut)
    with ClusterJob(cluster, command, limits) as job:
        job.wait_for("READY", 2)
        cluster.cut("node1")
        try:
            cut.touch()
            job.wait_for("RESULT", 1, LIMIT_S)  # rank 0's: the other is not heard
        finally:
            cluster.restore("node1")  # or else mpiexec could not end what runs there
        assert job.wait(20) != 0
        row = job.told()[0]
    assert (row["rank"], row["right"]) == (0, True)
    assert named in row["error"]
