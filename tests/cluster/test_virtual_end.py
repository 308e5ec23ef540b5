"""How a virtual cluster ends: nothing is left, whoever ends it and however."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from hierring._testing.namespaces import held, outside, started, still_used
from hierring.launch.cluster import VirtualCluster
from hierring.launch.cluster.tools import why_impossible

WHY_NOT = why_impossible()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT)),
]

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


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as until:
        yield until


def test_close_leaves_nothing_and_may_be_repeated(stack: contextlib.ExitStack) -> None:
    before = outside()
    start = time.monotonic()
    cluster = VirtualCluster(4)
    took_s = time.monotonic() - start
    names = held([cluster.pid, *(node.pid for node in cluster.nodes)], stack)
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
def test_the_supervisors_end_is_the_clusters_end(
    number: signal.Signals, stack: contextlib.ExitStack
) -> None:
    before = outside()
    with started([sys.executable, "-P", "-c", SUPERVISOR]) as (supervisor, line):
        pids = json.loads(line)
        names = held(pids, stack)
        family = psutil.Process(supervisor.pid).children(recursive=True)
        assert len(names) == 3 * 3
        assert {process.pid for process in family} > set(pids)
        supervisor.send_signal(number)
        supervisor.wait(timeout=20)
        assert psutil.wait_procs(family, timeout=20)[1] == []
    assert still_used(names) == set()
    assert outside() == before


def test_an_exception_in_the_supervisor_ends_the_cluster(stack: contextlib.ExitStack) -> None:
    with pytest.raises(RuntimeError, match="mine"), VirtualCluster(1) as cluster:  # noqa: PT012
        names = held([cluster.pid], stack)
        raise RuntimeError("mine")
    assert still_used(names) == set()
