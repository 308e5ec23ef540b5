"""The link probe: every pair and node is there, figures are possible, and a dead link is named."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import combinations

import numpy as np
import pytest
from mpi4py import MPI

import hierring as hr
from hierring._testing import Checks, expected_nodes
from hierring.communicator import link_probe, probe_links
from hierring.communicator.link_prober import Prober
from hierring.config import Config
from hierring.internode.progress import Task

RANK, SIZE = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
NODES = expected_nodes(SIZE)
NUM_NODES = len(NODES)
LEADERS = [ranks[0] for ranks in NODES]
PAIRS = list(combinations(range(NUM_NODES), 2))


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """The figures do not matter here."""
    monkeypatch.setattr("hierring.communicator.link_prober.PART_S", 0.01)
    monkeypatch.setattr(link_probe, "COPY_BYTES", 2**20)
    monkeypatch.setattr(link_probe, "SHARED_BYTES", 2**20)


@pytest.fixture
def comm() -> Iterator[hr.Communicator]:
    handle = hr.Communicator(MPI.COMM_WORLD, config=Config.from_env(timeout_s=30))
    yield handle
    handle.close()


def test_every_pair_is_measured(comm: hr.Communicator) -> None:
    x = np.full(5000, RANK, "int64")
    comm.allreduce(x)
    before = comm.statistics()
    report = probe_links(comm)
    after = comm.statistics()
    everyone = MPI.COMM_WORLD.allgather(report)
    order = comm.get_topology().leader_order
    comm.allreduce(x)
    with Checks() as check:
        check.true(all(other == report for other in everyone), "the same on all ranks")
        check.true([link.nodes for link in report.links] == PAIRS, f"{report.links}")
        for link in report.links:
            rates = (link.latency, link.forth, link.back, link.both)
            check.true(all(0 < rate < 1e4 for rate in rates), f"{link}")
            check.true(link.latency < 1, f"{link}")
        ring = [link.nodes for link in report.ring]
        wanted = [(order[i], order[(i + 1) % NUM_NODES]) for i in range(NUM_NODES)]
        check.true(ring == (wanted if NUM_NODES > 1 else []), f"{ring}")
        check.true([row.node for row in report.memory] == list(range(NUM_NODES)), f"{report}")
        for row, ranks in zip(report.memory, NODES, strict=True):
            check.true((row.shared is None) == (len(ranks) == 1), f"{row}")
            check.true(0 < row.memcpy < 1e4, f"{row}")
        json.dumps(report.to_dict(), allow_nan=False)
        # The table of results is payload; the megabytes of the probe are not.
        sent = after.bytes_between_nodes - before.bytes_between_nodes
        check.true(sent < 2**16, f"{sent} bytes are counted as payload")
        total = np.full(5000, SIZE * sum(range(SIZE)), "int64")
        check.equal(x, total, "collectives work before and afterwards")


@pytest.mark.world(*range(3, 65))
def test_many_nodes(comm: hr.Communicator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs side by side; and with still more nodes the neighbours in the ring alone."""
    monkeypatch.setattr(link_probe, "ONE_BY_ONE", 0)
    at_once = probe_links(comm)
    monkeypatch.setattr(link_probe, "ALL_PAIRS", 0)
    neighbours = probe_links(comm)
    order = comm.get_topology().leader_order
    steps = zip(order, (*order[1:], order[0]), strict=True)
    wanted = {(min(a, b), max(a, b)) for a, b in steps if a != b}
    with Checks() as check:
        check.true([link.nodes for link in at_once.links] == PAIRS, f"{at_once.links}")
        check.true({link.nodes for link in neighbours.links} == wanted, f"{neighbours.links}")
        check.true(len(neighbours.ring) == len(at_once.ring), "the ring is measured as ever")


def test_a_dead_link_is_named(comm: hr.Communicator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last node's leader is there and says nothing: as if its cable were cut."""
    if NUM_NODES == 1:
        assert probe_links(comm).links == ()
        return

    def silence() -> Task:
        yield lambda: False

    if LEADERS[-1] == RANK:
        monkeypatch.setattr(
            Prober, "_latency", lambda prober, peer, first: prober._drive([silence()])
        )
    begin = time.monotonic()
    with Checks() as check:
        error = check.raises(
            hr.CollectiveTimeoutError, lambda: probe_links(comm, stall_s=0.4), "the link is dead"
        )
        took = time.monotonic() - begin
        check.true(took < 8, f"took {took:.1f} s")
        text = str(error)
        check.true(f"node {NUM_NODES - 1} (" in text and "carried nothing" in text, text)
        comm.rebuild()
        monkeypatch.undo()
        x = np.ones(3)
        comm.allreduce(x)
        check.equal(x, np.full(3, float(SIZE)), "after rebuild")
