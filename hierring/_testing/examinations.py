"""Made-up examinations for the doctor's judgements: views of ranks that never looked."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from hierring._testing.machines import fake_facts
from hierring.launch.doctor.view import Job, Leftovers, Mpi, Mpiexec, SharedMemory, View
from hierring.topology import Nic, Topology

__all__ = ["fake_job", "fake_mpi", "fake_nic", "fake_view", "healthy_job"]


def fake_mpi(rank: int = 0, size: int = 1, **changes: object) -> Mpi:
    """An MPICH with nothing wrong."""
    mpi = Mpi(
        vendor="mpich",
        description="MPICH 5.0.2",
        standard="5.0",
        files=("/opt/mpich/lib/libmpi.so.12",),
        thread_level="multiple",
        cuda=None,
        size=size,
        rank=rank,
    )
    return dataclasses.replace(mpi, **changes)  # type: ignore[arg-type]


def fake_nic(name: str = "eth0", address: str = "", **changes: object) -> Nic:
    """An interface of 10 Gbit/s that is up."""
    nic = Nic(name, "ethernet", True, 10**10, 1500, None, (address,) if address else ())
    return dataclasses.replace(nic, **changes)  # type: ignore[arg-type]


def fake_view(rank: int = 0, host: str = "a", size: int = 1, **changes: object) -> View:
    """What a rank on a healthy machine sees, started by hydra where there are several.

    Args:
        rank, size: its rank, and how many there are.
        host: name of its machine, from which the kernel and the network follow.
        changes: fields of View, of its Mpi, or of its Facts and Hardware, that differ.
    """
    view = View(
        facts=fake_facts(rank, host),
        network=sum(host.encode()),
        version="1.0",
        environ={"PMI_SIZE": str(size)} if size > 1 else {},
        settings_error="",
        mpi=fake_mpi(rank, size),
        packages={"mpi4py": "4.1"},
        shared_memory=SharedMemory("tmpfs", 0o1777, True),
        leftovers=Leftovers((), 0),
        ancestors=(1000 + rank, 100),
        started_by="hydra_pmi_proxy" if size > 1 else "",
        strangers=(),
        resolves=(f"10.0.0.{rank}",),
        cpu_features=frozenset({"avx2", "f16c", "fma"}),
        simd_levels=("scalar", "avx2"),
        memlock_nbytes=None,
        ptrace_scope=-1,
        mpiexecs=() if rank else (Mpiexec("/opt/mpich/bin/mpiexec", "mpich", "5.0.2"),),
    )
    own = {name: value for name, value in changes.items() if hasattr(view, name)}
    mpi = {name: value for name, value in changes.items() if hasattr(view.mpi, name)}
    below = {n: value for n, value in changes.items() if n not in own and n not in mpi}
    below.setdefault("nics", (fake_nic(address=f"10.0.0.{rank}"),))
    if mpi:
        own["mpi"] = fake_mpi(rank, **{"size": size, **mpi})  # type: ignore[arg-type]
    facts = fake_facts(rank, host, **below)
    return dataclasses.replace(view, facts=facts, **own)  # type: ignore[arg-type]


def fake_job(
    views: Sequence[View], nodes: Sequence[Sequence[int]] | None = None, **changes: object
) -> Job:
    """A job in which the ranks found these nodes; all on one if none are given."""
    groups = [list(range(len(views)))] if nodes is None else nodes
    topology = Topology.build(0, [view.facts for view in views], groups)
    job = Job(tuple(views), topology, (True,) * len(views), 1 << 20, 1 << 16)
    return dataclasses.replace(job, **changes)  # type: ignore[arg-type]


def healthy_job() -> Job:
    """Four ranks on two machines, and nothing to complain of."""
    views = [fake_view(rank, "aabb"[rank], 4) for rank in range(4)]
    return fake_job(views, [[0, 1], [2, 3]])
