"""What the ranks saw, as plain data: it travels between them, and all judgements come from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hierring.topology import Facts, Topology

__all__ = ["Job", "Leftovers", "Mpi", "Mpiexec", "SharedMemory", "Stranger", "View"]


@dataclass(frozen=True)
class Mpi:
    """The MPI library of a process in which it runs.

    Attributes:
        vendor: "mpich", "openmpi", "impi", another lower-case name, or "" if unknown.
        description: name and version in words.
        standard: the version of the MPI standard.
        files: the library files that are mapped.
        thread_level: "single", "funneled", "serialized" or "multiple".
        cuda: whether it takes pointers to GPU memory; None where it does not say.
        size, rank: of COMM_WORLD.
    """

    vendor: str
    description: str
    standard: str
    files: tuple[str, ...]
    thread_level: str
    cuda: bool | None
    size: int
    rank: int


@dataclass(frozen=True)
class Mpiexec:
    """An mpiexec on this machine: where, whose, and in its own words which."""

    path: str
    vendor: str
    version: str


@dataclass(frozen=True)
class SharedMemory:
    """/dev/shm but for its size: file system ("" unknown), permissions, the user's rights."""

    filesystem: str
    mode: int
    writable: bool


@dataclass(frozen=True)
class Leftovers:
    """Files in /dev/shm that nobody uses: how their names begin, and bytes in all."""

    prefixes: tuple[str, ...]
    nbytes: int


@dataclass(frozen=True)
class Stranger:
    """A process bound to some of the machine's CPUs that works on them and is none of this job."""

    pid: int
    name: str
    cpus: tuple[int, ...]


@dataclass(frozen=True)
class View:
    """What one rank sees.

    Attributes:
        facts: as hierring itself gathers them.
        network: number of the network namespace; containers of one machine may share one.
        version: of hierring.
        environ: the variables that matter, see `look`.
        settings_error: what is wrong with the settings, or "".
        mpi: None where MPI could not be started.
        packages: version by name of installed packages that matter.
        ancestors: pids of this process and of those above it, up to the first of the system.
        started_by: name of the closest ancestor that is a launcher, or "".
        mpiexecs: those that a user would call; only rank 0 looks.
        pmi_plugins: what `srun --mpi=list` knows; None where there is no srun. Only rank 0 looks.
        resolves: addresses that the own hostname stands for; None where the answer did not come.
        cpu_features: those of the CPU that hierring has kernels for.
        simd_levels: what the compiled core can use here, plainest first.
        memlock_nbytes: limit of locked memory, None for none.
        ptrace_scope: of the Yama security module, -1 where there is none.
    """

    facts: Facts
    network: int
    version: str
    environ: Mapping[str, str]
    settings_error: str
    mpi: Mpi | None
    packages: Mapping[str, str]
    shared_memory: SharedMemory
    leftovers: Leftovers
    ancestors: tuple[int, ...]
    started_by: str
    strangers: tuple[Stranger, ...]
    resolves: tuple[str, ...] | None
    cpu_features: frozenset[str]
    simd_levels: tuple[str, ...]
    memlock_nbytes: int | None
    ptrace_scope: int
    mpiexecs: tuple[Mpiexec, ...] = ()
    pmi_plugins: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Job:
    """What all ranks saw, and what they found out together; equal on all of them.

    Attributes:
        views: by rank.
        topology: None where the ranks could not be grouped.
        readable: for each rank whether the kernel let it read the memory of a peer on its node (of
            the process above it, if it is alone); None where that could not be tried.
        needed_nbytes, least_nbytes: segment of the largest node, as set and with the smallest
            cells; 0 where no node has two ranks.
        split_late: ranks whose call of MPI's own split by shared memory did not return.
    """

    views: tuple[View, ...]
    topology: Topology | None = None
    readable: tuple[bool | None, ...] = ()
    needed_nbytes: int = 0
    least_nbytes: int = 0
    split_late: tuple[int, ...] = ()

    @property
    def num_nodes(self) -> int:
        """How many nodes were found; 1 where none were."""
        return self.topology.num_nodes if self.topology is not None else 1

    @property
    def simulated(self) -> bool:
        """Whether the nodes are pretended, so that what they are named or made of means little."""
        return self.topology is not None and self.topology.simulated

    def network_views(self) -> list[list[View]]:
        """The same, but nodes with the very same interfaces count as one."""
        places: dict[tuple[str, int], list[View]] = {}
        for views in self.node_views():
            facts = views[0].facts
            key = (facts.boot_id, views[0].network) if views[0].network else (facts.hostname, -1)
            places.setdefault(key, []).extend(views)
        return list(places.values())

    def node_views(self) -> list[list[View]]:
        """The views of each node's ranks; all in one where there is no topology."""
        if self.topology is None:
            return [list(self.views)]
        return [[self.views[rank] for rank in node.ranks] for node in self.topology.nodes]
