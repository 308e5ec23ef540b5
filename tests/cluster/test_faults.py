"""Jobs that die, leave, starve or wait, watched from outside: exit codes, leftovers, CPU time."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

Launch = Callable[..., Any]
LAYOUTS = [(3, None), (3, "2,1")]


def layout_id(value: object) -> str:
    return "one-node" if value is None else str(value)


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    ["falls off the end", "finalize", "own communicators", "MPI ended by the program", "sys.exit"],
)
def test_a_normal_end(launch: Launch, no_leftovers: None, how: str) -> None:
    job = launch(3, "normal", how, nodes="2,1").wait(30).check()
    assert [row["right"] for row in job.results] == [True] * 3
    assert "Traceback" not in job.stderr


@pytest.mark.slow
@pytest.mark.parametrize("whom", ["1", "all"])
def test_sigkill_leaves_nothing(launch: Launch, no_leftovers: None, whom: str) -> None:
    job = launch(3, "kill", whom).wait(45)
    assert job.stdout.count("READY") == 3
    assert job.code != 0


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["INT", "TERM"])
def test_a_signal_to_the_launcher(launch: Launch, no_leftovers: None, number: int) -> None:
    job = launch(3, "loop", nodes="2,1")
    job.wait_for_line("READY", 3)
    job.process.send_signal(number)
    assert job.wait(20).code != 0


@pytest.mark.slow
@pytest.mark.parametrize(("size", "nodes"), LAYOUTS, ids=layout_id)
@pytest.mark.parametrize("where", ["before", "between"])
def test_an_uncaught_exception_ends_the_job(
    launch: Launch, no_leftovers: None, size: int, nodes: str | None, where: str
) -> None:
    job = launch(size, "raises", where, nodes=nodes).wait(25)
    assert job.code != 0
    assert "boom on the second rank" in job.stderr
    assert "Traceback" in job.stderr
    assert not job.results


@pytest.mark.slow
@pytest.mark.parametrize(("size", "nodes"), LAYOUTS, ids=layout_id)
@pytest.mark.parametrize("how", ["returns", "exit code"])
def test_a_rank_that_leaves_early(
    launch: Launch, no_leftovers: None, size: int, nodes: str | None, how: str
) -> None:
    job = launch(size, "exits_early", how, nodes=nodes).wait(30)
    assert [row["kind"] for row in job.results] == ["RankFailedError"], job.stderr
    assert "has left" in job.results[0]["text"]
    assert job.results[0]["seconds"] < 5
    assert job.code != 0


@pytest.mark.slow
def test_a_rank_that_vanishes_ends_the_job(launch: Launch, no_leftovers: None) -> None:
    job = launch(3, "exits_early", "os._exit").wait(30)
    assert job.code != 0


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 2])
def test_survivors_of_a_killed_rank_are_told_at_once(
    launch: Launch, no_leftovers: None, victim: int
) -> None:
    """By its record lock, long before the deadline; the error names the rank."""
    job = launch(3, "survivors", victim, survivable=True).wait(40)
    assert len(job.results) == 2, job.stdout + job.stderr
    for row in job.results:
        assert row["kind"] == "RankFailedError", row
        assert row["failed"] == victim
        assert f"rank {victim}" in row["text"]
        assert row["seconds"] < 4


@pytest.mark.slow
def test_survivors_on_another_node_end_at_the_deadline(launch: Launch, no_leftovers: None) -> None:
    """Plain MPI reports no deaths: a lost node is missed at the deadline at the latest."""
    job = launch(3, "survivors", 2, nodes="2,1", survivable=True).wait(45)
    assert len(job.results) == 2, job.stdout + job.stderr
    for row in job.results:
        assert row["kind"] in ("RankFailedError", "CollectiveTimeoutError"), row
        assert "rank 2" in row["text"]
        assert row["seconds"] < 4 + 1 + 2


@pytest.mark.slow
@pytest.mark.parametrize(("size", "nodes"), LAYOUTS, ids=layout_id)
def test_an_init_that_timed_out_can_be_tried_again(
    launch: Launch, no_leftovers: None, size: int, nodes: str | None
) -> None:
    job = launch(size, "late_init", nodes=nodes).wait(45).check()
    assert [row["right"] for row in job.results] == [True] * size
    assert max(row["tries"] for row in job.results) > 1


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [None, "2x4"], ids=layout_id)
def test_eight_ranks_on_one_core(launch: Launch, nodes: str | None) -> None:
    job = launch(8, "one_core", nodes=nodes).wait(90).check()
    assert len(job.results) == 8
    for row in job.results:
        assert row["right"]
        assert row["seconds"] < 30


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [None, "2x2"], ids=layout_id)
def test_waiting_costs_next_to_nothing(launch: Launch, nodes: str | None) -> None:
    """Five seconds of waiting, for a peer in the node or for another leader over MPI."""
    job = launch(4, "idle", 5, nodes=nodes).wait(45).check()
    waiting = [row for row in job.results if row["rank"] != 3]
    assert len(waiting) == 3
    for row in waiting:
        for seconds, cpu in row["spent"]:
            assert seconds > 4, "it did not wait at all"
            assert cpu < 0.25, f"rank {row['rank']} burnt {cpu:.2f} s in {seconds:.1f} s"


needs_root = pytest.mark.skipif(os.getuid() != 0, reason="a private /dev/shm needs root")
#: Open MPI's own shared memory grows while it runs, so a full /dev/shm is a bus error inside of it.
ASIDE = {
    "openmpi": ["--mca", "pml", "ob1", "--mca", "btl", "self,tcp", "--mca", "coll", "^xhc,sm"],
}
PRIVATE_SHM = (
    *("unshare", "--mount", "sh", "-c"),
    'mount -t tmpfs -o size=512m tmpfs /dev/shm && exec "$@"',
    "sh",
)


@needs_root
@pytest.mark.slow
@pytest.mark.parametrize("left", [2 * 2**20, 600_000])
def test_little_shared_memory(launch: Launch, left: int) -> None:
    """Smaller cells, or an error with both sizes on every rank; never a bus error."""
    job = launch(4, "little_memory", left, around=PRIVATE_SHM, options=ASIDE).wait(60)
    job.no_crash()
    job.check()
    refused = [row for row in job.results if row["kind"] == "SharedMemoryError"]
    works = [row for row in job.results if row["kind"] == "works"]
    assert len(works) == 4
    assert all(row["right"] for row in works)
    assert len(refused) in (0, 4), "all ranks or none"
    for row in refused:
        assert row["needed"] > row["available"] >= 0
        assert str(row["needed"]) in row["text"]
        assert str(row["available"]) in row["text"]
        assert "/dev/shm" in row["text"]
    if not refused:
        assert all(0 < row["segment"] * 4 <= left for row in works)


@needs_root
@pytest.mark.slow
def test_no_shared_memory_at_all(launch: Launch) -> None:
    """The creation fails, on every rank, and not a later write."""
    job = launch(4, "little_memory", 8192, around=PRIVATE_SHM, options=ASIDE).wait(60)
    job.no_crash()
    job.check()
    refused = [row for row in job.results if row["kind"] == "SharedMemoryError"]
    assert len(refused) == 4
    assert all(row["needed"] > row["available"] for row in refused)


@pytest.mark.long
@pytest.mark.parametrize("nodes", [None, "1,1"], ids=layout_id)
def test_more_bytes_than_an_int32_counts(launch: Launch, nodes: str | None) -> None:
    nbytes = 2_362_232_012  # 2.2 GiB and a bit
    job = launch(2, "big", nbytes, nodes=nodes).wait(240).check()
    assert len(job.results) == 2
    for row in job.results:
        assert row["wrong"] == []
        assert row["uniform"]
        assert row["same"]
