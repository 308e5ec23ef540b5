"""`hierring doctor` on virtual nodes: their memory, names and networks, and where it gets lost."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from hierring.launch.cluster import NodeSpec, VirtualCluster
from hierring.launch.cluster.tools import why_impossible
from hierring.launch.mpi import Launcher

NO_CLUSTER = why_impossible()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(NO_CLUSTER is not None, reason=str(NO_CLUSTER)),
]
DOCTOR = (sys.executable, "-P", "-m", "hierring", "doctor", "--json", "--timeout", "10")


def of_topic(text: str, topic: str) -> list[dict[str, Any]]:
    return [finding for finding in json.loads(text)["findings"] if finding["topic"] == topic]


@pytest.fixture(scope="module")
def cluster() -> Iterator[VirtualCluster]:
    """Three nodes, two with one hostname, and a bridge that has one address on all of them."""
    specs = [NodeSpec("node0", shm_nbytes=64 << 20), NodeSpec("node1"), NodeSpec("node2", "node1")]
    with VirtualCluster(specs) as made:
        for node in made.nodes:
            for command in (
                "ip link add docker0 type bridge",
                "ip address add 172.17.0.1/16 dev docker0",
                "ip link set docker0 up",
            ):
                made.run(command.split(), node=node.name, check=True)
        yield made


def on_cluster(cluster: VirtualCluster, counts: list[int]) -> subprocess.CompletedProcess[str]:
    command = cluster.mpiexec(Launcher.beside(), counts, "block", DOCTOR)
    done: subprocess.CompletedProcess[str] = cluster.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120
    )
    return done


def test_nodes_of_a_cluster(cluster: VirtualCluster) -> None:
    done = on_cluster(cluster, [2, 1])
    assert done.returncode == 0, done.stdout + done.stderr
    values = json.loads(done.stdout)
    assert values["hostnames"] == ["node0", "node0", "node1"]
    whats = {one["what"]: one["where"] for one in values["findings"]}
    (memory,) = [what for what in whats if what.startswith("/dev/shm has 64.0 MiB")]
    assert whats[memory] == "ranks 0-1 on node0"
    for address, where in (("10.77.0.10", "ranks 0-1 on node0"), ("10.77.0.11", "rank 2 on node1")):
        (network,) = [w for w in whats if w.startswith("interfaces") and address in w]
        assert whats[network] == where
    if Launcher.beside().vendor != "openmpi":  # it is given the right interface
        assert "interface docker0 has the address 172.17.0.1 on 2 nodes" in whats


def test_two_nodes_with_one_hostname(cluster: VirtualCluster) -> None:
    """Open MPI takes them for one node and never gets through: then that is what is reported."""
    done = on_cluster(cluster, [1, 1, 1])
    if Launcher.beside().vendor == "openmpi" and done.returncode != 0:
        (error,) = of_topic(done.stdout, "ranks")
        assert error["level"] == "error"
        assert "hostnames" in error["remedy"]
    else:
        assert done.returncode == 0, done.stdout + done.stderr
        (warning,) = of_topic(done.stdout, "hostnames")
        assert "one hostname, node1" in warning["what"]
        assert warning["ranks"] == [1, 2]
