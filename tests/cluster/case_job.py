"""What the ranks of the jobs in `test_cases_*.py` do: `case_job.py WHAT [ARGUMENTS]`.

Each of them prints one line of JSON after the word RESULT.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

import hierring as hr

SHM = Path("/dev/shm")
LIMIT_S = 60.0
WORLD = MPI.COMM_WORLD


def say(word: str) -> None:
    """Print a line in one write, since other ranks share the pipe."""
    os.write(1, f"{word}\n".encode())


def tell(**values: object) -> None:
    say(f"RESULT {json.dumps({'rank': WORLD.rank, **values})}")


def wait_for(path: str) -> None:
    """Tell the test that this rank is here, and wait until it has made a file."""
    say("READY")
    until = time.monotonic() + LIMIT_S
    while not Path(path).exists():
        assert time.monotonic() < until, f"no {path}"
        time.sleep(0.01)


def right(comm: Any = hr, counts: tuple[int, ...] = (1, 5, 1003, 300_001)) -> bool:
    """Whether sums are right, of arrays that travel with the opening and of long ones."""
    size, rank = comm.size(), comm.rank()
    good = True
    for count in counts:
        x = np.arange(count, dtype=np.int64) + 1000 * rank
        comm.allreduce(x)
        expected = np.arange(count, dtype=np.int64) * size + 1000 * size * (size - 1) // 2
        good = good and bool((x == expected).all())
    return good


def clean() -> bool:
    """Whether what an earlier call has left in cells, window and scratch stays out of results."""
    hr.allreduce(np.full(300_001, np.nan))
    good = True
    for count in (*range(1, 34), 5000):
        x = np.full(count, hr.rank() + 1.0)
        hr.allreduce(x, algorithm="hierarchical")
        good = good and bool((x == WORLD.size * (WORLD.size + 1) / 2).all())
    return good


def nodes(comm: Any = hr) -> list[list[int]]:
    return [list(node.ranks) for node in comm.get_topology().nodes]


def modes() -> list[str]:
    """Permissions of this process's open files in /dev/shm, as far as they are hierring's."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # that of the listing itself
            if os.readlink(link).startswith(("/dev/shm/#", "/dev/shm/hierring-")):
                found.append(oct(link.stat().st_mode & 0o777))
    return found


def facts() -> dict[str, Any]:
    """Where this rank thinks it is, and whether that works."""
    topology = hr.get_topology()
    return {
        "right": right(),
        "nodes": nodes(),
        "hosts": [node.hostname for node in topology.nodes],
        "warnings": list(topology.warnings),
        "segment": hr.statistics().segment_nbytes_per_rank,
        "uid": os.geteuid(),
        "modes": modes(),
    }


def report() -> None:
    """The facts, and the lowest rank that MPI itself puts on this rank's node."""
    part = WORLD.Split_type(MPI.COMM_TYPE_SHARED)
    tell(**facts(), mpi=part.allreduce(WORLD.rank, MPI.MIN))
    part.Free()


def together(go: str) -> None:
    """Have a communicator while another job has one."""
    hr.barrier()
    wait_for(go)
    tell(**facts())


def fresh() -> None:
    """The facts, with no message of MPI's before hierring's first."""
    tell(**facts())


def parted(when: str, cut: str) -> None:
    """Lose the link to another node, before hierring has met it or afterwards."""
    good = when == "before" or right()
    wait_for(cut)
    try:
        hr.allreduce(np.ones(100_000), timeout=3)
        error = "added up without a link"
    except hr.CollectiveTimeoutError as caught:
        error = str(caught)
    tell(right=good, error=error)
    os._exit(1)  # MPI would end by meeting the others


def swept(go: str) -> None:
    """Go on after all names in /dev/shm are gone, and then until somebody ends the job."""
    good = right(counts=(1000,))
    wait_for(go)
    for count in (3, 1000, 40_000, 1_000_003) * 5:
        good = good and right(counts=(count,))
    with hr.Communicator(WORLD) as another:
        good = good and right(another)
    tell(right=good)
    say("GOING ON")
    while True:
        hr.allreduce(np.ones(3000))


def variants() -> None:
    """Communicators whose settings or ranks are special, beside the ordinary one."""
    config = hr.Config.from_env
    ordinary = facts()
    with hr.Communicator(WORLD, config=config(shared_memory=False)) as apart:
        alone, alone_right = nodes(apart), right(apart)
        alone_modes = modes()
    try:
        hr.Communicator(WORLD, config=config(simulate_nodes=str(WORLD.size)))
        refused = "not refused"
    except hr.TopologyError as error:
        refused = str(error)
    part = WORLD.Split(hr.local_rank(), WORLD.rank)
    with hr.Communicator(part) as leaders:
        x = np.array([WORLD.rank + 1], np.int32)
        leaders.allreduce(x)
        sum_of_leaders, nodes_of_leaders = int(x[0]), nodes(leaders)
    part.Free()
    tell(
        **ordinary,
        alone=alone,
        alone_right=alone_right,
        alone_modes=alone_modes,
        no=refused,
        still_right=right(),
        clean=clean(),
        sum_of_leaders=sum_of_leaders,
        nodes_of_leaders=nodes_of_leaders,
    )


def squeezed(free_nbytes: str) -> None:
    """Leave so little of /dev/shm on the node called tiny, once MPI has what it wants of it."""
    hosts = WORLD.allgather(socket.gethostname())
    if "tiny" in hosts and WORLD.rank == hosts.index("tiny"):
        with (SHM / "ballast").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(SHM).free - int(free_nbytes))
    WORLD.Barrier()
    try:
        tell(**facts())
    finally:
        (SHM / "ballast").unlink(missing_ok=True)


WHATS: tuple[Callable[..., None], ...] = (
    report,
    fresh,
    together,
    parted,
    swept,
    variants,
    squeezed,
)

if __name__ == "__main__":
    {f.__name__: f for f in WHATS}[sys.argv[1]](*sys.argv[2:])
