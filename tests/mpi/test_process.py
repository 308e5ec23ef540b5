"""The library as a guest in a process: threads, signals, forked children, memory."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import numpy as np
import psutil
import pytest
from mpi4py import MPI

import hierring as hr
from hierring._testing import Checks, exact_input, expected
from hierring.config import Config

RANK, SIZE = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
TOTAL = SIZE * (SIZE + 1) // 2


@pytest.fixture(scope="module")
def comm() -> Iterator[hr.Communicator]:
    with hr.Communicator(MPI.COMM_WORLD, config=Config.from_env(timeout_s=60)) as handle:
        yield handle


def test_threads_with_a_communicator_each() -> None:
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        pytest.skip("MPI runs without MPI_THREAD_MULTIPLE")
    handles = [hr.Communicator(MPI.COMM_WORLD) for _ in range(2)]
    problems: list[str] = []

    def work(index: int) -> None:
        for turn in range(25):
            x = np.full(1000 * (index + 1), RANK + turn)
            handles[index].allreduce(x)
            if not (x == TOTAL - SIZE + turn * SIZE).all():
                problems.append(f"thread {index} turn {turn}")

    threads = [threading.Thread(target=work, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(50)
    with Checks() as check:
        check.true(not any(thread.is_alive() for thread in threads), "both threads ended")
        check.true(not problems, f"{problems}")
    for handle in handles:
        handle.close()


def test_waiting_releases_the_interpreter_lock(comm: hr.Communicator) -> None:
    """A background thread goes on counting while this rank waits for a late one."""
    ticks = 0
    stop = threading.Event()

    def count() -> None:
        nonlocal ticks
        while not stop.wait(0.01):
            ticks += 1

    with Checks() as check:
        comm.barrier()
        late = SIZE - 1
        thread = threading.Thread(target=count)
        if late == RANK:
            time.sleep(0.6)
            comm.allreduce(np.ones(3))
            check.true(True, "the late rank")
        else:
            thread.start()
            comm.allreduce(np.ones(3))
            stop.set()
            thread.join()
            check.true(ticks >= 20, f"only {ticks} ticks in 0.6 s of waiting")


def test_an_agreed_stop_after_a_signal(comm: hr.Communicator) -> None:
    """A signal to one rank only sets a flag; the maximum of the flags stops all at one step."""
    told = False

    def handler(*_: object) -> None:
        nonlocal told
        told = True

    before = signal.signal(signal.SIGTERM, handler)
    try:
        with Checks() as check:
            if RANK == SIZE - 1:
                threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()
            step = 0
            while not comm.allreduce(int(told), "max"):
                step += 1
            steps = comm.allgather(np.array([step]))
            check.true(len(set(steps.tolist())) == 1, f"all stop at one step: {steps}")
            check.true(step > 0, "some steps were made before")
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_signal_handler_may_not_call_back_in(comm: hr.Communicator) -> None:
    """A handler that calls the communicator its own thread is inside of is told so."""
    errors: list[BaseException] = []

    def handler(*_: object) -> None:
        for call in (lambda: comm.allreduce(1), lambda: comm.rebuild(timeout=0.1)):
            try:
                call()
            except hr.HierringError as error:
                errors.append(error)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with Checks() as check:
            comm.barrier()
            if SIZE > 1 and RANK == 0:
                threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1)).start()
            elif SIZE > 1:
                time.sleep(0.3)  # rank 0 is inside, waiting, when its signal comes
            check.true(comm.allreduce(1) == SIZE, "the interrupted call is right")
            check.true(len(errors) == 2 * (SIZE > 1 and RANK == 0), f"errors {errors}")
            check.true(all("from inside" in str(error) for error in errors), f"errors {errors}")
            check.true(comm.allreduce(1) == SIZE, "the next call is right")
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_forked_child_is_refused(comm: hr.Communicator) -> None:
    """It raises in the child at once, and neither its life nor its end harms the parent."""
    reader, writer = os.pipe()
    comm.allreduce(1)
    child = os.fork()
    if child == 0:
        text = b"returned"
        try:
            comm.allreduce(1, timeout=5)
        except hr.HierringError as error:
            text = str(error).encode()
        except BaseException as error:
            text = repr(error).encode()
        os.write(writer, text)
        comm.close()
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read().decode()
    with Checks() as check:
        check.true("fork" in said, f"the child is told why: {said}")
        for count in (3, 30_000):
            x = exact_input("int32", "sum", RANK, SIZE, count)
            comm.allreduce(x)
            check.equal(x, expected("int32", "sum", SIZE, count), f"the parent goes on, {count}")


def test_memory_stays_flat(comm: hr.Communicator) -> None:
    """Calls of ever changing sizes and kinds: no growth once every path has been used."""
    process = psutil.Process()
    rng = np.random.default_rng(3)
    buffer = np.ones(300_000, "float32")

    def calls(number: int) -> None:
        for turn in range(number):
            x = buffer[: int(rng.integers(0, buffer.size))]
            comm.allreduce(x, "max", algorithm=("hierarchical", "ring", "naive")[turn % 3])
            comm.broadcast(x, root=turn % SIZE)

    with Checks() as check:
        comm.allreduce(buffer, "max", algorithm="naive")
        comm.allreduce(buffer, "max", algorithm="ring")
        calls(20)
        before = process.memory_info().rss
        files = process.num_fds()
        calls(40)
        grown = process.memory_info().rss - before
        check.true(grown < 8 * 2**20, f"grew by {grown / 2**20:.1f} MiB")
        check.true(process.num_fds() <= files, f"{process.num_fds()} descriptors, had {files}")
