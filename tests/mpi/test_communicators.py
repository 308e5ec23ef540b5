"""Many communicators: split, several at once, beside the application's own MPI, closing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from mpi4py import MPI

import hierring as hr
from hierring._testing import Checks, exact_input, expected, expected_nodes
from hierring.config import Config

RANK, SIZE = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
TOTAL = SIZE * (SIZE + 1) // 2
several_ranks = pytest.mark.world(*range(2, 65))  # someone must differ


@pytest.fixture(scope="module")
def comm() -> Iterator[hr.Communicator]:
    with hr.Communicator(MPI.COMM_WORLD, config=Config.from_env(timeout_s=60)) as handle:
        yield handle


def sum_is_right(check: Checks, handle: hr.Communicator, ranks: list[int], label: str) -> None:
    """Reduce world ranks over a communicator whose members are known."""
    for count in (3, 30_000):
        x = np.full(count, RANK + 1.0)
        handle.allreduce(x)
        check.equal(x, np.full(count, sum(ranks) + float(len(ranks))), f"{label}, count {count}")


def test_split_into_odd_and_even(comm: hr.Communicator) -> None:
    ranks = list(range(RANK % 2, SIZE, 2))
    with Checks() as check, comm.split(RANK % 2) as half:
        check.true(half.size() == len(ranks), f"size {half.size()}")
        check.true(half.rank() == ranks.index(RANK), f"rank {half.rank()}")
        sum_is_right(check, half, ranks, "half")
        sum_is_right(check, comm, list(range(SIZE)), "parent")


def test_split_with_reversed_keys(comm: hr.Communicator) -> None:
    with Checks() as check, comm.split(0, key=-RANK) as reverse:
        check.true(reverse.rank() == SIZE - 1 - RANK, f"rank {reverse.rank()}")
        gathered = reverse.allgather(np.array([RANK]))
        check.equal(gathered, np.arange(SIZE)[::-1], "ranks in the order of the keys")
        sum_is_right(check, reverse, list(range(SIZE)), "reversed")


@several_ranks
def test_split_of_one_part_alone(comm: hr.Communicator) -> None:
    """The other part takes no part in it, though both came of one split."""
    ranks = list(range(0, SIZE, 2))[::-1]
    with Checks() as check, comm.split(RANK % 2) as half:
        if RANK % 2 == 0:
            with half.split(0, key=-RANK, timeout=20) as nested:
                check.true(nested.rank() == ranks.index(RANK), f"rank {nested.rank()}")
                sum_is_right(check, nested, ranks, "nested")
                with nested.split(0, timeout=20) as deeper:
                    sum_is_right(check, deeper, ranks, "deeper")
        sum_is_right(check, comm, list(range(SIZE)), "parent")


def test_split_leaves_ranks_out(comm: hr.Communicator) -> None:
    with Checks() as check:
        part = comm.split(0 if RANK < (SIZE + 1) // 2 else None)
        if RANK < (SIZE + 1) // 2:
            with part:
                sum_is_right(check, part, list(range((SIZE + 1) // 2)), "part")
        else:
            check.true(part is None, f"None for a rank left out, not {part!r}")
        sum_is_right(check, comm, list(range(SIZE)), "parent")


def test_split_by_node(comm: hr.Communicator) -> None:
    nodes = expected_nodes(SIZE)
    mine = next(ranks for ranks in nodes if RANK in ranks)
    with Checks() as check, comm.split(comm.node_rank(), key=comm.local_rank()) as node:
        check.true(node.num_nodes() == 1 and node.size() == len(mine), "one whole node")
        sum_is_right(check, node, mine, "node")


@several_ranks
def test_split_opens_like_any_other_call(comm: hr.Communicator) -> None:
    """Ranks that call something else, or refuse, fail cleanly."""
    with Checks() as check:
        call = comm.barrier if RANK == 0 else lambda: comm.split(0)
        check.raises(hr.CollectiveMismatchError, call, "barrier against split")
        color = "red" if RANK == SIZE - 1 else 0
        kind = Exception if RANK == SIZE - 1 else hr.CollectiveMismatchError
        check.raises(kind, lambda: comm.split(color), "a color that is no number")
        sum_is_right(check, comm, list(range(SIZE)), "the next call")


def test_user_sub_communicators() -> None:
    """Groups of every size side by side, and each has its own numbers and segment."""
    with Checks() as check:
        for groups in range(1, SIZE + 1):
            sub = MPI.COMM_WORLD.Split(RANK % groups, key=RANK)
            ranks = list(range(RANK % groups, SIZE, groups))
            with hr.Communicator(sub, config=Config.from_env(timeout_s=60)) as handle:
                for _ in range(1 + RANK % groups):  # groups need not keep step
                    sum_is_right(check, handle, ranks, f"{groups} groups")
            sub.Free()


def test_several_at_once(comm: hr.Communicator) -> None:
    with Checks() as check:
        others = [hr.Communicator(MPI.COMM_WORLD) for _ in range(3)]
        halves = comm.split(RANK % 2)
        for turn in range(8):
            for handle in others:
                sum_is_right(check, handle, list(range(SIZE)), f"turn {turn}")
            sum_is_right(check, halves, list(range(RANK % 2, SIZE, 2)), f"turn {turn}, half")
        for handle in [halves, *others]:
            handle.close()


def test_beside_the_applications_traffic(comm: hr.Communicator) -> None:
    """Wildcard receives and collectives of the application stay its own."""
    world = MPI.COMM_WORLD
    right, left = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    with Checks() as check:
        for turn in range(5):
            box, word = np.zeros(20_000), np.full(20_000, RANK * 100.0 + turn)
            receive = world.Irecv(box, source=MPI.ANY_SOURCE, tag=MPI.ANY_TAG)
            for count in (4, 50_000):
                x = exact_input("float32", "sum", RANK, SIZE, count)
                comm.allreduce(x)
                check.equal(x, expected("float32", "sum", SIZE, count), f"turn {turn}")
            send = world.Isend(word, dest=right, tag=turn)
            total, mine = np.zeros(3), np.full(3, float(RANK + 1))
            pending = world.Iallreduce(mine, total)
            x = exact_input("int64", "sum", RANK, SIZE, 9000)
            comm.allreduce(x, algorithm="ring")
            check.equal(x, expected("int64", "sum", SIZE, 9000), f"turn {turn}, ring")
            MPI.Request.Waitall([receive, send, pending])
            check.equal(box, np.full(20_000, left * 100.0 + turn), f"turn {turn}, received")
            check.equal(total, np.full(3, float(TOTAL)), f"turn {turn}, Iallreduce")
            world.Allreduce(mine, total)
            check.equal(total, np.full(3, float(TOTAL)), f"turn {turn}, Allreduce")


@pytest.mark.parametrize("number", [30, pytest.param(2500, marks=pytest.mark.long)])
def test_opening_and_closing_many_handles(number: int) -> None:
    """Nothing runs out: communicators of MPI (MPICH has 2048), descriptors, shared memory."""
    with Checks() as check:
        for turn in range(number):
            handle = hr.Communicator(MPI.COMM_WORLD)
            if turn % 20 == 0:
                check.true(handle.allreduce(1) == SIZE, f"turn {turn}")
            handle.close()


def test_many_calls_on_one_handle(comm: hr.Communicator) -> None:
    with Checks() as check:
        wrong = sum(
            comm.allreduce(turn + RANK) != turn * SIZE + TOTAL - SIZE for turn in range(400)
        )
        check.true(wrong == 0, f"{wrong} of 400 wrong")


def test_a_closed_communicator_says_so() -> None:
    with Checks() as check:
        handle = hr.Communicator(MPI.COMM_WORLD)
        handle.allreduce(1)
        handle.close()
        handle.close()  # twice is fine
        for call in (
            lambda: handle.allreduce(np.ones(2)),
            lambda: handle.barrier(),
            lambda: handle.split(0),
            lambda: handle.rebuild(),
        ):
            error = check.raises(hr.HierringError, call, "a call after close()")
            check.true("closed" in str(error), f"says closed: {error}")


def test_leaving_the_block_closes_also_after_an_error() -> None:
    with Checks() as check:
        with pytest.raises(ZeroDivisionError), hr.Communicator(MPI.COMM_WORLD) as handle:
            _ = 1 // 0
        check.raises(hr.HierringError, handle.barrier, "closed")


@several_ranks
@pytest.mark.parametrize(
    "setting",
    [
        {"cell_bytes": 4096},
        {"algorithm": "ring"},
        {"wire_dtype": "bfloat16"},
        {"small_bytes": 64},
        {"max_message_bytes": 4096},
        {"intra_schedule": "ring"},
        {"shared_memory": False},
        {"leaders": 7},
    ],
    ids=lambda setting: next(iter(setting)),
)
def test_settings_that_differ(setting: dict[str, object]) -> None:
    """A protocol setting of one rank only is an error on every rank, naming the setting."""
    with Checks() as check:
        for odd in {0, SIZE - 1}:
            config = Config.from_env(**(setting if odd == RANK else {}))
            error = check.raises(
                hr.ConfigurationError,
                lambda config=config: hr.Communicator(MPI.COMM_WORLD, config=config),
                f"odd rank {odd}",
            )
            check.true(next(iter(setting)) in str(error), f"names the setting: {error}")
        with hr.Communicator(MPI.COMM_WORLD) as handle:
            check.true(handle.allreduce(1) == SIZE, "the next one works")


def test_settings_that_may_differ() -> None:
    config = Config.from_env(timeout_s=40 + RANK, warn_after_s=20 + RANK, on_failure="raise")
    with Checks() as check, hr.Communicator(MPI.COMM_WORLD, config=config) as handle:
        sum_is_right(check, handle, list(range(SIZE)), "timeouts differ")


def test_no_communicator_is_refused() -> None:
    with Checks() as check:
        for bad in (MPI.COMM_NULL, "world", 3):
            check.raises(
                (hr.HierringError, ValueError, TypeError),
                lambda bad=bad: hr.Communicator(bad),
                f"{bad}",
            )
