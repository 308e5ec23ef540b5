"""`hierring bench` with a planted fault: `bench_with_faults.py FAULT RANK OPTIONS...`.

corrupt  one element of one result is off by one
late     the rank comes 50 ms late to every call
stopped  the rank is stopped for three seconds in the midst of the run, from outside
none     nothing
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Any

from mpi4py import MPI

from hierring.cli import main
from hierring.communicator import Communicator

FAULT, RANK = sys.argv[1], int(sys.argv[2])
TARGET_CALL = 4
calls = 0
original = Communicator.allreduce


def allreduce(self: Communicator, x: Any, *arguments: Any, **options: Any) -> Any:
    global calls
    if "algorithm" not in options:  # not one that is timed: the link probe's
        return original(self, x, *arguments, **options)
    calls += 1
    if FAULT == "late":
        time.sleep(0.05)
    if FAULT == "absent" and calls == TARGET_CALL:
        time.sleep(1000)
    if FAULT == "stopped" and calls == TARGET_CALL:
        pid = os.getpid()
        subprocess.Popen(["sh", "-c", f"kill -STOP {pid}; sleep 3; kill -CONT {pid}"])
        time.sleep(0.1)  # the stop comes within
    result = original(self, x, *arguments, **options)
    if FAULT == "corrupt" and calls == TARGET_CALL:
        result.reshape(-1)[-1] += 1
    return result


if MPI.COMM_WORLD.Get_rank() == RANK:
    Communicator.allreduce = allreduce  # type: ignore[method-assign]
sys.argv = ["hierring", "bench", *sys.argv[3:]]
sys.exit(main())
