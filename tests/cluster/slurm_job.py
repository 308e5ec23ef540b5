"""What the ranks of a SLURM job do in tests: `slurm_job.py WHAT`."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from types import FrameType

import numpy as np

import hierring as hr
from hierring.launch.slurm import read_allocation


def where() -> None:
    """Say which rank is on which node, by one line of rank 0."""
    topology = hr.get_topology()
    total = hr.allreduce(hr.rank() + 1)
    if hr.rank() == 0:
        result = {
            "size": hr.size(),
            "total": total,
            "nodes": [list(node.ranks) for node in topology.nodes],
            "hosts": [node.hostname for node in topology.nodes],
            "threads": os.environ.get("OMP_NUM_THREADS"),
            "gpus": os.environ.get("CUDA_VISIBLE_DEVICES"),
        }
        print("RESULT", json.dumps(result), flush=True)


def allocation() -> None:
    """Print what SLURM's variables say here; MPI is not started."""
    found = read_allocation()
    assert found is not None
    if os.environ.get("SLURM_PROCID", "0") == "0":
        print("RESULT", json.dumps(vars(found)), flush=True)


def fails() -> None:
    """Rank 1 ends with code 3 while the others wait for what never comes."""
    hr.barrier()
    if hr.rank() == 1:
        os._exit(3)
    signal.pause()


def waits() -> None:
    """Idle until some rank gets SIGTERM; all leave after the same call."""
    told = threading.Event()

    def take_note(number: int, frame: FrameType | None) -> None:
        told.set()

    signal.signal(signal.SIGTERM, take_note)
    hr.barrier()
    print("READY", flush=True)
    calls = 0
    while not hr.allreduce(told.is_set(), "max"):
        told.wait(0.1)
        calls += 1
    print("LEFT after", calls, "told" if told.wait(10) else "not told", flush=True)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # SLURM repeats it


def reduces() -> None:
    """Add up without end."""
    data = np.ones(100_000)
    hr.barrier()
    print("READY", flush=True)
    while True:
        hr.allreduce(data, "avg")


def ignores() -> None:
    """Take note of SIGTERM and stay."""
    signal.signal(signal.SIGTERM, lambda number, frame: print("TERM", flush=True))
    hr.barrier()
    print("READY", flush=True)
    while True:
        signal.pause()


if __name__ == "__main__":
    {f.__name__: f for f in (where, allocation, fails, waits, reduces, ignores)}[sys.argv[1]]()
