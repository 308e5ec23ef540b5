"""The nodes of a virtual cluster: what each has to itself, what they share, and how they end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from hierring.errors import ConfigurationError, HierringError
from hierring.launch.cluster import NodeSpec, VirtualCluster
from hierring.launch.cluster.tools import why_impossible

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
# Prints who it is, then holds a cluster with work in the head and in a node, until it is killed.
SUPERVISOR = """
import json, subprocess, sys
from hierring.launch.cluster import VirtualCluster
cluster = VirtualCluster(2)
work = [sys.executable, "-I", "-S", "-c", "import time; print('up', flush=True); time.sleep(600)"]
jobs = [cluster.popen(work, node=node, stdout=subprocess.PIPE) for node in (None, "node1")]
for job in jobs:
    job.stdout.readline()
print(json.dumps([cluster.pid, *(node.pid for node in cluster.nodes)]), flush=True)
jobs[0].wait()
"""


@contextlib.contextmanager
def started(command: list[str]) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process and the first line it printed; it is killed in the end, if it still runs."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline()
        finally:
            process.kill()


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


def namespaces(pid: int) -> set[str]:
    """The namespaces that a process is in and this one is not."""
    kinds = ("net", "mnt", "pid")
    inside = {os.readlink(f"/proc/{pid}/ns/{kind}") for kind in kinds}
    return inside - {os.readlink(f"/proc/self/ns/{kind}") for kind in kinds}


def still_used(names: set[str]) -> set[str]:
    """Those of the namespaces that any process of this machine is in."""
    used = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for kind in ("net", "mnt", "pid"):
            try:
                used.add(os.readlink(f"/proc/{pid}/ns/{kind}"))
            except OSError:  # it has ended, or belongs to somebody else
                continue
    return used & names


def outside() -> tuple[set[str], list[str]]:
    """What of this machine a cluster could have changed: mounts and network devices."""
    mounts = {
        line.split(" ", 1)[1] for line in Path("/proc/self/mountinfo").read_text().splitlines()
    }
    return mounts, sorted(os.listdir("/sys/class/net"))


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


def test_a_crashed_node_takes_its_processes_along_and_no_others() -> None:
    work = ["sh", "-c", "echo up; exec sleep 600"]
    with VirtualCluster(2) as cluster, contextlib.ExitStack() as stack:
        jobs = [
            stack.enter_context(started(cluster.command(work, node=node)))[0] for node in (0, 1)
        ]
        cluster.kill_node("node1")
        assert jobs[1].wait(timeout=10) == -signal.SIGKILL
        assert jobs[0].poll() is None
        assert cluster.run(["true"], node=1, capture_output=True).returncode != 0
        cluster.close()
        assert jobs[0].wait(timeout=10) == -signal.SIGKILL


def test_two_clusters_at_once_do_not_meet(cluster: VirtualCluster) -> None:
    with VirtualCluster(1) as other:
        assert other.nodes[0].address == cluster.nodes[0].address
        assert not namespaces(other.pid) & namespaces(cluster.pid)
        other.run(["touch", "/tmp/theirs"], node=0, check=True)
        done = cluster.run(["ls", "/tmp"], node=0, capture_output=True, text=True)
        assert "theirs" not in done.stdout
    assert cluster.run(["true"], node=0).returncode == 0


def test_close_leaves_nothing_and_may_be_repeated() -> None:
    before = outside()
    start = time.monotonic()
    cluster = VirtualCluster(4)
    took_s = time.monotonic() - start
    names = namespaces(cluster.pid).union(*(namespaces(node.pid) for node in cluster.nodes))
    assert len(names) == 3 * 5
    with started(cluster.command(["sh", "-c", "echo up; exec sleep 600"], node=3)) as (job, _):
        assert outside() == before  # all mounts and links are inside
        cluster.close()
        cluster.close()
        assert job.wait(timeout=10) == -signal.SIGKILL
    assert still_used(names) == set()
    assert outside() == before
    assert took_s < 10, "a bring-up takes a third of a second on an idle machine"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_supervisors_end_is_the_clusters_end(number: signal.Signals) -> None:
    before = outside()
    with started([sys.executable, "-P", "-c", SUPERVISOR]) as (supervisor, line):
        pids = json.loads(line)
        names = set[str]().union(*map(namespaces, pids))
        family = psutil.Process(supervisor.pid).children(recursive=True)
        assert len(names) == 3 * 3
        assert {process.pid for process in family} > set(pids)
        supervisor.send_signal(number)
        supervisor.wait(timeout=20)
        assert psutil.wait_procs(family, timeout=20)[1] == []
    assert still_used(names) == set()
    assert outside() == before


def test_an_exception_in_the_supervisor_ends_the_cluster() -> None:
    with pytest.raises(RuntimeError, match="mine"), VirtualCluster(1) as cluster:  # noqa: PT012
        names = namespaces(cluster.pid)
        raise RuntimeError("mine")
    assert still_used(names) == set()


def test_a_missing_program_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name, path: None if name == "tc" else name)
    with pytest.raises(HierringError, match="needs tc: install iproute2"):
        VirtualCluster(1)
