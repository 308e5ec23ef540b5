"""What happens to /dev/shm on real clusters: others' files in it, cleaners, and too little room."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from hierring._testing.cluster_job import MPI_WITHOUT_SHM, ClusterJob
from hierring.launch.cluster import NodeSpec, VirtualCluster
from hierring.launch.cluster.tools import why_impossible
from hierring.launch.mpi import Launcher

WHY_NOT = why_impossible()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT)),
]
JOB = Path(__file__).with_name("case_job.py")
NODES = ("node0", "node1", "tiny")
# MPICH would end the job in MPI_Init where it may not read the memory of another process.
MPI_WITHOUT_PTRACE = {
    "MPIR_CVAR_CH4_CMA_ENABLE": "0",
    "UCX_TLS": "^cma",
    "OMPI_MCA_btl_sm_single_copy_mechanism": "none",
}
USER = "65534"
# What the remote shell needs to enter a node. The ranks keep the right to read this Python alone,
# which may lie in root's home, and none to write.
ENTER = "+sys_admin,+sys_ptrace,+sys_chroot,+dac_read_search"
READ = "-all,+dac_read_search"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[VirtualCluster]:
    specs = [NodeSpec("node0"), NodeSpec("node1"), NodeSpec("tiny", shm_nbytes=64 << 20)]
    with VirtualCluster(specs, share=[JOB, folder]) as made:
        yield made


def on(
    cluster: VirtualCluster, counts: list[int], *arguments: object, wrap: Sequence[str] = ()
) -> list[str]:
    """The command that runs the job on so many ranks of each node."""
    program = [*wrap, sys.executable, "-P", str(JOB), *map(str, arguments)]
    return cluster.mpiexec(Launcher.beside(), counts, "block", program)


def everywhere(cluster: VirtualCluster, script: str) -> str:
    """Run a shell script on all nodes; what it prints."""
    found = ""
    for name in NODES:
        done = cluster.run(["sh", "-c", script], node=name, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        found += done.stdout
    return found


def names(cluster: VirtualCluster) -> str:
    return everywhere(cluster, "find /dev/shm -name 'hierring-*'")


def test_names_that_vanish_during_a_run_and_ctrl_c(cluster: VirtualCluster, folder: Path) -> None:
    """systemd's RemoveIPC and site epilogs delete all that a user has in /dev/shm."""
    go = folder / "swept"
    with ClusterJob(cluster, on(cluster, [2, 2], "swept", go)) as job:
        job.wait_for("READY", 4)
        assert names(cluster) == ""
        everywhere(cluster, "find /dev/shm -mindepth 1 -delete")
        go.touch()
        job.wait_for("GOING ON", 4)
        assert job.output.count('"right": true') == 4, job.said
        cluster.send_signal(job.process, signal.SIGINT)
        assert job.wait(20) != 0
    until = time.monotonic() + 10
    while "python" in everywhere(cluster, "cat /proc/[0-9]*/comm 2>/dev/null || true"):
        assert time.monotonic() < until, "ranks live on"
        time.sleep(0.05)
    assert names(cluster) == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="jobs of two users need root")
def test_two_jobs_of_two_users_at_once(cluster: VirtualCluster, folder: Path) -> None:
    """On the same nodes, among what killed jobs of both and strangers have left behind."""
    stale, users, foreign = (f"/dev/shm/hierring-{digit * 16}" for digit in "abc")
    make = f"touch {stale} {users}; chmod 0 {stale}; chown {USER} {users}; mkfifo {foreign}"
    everywhere(cluster, make)
    go = folder / "together"
    user = ("setpriv", "--reuid", USER, "--regid", USER, "--clear-groups")
    as_user = [*user, "--inh-caps", ENTER, "--ambient-caps", ENTER]
    wrap = ("setpriv", "--inh-caps", READ, "--ambient-caps", READ)
    theirs = [*as_user, *on(cluster, [2, 2], "together", go, wrap=wrap)]
    with (
        ClusterJob(cluster, on(cluster, [2, 2], "together", go)) as job,
        ClusterJob(cluster, theirs, {"HOME": "/"}) as other,
    ):
        job.wait_for("READY", 4)
        other.wait_for("READY", 4)
        go.touch()
        for running, uid in ((job, 0), (other, int(USER))):
            rows = running.results()
            assert [row["uid"] for row in rows] == [uid] * 4
            assert [row["nodes"] for row in rows] == [[[0, 1], [2, 3]]] * 4
            assert [row["modes"] for row in rows] == [["0o600"]] * 4
            assert all(row["right"] for row in rows)
    left = names(cluster).split()
    # Each has removed its own user's files on its nodes, and nothing else.
    assert sorted(left) == sorted([stale, users, *[foreign] * len(NODES)])
    everywhere(cluster, f"rm -f {stale} {users} {foreign}")


def test_ranks_in_user_namespaces_share_memory(cluster: VirtualCluster) -> None:
    """They may not open each other's /proc/PID/fd, nor read each other's memory."""
    before = names(cluster)
    command = on(cluster, [2, 2], "report", wrap=("unshare", "-Ur"))
    with ClusterJob(cluster, command, MPI_WITHOUT_PTRACE) as job:
        for row in job.results():
            assert row["right"]
            assert row["nodes"] == [[0, 1], [2, 3]]
            assert row["modes"] == ["0o600"]
    assert names(cluster) == before


def test_communicators_of_other_settings_and_ranks(cluster: VirtualCluster) -> None:
    """Shared memory switched off, a node that cannot be, one rank of each node, and NaNs before."""
    with ClusterJob(cluster, on(cluster, [3, 2], "variants")) as job:
        rows = job.results()
    for row in rows:
        assert row["nodes"] == [[0, 1, 2], [3, 4]]
        assert row["alone"] == [[0], [1], [2], [3], [4]]
        assert row["alone_right"]
        assert row["alone_modes"] == row["modes"] == ["0o600"]  # no second segment
        assert "ranks 0 and 3 are put on one simulated node but cannot share memory" in row["no"]
        assert row["still_right"]
        assert row["clean"]
    assert [row["sum_of_leaders"] for row in rows] == [1 + 4, 2 + 5, 3, 1 + 4, 2 + 5]
    assert [len(row["nodes_of_leaders"]) for row in rows] == [2, 2, 1, 2, 2]


def test_one_node_with_little_room_makes_all_cells_smaller(cluster: VirtualCluster) -> None:
    """Pieces have the same borders on all nodes, so the others follow."""
    free = 600_000
    with ClusterJob(cluster, on(cluster, [2, 1, 2], "squeezed", free), MPI_WITHOUT_SHM) as job:
        rows = job.results()
    assert all(row["right"] for row in rows)
    assert rows[0]["nodes"] == [[0, 1], [2], [3, 4]]
    assert 0 < rows[3]["segment"] * 2 <= free
    assert rows[0]["segment"] == rows[3]["segment"]
