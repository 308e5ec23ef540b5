"""A job on virtual nodes, every rank of it: `virtual_job.py MODE [NUMBER]`.

Each rank prints one line of JSON after the word RESULT.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sys
import time
from types import FrameType

import numpy as np

import hierring as hr


def tell(**values: object) -> None:
    """Print in one write, since other ranks share the pipe."""
    os.write(1, f"RESULT {json.dumps({'rank': hr.rank(), **values})}\n".encode())


def report() -> None:
    """Show where the ranks are, and that sums are right."""
    size, rank = hr.size(), hr.rank()
    right = True
    for count in (1, 5, 1003, 300_001):
        x = np.arange(count, dtype=np.int64) + 1000 * rank
        hr.allreduce(x)
        expected = np.arange(count, dtype=np.int64) * size + 1000 * size * (size - 1) // 2
        right = right and bool((x == expected).all())
    topology = hr.get_topology()
    tell(
        hostname=socket.gethostname(),
        nodes=[list(node.ranks) for node in topology.nodes],
        right=right,
        between=hr.statistics().bytes_between_nodes,
    )


def traffic(nbytes: int) -> None:
    """Move so many bytes, and say what that cost between the nodes."""
    x = np.ones(nbytes // 8)
    hr.allreduce(x)
    statistics = hr.statistics()
    tell(
        right=bool((x == hr.size()).all()),
        nbytes=statistics.bytes_between_nodes + statistics.header_bytes,
        hostname=socket.gethostname(),
    )


def timed(nbytes: int) -> None:
    """Time one all-reduce, after one that made the connections."""
    x = np.ones(nbytes // 8)
    hr.allreduce(x[:1000])
    start = time.perf_counter()
    hr.allreduce(x)
    tell(seconds=time.perf_counter() - start)


def loop() -> None:
    """Work until all agree that a rank was asked to end, then end well; Ctrl-C is an error."""
    asked = np.zeros(1)

    def ask(number: int, frame: FrameType | None) -> None:
        asked[0] = 1

    signal.signal(signal.SIGTERM, ask)
    total = np.zeros(1)
    while not total[0]:
        hr.allreduce(asked, out=total, op="max")
        if not total[0]:
            print("LOOPING", flush=True)
            time.sleep(0.01)
    tell(ended="well")


def leave(code: int) -> None:
    """End with an exit code on one rank alone."""
    hr.barrier()
    sys.exit(code if hr.rank() == 1 else 0)


def squeeze(free_nbytes: int) -> None:
    """Leave so little of /dev/shm on the node called tiny, once MPI has what it wants of it."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    world.Barrier()
    name = socket.gethostname()
    first = [other == name for other in world.allgather(name)].index(True)
    if name == "tiny" and world.rank == first:
        with open("/dev/shm/ballast", "wb") as file:
            os.posix_fallocate(file.fileno(), 0, shutil.disk_usage("/dev/shm").free - free_nbytes)
    world.Barrier()
    report()


MODES = {
    "report": report,
    "squeeze": squeeze,
    "traffic": traffic,
    "timed": timed,
    "loop": loop,
    "exit": leave,
}
MODES[sys.argv[1]](*map(int, sys.argv[2:]))
