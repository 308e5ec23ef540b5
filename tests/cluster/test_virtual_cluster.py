"""The nodes of a virtual cluster: what each has to itself, and what they share."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from hierring._testing.namespaces import namespaces, started
from hierring.errors import ConfigurationError, HierringError
from hierring.launch.cluster import NodeSpec, VirtualCluster
from hierring.launch.cluster.tools import search_path, why_impossible

WHY_NOT = why_impossible()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT)),
]

LOOK = """
import json, os, shutil, socket
print(json.dumps({
    "hostname": socket.gethostname(),
    "own_address": socket.gethostbyname(socket.gethostname()),
    "node1": socket.gethostbyname("node1"),
    "devices": sorted(os.listdir("/sys/class/net")),
    "shm": shutil.disk_usage("/dev/shm").total,
    "tmp": sorted(os.listdir("/tmp")),
    "processes": sum(name.isdigit() for name in os.listdir("/proc")),
    "cwd": os.getcwd(),
    "variable": os.environ.get("HIERRING_TEST_VARIABLE"),
    "shared": os.path.exists(os.environ["HIERRING_TEST_SHARED"]),
    "ipc": os.readlink("/proc/self/ns/ipc"),
}))
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shared")
    (folder / "file").write_text("seen")
    return folder


@pytest.fixture(scope="module")
def cluster(shared: Path) -> Iterator[VirtualCluster]:
    specs = [
        NodeSpec("node0", shm_nbytes=8 << 20),
        NodeSpec("node1", hostname="gpu.rack1"),
        NodeSpec("node2", hostname="gpu.rack2"),
    ]
    with VirtualCluster(specs, shm_nbytes=64 << 20, share=[shared]) as made:
        yield made


