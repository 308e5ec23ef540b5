"""What the ranks of the jobs in `test_faults.py` do; the first argument names the function."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI

import hierring as hr
from hierring.config import Config

RANK, SIZE = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
TOTAL = SIZE * (SIZE + 1) // 2


def tell(**values: object) -> None:
    """Print one line in one piece, so that lines of several ranks don't mix."""
    line = f"RESULT {json.dumps({'rank': RANK, **values})}\n"
    os.write(1, line.encode())


def say(word: str) -> None:
    os.write(1, f"{word} {RANK}\n".encode())


def correct_calls(count: int = 3) -> bool:
    right = True
    for turn in range(count):
        x = np.full(5000 if turn % 2 else 5, RANK + 1.0)
        hr.allreduce(x, timeout=60)
        right = right and bool((x == TOTAL).all())
    return right


def normal(how: str) -> None:
    """An orderly end in one of the ways programs end."""
    tell(right=correct_calls(), size=hr.size())
    if how == "finalize":
        hr.finalize()
        hr.finalize()
    elif how == "own communicators":
        # One closed, one still open, one whose last reference goes at exit.
        hr.Communicator(MPI.COMM_WORLD).close()
        globals()["kept"] = hr.Communicator(MPI.COMM_WORLD)
        globals()["kept"].allreduce(1)
    elif how == "MPI ended by the program":
        MPI.Finalize()
    elif how == "sys.exit":
        sys.exit(0)


def kill(whom: str) -> None:
    """SIGKILL of one rank or of all, in the middle of a loop of calls."""
    correct_calls()
    say("READY")
    for turn in range(10**9):
        if turn == 20 and (whom == "all" or int(whom) == RANK):
            os.kill(os.getpid(), signal.SIGKILL)
        hr.allreduce(np.ones(3000), timeout=30)


def loop() -> None:
    """Calls until somebody ends the job."""
    correct_calls()
    say("READY")
    while True:
        hr.allreduce(np.ones(3000), timeout=30)


def survivors(victim: str) -> None:
    """A rank is killed while the others wait for it; the launcher lets them live."""
    correct_calls()
    hr.barrier()
    if int(victim) == RANK:
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    try:
        hr.allreduce(np.ones(3), timeout=4)
    except hr.HierringError as error:
        tell(
            kind=type(error).__name__,
            text=str(error),
            failed=getattr(error, "rank", None),
            seconds=time.monotonic() - began,
        )
    time.sleep(1.0)  # the others tell theirs before the job is ended
    os._exit(1)


def raises(where: str) -> None:
    """An exception on one rank, before its first call or between two."""
    hr.rank()
    if where == "between":
        correct_calls(2)
    if RANK == 1:
        raise ValueError("boom on the second rank")
    hr.allreduce(np.ones(3), timeout=60)
    tell(reached=True)


def exits_early(how: str) -> None:
    """All but rank 0 make ten calls and end; rank 0 makes an eleventh."""
    correct_calls(10)
    if RANK != 0:
        if how == "exit code":
            sys.exit(5)
        if how == "os._exit":
            os._exit(86)
        return
    began = time.monotonic()
    try:
        hr.allreduce(np.ones(3), timeout=60)
    except hr.RankFailedError as error:
        tell(kind=type(error).__name__, text=str(error), seconds=time.monotonic() - began)
        raise


def late_init() -> None:
    """The last rank comes after the others' first try of an init has timed out."""
    config = Config.from_env(init_timeout_s=2)
    if RANK == SIZE - 1:
        time.sleep(3)
    tries = 0
    while True:
        tries += 1
        try:
            hr.init(config=config)
            break
        except hr.CollectiveTimeoutError:
            assert tries < 10
    tell(tries=tries, right=correct_calls())


def one_core() -> None:
    """A hundred small calls by ranks that share one core."""
    core = min(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    hr.init()
    hr.barrier()
    began = time.monotonic()
    right = True
    for turn in range(100):
        x = np.full(512, RANK + 1.0 + turn)
        hr.allreduce(x)
        right = right and bool((x == TOTAL + turn * SIZE).all())
    tell(seconds=time.monotonic() - began, right=right)


def idle(seconds: str) -> None:
    """What waiting costs: CPU time of this process while one rank is late."""
    hr.init()
    spent = []
    for count in (3, 20_000):
        x = np.full(count, RANK + 1.0)
        hr.barrier()
        if RANK == SIZE - 1:
            time.sleep(float(seconds))
        began, cpu = time.monotonic(), time.process_time()
        hr.allreduce(x)
        spent.append([time.monotonic() - began, time.process_time() - cpu])
        assert (x == TOTAL).all()
    tell(spent=spent)


def little_memory(left: str) -> None:
    """/dev/shm is almost full when the library comes to it; MPI has had its share."""
    shm = Path("/dev/shm")
    MPI.COMM_WORLD.Barrier()
    if RANK == 0:
        stat = os.statvfs(shm)
        room = stat.f_bavail * stat.f_frsize - int(left)
        with (shm / "filler").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, room)
    MPI.COMM_WORLD.Barrier()
    try:
        handle = hr.Communicator(MPI.COMM_WORLD)
    except hr.SharedMemoryError as error:
        tell(
            kind="SharedMemoryError",
            text=str(error),
            needed=error.needed_bytes,
            available=error.available_bytes,
        )
        # Without shared memory it still works.
        handle = hr.Communicator(MPI.COMM_WORLD, config=Config.from_env(shared_memory=False))
    x = np.full(8 * 2**20 // 8, RANK + 1.0)
    handle.allreduce(x)
    segment = handle.statistics().segment_nbytes_per_rank
    tell(kind="works", right=bool((x == TOTAL).all()), segment=segment)
    handle.close()


def big(nbytes: str) -> None:
    """More bytes than an int32 counts."""
    count = int(nbytes)
    marks = {0: 3, 2**31 - 1: 5, 2**31: 7, 2**31 + 1: 11, count - 1: 13}
    x = np.ones(count, np.uint8)
    for place, value in marks.items():
        x[place] = value + RANK
    result = hr.allreduce(x)
    wrong = [
        place for place, value in marks.items() if x[place] != value * SIZE + SIZE * (SIZE - 1) // 2
    ]
    for place in marks:
        x[place] = SIZE
    step = 2**26
    uniform = all((x[at : at + step] == SIZE).all() for at in range(0, count, step))
    tell(wrong=wrong, uniform=uniform, same=result is x)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
