"""`hierring topology --probe` on nodes whose links have known rates, or are cut."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hierring.launch.cluster import NodeSpec, VirtualCluster
from hierring.launch.cluster.tools import why_impossible
from hierring.launch.mpi import Launcher

WHY_NOT = why_impossible()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT)),
]
JOB = Path(__file__).with_name("probe_job.py")
FAST, SLOW = 0.05, 0.0125  # GB/s
LIMIT_S = 60


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VirtualCluster]:
    """Three nodes, the last one behind a slow link."""
    specs = [
        NodeSpec("node0", rate="400mbit"),
        NodeSpec("node1", rate="400mbit"),
        NodeSpec("node2", rate="100mbit"),
    ]
    with VirtualCluster(specs, share=[JOB.parent, tmp_path_factory.getbasetemp()]) as running:
        yield running


def test_rates_are_found_and_the_slow_node_is_named(cluster: VirtualCluster) -> None:
    program = [sys.executable, "-P", "-m", "hierring", "topology", "--probe", "--json"]
    command = cluster.mpiexec(Launcher.beside(), [2, 1, 1], "block", program)
    done = cluster.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    links = {tuple(link["nodes"]): link for link in found["probe"]["links"]}
    assert set(links) == {(0, 1), (0, 2), (1, 2)}
    for pair, link in links.items():
        rate = SLOW if 2 in pair else FAST
        # Above the rate is what a bucket lets through at once; below it, a busy machine.
        for key in ("forth", "back", "both"):
            assert 0.5 * rate < link[key] < 1.3 * rate, (pair, link)
        assert 0 < link["latency"] < 0.05
    assert all(step["bandwidth"] < 1.3 * SLOW for step in found["probe"]["ring"][1:])
    slow = [text for text in found["probe"]["slow"] if "link" in text]
    assert len(slow) == 2, slow
    assert all(" node 2 " in text for text in slow)
    shared = [row["shared"] is not None for row in found["probe"]["memory"]]
    assert shared == [True, False, False]


@pytest.mark.parametrize(
    ("when", "complaint"),
    [
        ("before", "waiting for rank 1 on node1 (node 1)"),
        ("meanwhile", "between node 0 (node0) and node 1 (node1) has carried nothing"),
    ],
)
def test_a_cut_link_is_named(
    cluster: VirtualCluster, tmp_path: Path, when: str, complaint: str
) -> None:
    go, output = tmp_path / "go", tmp_path / "output"
    program = [sys.executable, "-P", JOB, when, go]
    command = cluster.mpiexec(Launcher.beside(), 1, "block", program)
    with output.open("wb") as out:
        job = cluster.popen(command, stdout=out, stderr=subprocess.STDOUT)
    try:
        wait_for(output, "READY", job, 3 if when == "before" else 2)
        cluster.cut("node1")
        go.touch()
        began = time.monotonic()
        wait_for(output, complaint, job)
        assert time.monotonic() - began < 15
    finally:
        cluster.restore("node1")  # or else mpiexec could not end what runs there
        with contextlib.suppress(subprocess.TimeoutExpired):
            job.wait(20)
        if job.poll() is None:
            job.kill()
            job.wait()
    assert job.returncode != 0


def wait_for(output: Path, word: str, job: subprocess.Popen[bytes], times: int = 1) -> str:
    """What has been printed, once the word is in it so many times."""
    until = time.monotonic() + LIMIT_S
    while (text := output.read_text(errors="replace")).count(word) < times:
        assert time.monotonic() < until, text
        assert job.poll() is None, text
        time.sleep(0.02)
    return text