def look(cluster: VirtualCluster, node: str | None, shared: Path) -> dict[str, Any]:
    environment = {
        **os.environ,
        "HIERRING_TEST_VARIABLE": "a b",
        "HIERRING_TEST_SHARED": str(shared / "file"),
    }
    done = cluster.run(
        [sys.executable, "-I", "-S", "-c", LOOK],
        node=node,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


def test_each_node_is_a_machine_of_its_own(cluster: VirtualCluster, shared: Path) -> None:
    seen = [look(cluster, node.name, shared) for node in cluster.nodes]
    assert [row["hostname"] for row in seen] == ["node0", "gpu.rack1", "gpu.rack2"]
    assert [row["own_address"] for row in seen] == ["10.77.0.10", "10.77.0.11", "10.77.0.12"]
    assert {row["node1"] for row in seen} == {"10.77.0.11"}
    assert [row["shm"] >> 20 for row in seen] == [8, 64, 64]
    assert len({row["ipc"] for row in seen}) == 3
    for row in seen:
        assert row["devices"] == ["eth0", "lo"]
        assert row["processes"] <= 3  # its process 1 and the one that looks


def test_directory_environment_and_shared_paths_are_the_callers(
    cluster: VirtualCluster, shared: Path
) -> None:
    for node in (None, "node2"):
        row = look(cluster, node, shared)
        assert row["cwd"] == os.getcwd()
        assert row["variable"] == "a b"
        assert row["shared"]


def test_memory_and_files_of_a_node_are_not_seen_elsewhere(cluster: VirtualCluster) -> None:
    assert cluster.run(["touch", "/dev/shm/mine", "/tmp/mine"], node=0).returncode == 0
    places = ["ls", "/dev/shm/mine", "/tmp/mine"]
    assert cluster.run(places, node=0, capture_output=True).returncode == 0
    for node in (1, None):
        done = cluster.run(places, node=node, capture_output=True, text=True)
        assert done.stdout == ""
    assert not Path("/dev/shm/mine").exists()
    assert not Path("/tmp/mine").exists()


def test_the_remote_shell_runs_commands_as_ssh_does(cluster: VirtualCluster) -> None:
    shell = "/tmp/hierring-cluster/enter"
    done = cluster.run(
        [shell, "-x", "-q", "node1", "hostname;", "echo", "'a  b'"], capture_output=True, text=True
    )
    assert done.stdout == "gpu.rack1\na  b\n"
    assert cluster.run([shell, "node1", "exit", "7"]).returncode == 7
    lost = cluster.run([shell, "node9", "true"], capture_output=True, text=True)
    assert (lost.returncode, "no node node9" in lost.stderr) == (255, True)


def test_an_unknown_node_is_refused_by_name(cluster: VirtualCluster) -> None:
    with pytest.raises(ConfigurationError, match="node0, node1, node2"):
        cluster.command(["true"], node="node7")


def test_what_a_tool_complains_about_is_the_error(
    cluster: VirtualCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hierring.launch.cluster.virtual.rate_bits", lambda text: -1)
    with pytest.raises(HierringError, match=r"tc qdisc .* failed on node0: .*rate"):
        cluster.set_rate("node0", "1gbit")


def test_a_rate_holds_both_ways(cluster: VirtualCluster) -> None:
    cluster.set_rate("node1", "80mbit")
    for node, device in (("node1", "eth0"), (None, "v1")):
        done = cluster.run(
            ["tc", "-j", "qdisc", "show", "dev", device],
            node=node,
            env={**os.environ, "PATH": search_path()},
            capture_output=True,
            text=True,
            check=True,
        )
        (shape,) = json.loads(done.stdout)
        assert (shape["kind"], shape["options"]["rate"]) == ("tbf", 10_000_000)  # bytes a second


def test_exit_codes_and_signals_cross_the_border(cluster: VirtualCluster) -> None:
    assert cluster.run(["sh", "-c", "exit 9"], node=1).returncode == 9
    trap = "trap 'exit 5' TERM; echo up; while :; do sleep 0.05; done"
    with started(cluster.command(["sh", "-c", trap], node=1)) as (process, line):
        assert line == "up\n"
        cluster.send_signal(process, signal.SIGTERM)
        assert process.wait(timeout=10) == 5


def test_killing_the_carrier_kills_what_it_carried(cluster: VirtualCluster) -> None:
    with started(cluster.command(["sh", "-c", "echo up; exec sleep 600"])) as (process, _):
        inside = psutil.Process(process.pid).children()
        assert inside
        process.kill()
        process.wait(timeout=10)
        assert psutil.wait_procs(inside, timeout=10)[1] == []


def reaches(cluster: VirtualCluster, port: int) -> bool:
    """Try for a second to reach a server on node0 from node2."""
    text = f"import socket; socket.create_connection(('node0', {port}), 1).recv(1)"
    program = [sys.executable, "-I", "-S", "-c", text]
    return cluster.run(program, node="node2", capture_output=True).returncode == 0


def test_a_link_is_cut_and_restored(cluster: VirtualCluster) -> None:
    text = """
import socket
server = socket.create_server(("", 7007))
print("up", flush=True)
while True:
    server.accept()[0].close()
"""
    program = [sys.executable, "-I", "-S", "-c", text]
    with started(cluster.command(program, node="node0")):
        before = cluster.tx_nbytes("node2")
        assert reaches(cluster, 7007)
        assert cluster.tx_nbytes("node2") > before
        cluster.cut("node2")
        assert not reaches(cluster, 7007)
        cluster.restore("node2")
        deadline = time.monotonic() + 20  # the bridge takes its port up again
        while not reaches(cluster, 7007):
            assert time.monotonic() < deadline


def test_two_clusters_at_once_do_not_meet(cluster: VirtualCluster) -> None:
    with VirtualCluster(1) as other:
        assert other.nodes[0].address == cluster.nodes[0].address
        assert not namespaces(other.pid) & namespaces(cluster.pid)
        other.run(["touch", "/tmp/theirs"], node=0, check=True)
        done = cluster.run(["ls", "/tmp"], node=0, capture_output=True, text=True)
        assert "theirs" not in done.stdout
    assert cluster.run(["true"], node=0).returncode == 0


def test_a_missing_program_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name, path: None if name == "tc" else name)
    with pytest.raises(HierringError, match="needs tc: install iproute2"):
        VirtualCluster(1)
