"""Judgements on the nodes: the memory they share, their names, the CPUs of their ranks."""

from __future__ import annotations

import pytest

from hierring._testing.examinations import fake_job, fake_view, healthy_job
from hierring.launch.doctor import check_node
from hierring.launch.doctor.findings import gather
from hierring.launch.doctor.view import Leftovers, SharedMemory, Stranger
from hierring.topology import NumaNode

MIB = 1 << 20


def bad(check, job):
    """The one finding of a check that is not "ok"."""
    (finding,) = [found for found in gather(check(job)) if found.level != "ok"]
    return finding


def pair(nodes=None, hosts="aa", needed=4 * MIB, **changes):
    """Two ranks."""
    views = [fake_view(rank, hosts[rank], 2, **changes) for rank in range(2)]
    return fake_job(views, nodes, needed_nbytes=needed, least_nbytes=MIB)


@pytest.mark.parametrize("check", check_node.CHECKS)
def test_a_healthy_job_is_well(check):
    assert [found for found in check(healthy_job()) if found.level != "ok"] == []


def test_ranks_on_one_cpu_are_one_finding():
    views = [fake_view(rank, size=4, cpus=(0,)) for rank in range(4)]
    found = bad(check_node.signs, fake_job(views))
    assert found.level == "warning"
    assert "ranks 0-3 on a share CPU 0" in found.what
    assert "--bind-to core" in found.remedy


def test_quota_of_the_container():
    found = bad(check_node.signs, pair(cpu_quota=0.5))
    assert "0.5 CPUs" in found.what
    assert "limit" in found.remedy


def test_machine_that_shares_no_memory():
    found = bad(check_node.signs, pair([[0], [1]]))
    assert found.topic == "nodes"
    assert "--ipc=host" in found.remedy


def test_mpi_splits_otherwise():
    """Each rank alone, or two cliques, where the probe has found one node."""
    views = [fake_view(rank, size=4, mpi_node=rank // 2 * 2) for rank in range(4)]
    found = bad(check_node.signs, fake_job(views))
    assert "by MPI's own split: 2, by the probe: 1" in found.what
    assert "get_topology" in found.remedy


def test_mpi_split_that_does_not_return():
    job = fake_job([fake_view(rank, size=2) for rank in range(2)], split_late=(1,))
    assert bad(check_node.signs, job).ranks == (1,)


SHORT = {
    "too small": (MIB // 2, "error", "SharedMemoryError"),
    "too small for full speed": (2 * MIB, "warning", "smaller cells"),
}


@pytest.mark.parametrize(("free", "level", "why"), SHORT.values(), ids=SHORT)
def test_small_shared_memory(free, level, why):
    found = bad(check_node.shared_memory, pair(shm_free_nbytes=free))
    assert found.level == level
    assert "needs" in found.what
    assert why in found.why
    assert "--shm-size" in found.remedy
    assert found.ranks == (0, 1)


def test_rank_alone_on_its_node_needs_no_shared_memory():
    views = [fake_view(rank, "ab"[rank], 2, shm_free_nbytes=0) for rank in range(2)]
    found = list(check_node.shared_memory(fake_job(views, [[0], [1]], needed_nbytes=0)))
    assert [one.level for one in found] == ["ok", "ok"]


def test_shared_memory_that_is_forbidden_or_missing():
    locked = {"shared_memory": SharedMemory("tmpfs", 0o755, False), "uid": 7}
    found = bad(check_node.shared_memory, fake_job([fake_view(**locked)], topology=None))
    assert "user 7 may not write to /dev/shm, whose mode is 0755" in found.what
    found = bad(check_node.shared_memory, fake_job([fake_view(shm_device=-1)], topology=None))
    assert found.what == "there is no /dev/shm"


def test_shared_memory_on_a_disk():
    found = bad(check_node.shared_memory, pair(shared_memory=SharedMemory("nfs4", 0o1777, True)))
    assert "nfs4, not a tmpfs" in found.what


def test_files_of_killed_jobs():
    left = Leftovers(("mpich_shm_", "ucx_shm_posix_"), 820 * MIB)
    found = bad(check_node.leftovers, pair(leftovers=left))
    assert (found.level, found.ranks) == ("note", (0, 1))
    assert "820.0 MiB" in found.what
    assert "rm /dev/shm/mpich_shm_* /dev/shm/ucx_shm_posix_*" in found.remedy


def test_one_hostname_on_two_machines():
    found = bad(check_node.hostnames, pair([[0], [1]], "ab", hostname="worker"))
    assert "2 machines or containers have one hostname, worker" in found.what


def test_nodes_of_one_machine_have_its_name():
    assert list(check_node.hostnames(pair([[0], [1]]))) == []


@pytest.mark.parametrize(("nodes", "level"), [([[0, 1]], "note"), ([[0], [1]], "warning")])
def test_machine_called_localhost(nodes, level):
    job = pair(nodes, "aa" if level == "note" else "ab", hostname="localhost.localdomain")
    levels = {found.what: found.level for found in check_node.hostnames(job)}
    assert levels["a machine is called localhost.localdomain"] == level


def test_names_that_differ_after_a_dot():
    views = [
        fake_view(rank, host, 2, hostname=f"node.{host}") for rank, host in enumerate(["x", "y"])
    ]
    found = bad(check_node.hostnames, fake_job(views, [[0], [1]]))
    assert "only after the first dot: node.x, node.y" in found.what


def test_name_that_stands_for_the_loopback():
    found = bad(check_node.hostnames, pair([[0], [1]], "ab", resolves=("127.0.1.1",)))
    assert "127.0.1.1" in found.what
    assert list(check_node.hostnames(pair(resolves=("127.0.1.1",)))) == []


def test_ranks_free_to_move_between_numa_nodes():
    numa = tuple(NumaNode(n, f"{n}", 0, ()) for n in range(2))
    found = bad(check_node.binding, fake_job([fake_view(cpus=(0, 1), numa_nodes=numa)]))
    assert "NUMA nodes 0-1" in found.what


def test_more_threads_than_cpus():
    found = bad(check_node.binding, fake_job([fake_view(environ={"OMP_NUM_THREADS": "64"})]))
    assert "OMP_NUM_THREADS=64, and a rank has 1 usable CPUs" in found.what
    assert found.remedy == "export OMP_NUM_THREADS=1"


def test_other_jobs_on_the_same_cpus_are_named_once():
    """Both ranks see the stranger; each also sees the other rank, which is none."""
    views = [
        fake_view(
            rank,
            size=2,
            strangers=(Stranger(4711, "train", (rank,)), Stranger(1001 - rank, "python", (rank,))),
        )
        for rank in range(2)
    ]
    views[1] = fake_view(1, size=2, strangers=(Stranger(4711, "train", (0, 1)),))
    found = bad(check_node.binding, fake_job(views))
    assert "bound to CPUs 0-1 of ours, and work: train (pid 4711)" in found.what
    assert found.ranks == (0, 1)


def test_stranger_of_one_machine_is_none_of_another():
    views = [
        fake_view(0, "a", 2, strangers=(Stranger(1001, "train", (0,)),)),
        fake_view(1, "b", 2),
    ]
    found = bad(check_node.binding, fake_job(views, [[0], [1]]))
    assert "train (pid 1001)" in found.what
    assert found.ranks == (0,)
