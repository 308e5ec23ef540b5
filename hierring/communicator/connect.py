"""From an MPI communicator to a topology and a node's memory, every step agreed by all ranks."""

from __future__ import annotations

import contextlib
import errno
import os
from typing import Any

from hierring import _core
from hierring._version import __version__
from hierring.communicator.contact import Contact, Deadline, Resumable
from hierring.config import Config, parse_nodes
from hierring.errors import ConfigurationError, SharedMemoryError
from hierring.internode import bootstrap
from hierring.intranode import NodeMemory, plan_layout
from hierring.topology import (
    Facts,
    Probe,
    ProbeToken,
    Topology,
    join_tables,
    local_facts,
    needs_name,
    needs_named_round,
    partition,
    readable,
)

__all__ = ["build_memory", "discover", "first_contact", "sweep_leftovers"]

#: Below this the pieces are so short that the flags cost more than the data.
SMALLEST_CELL_BYTES = 4096


#: Duplications that timed out, by the communicator they are of.
_unfinished: list[tuple[Any, Resumable]] = []


def first_contact(comm: Any, config: Config) -> Contact:
    """Duplicate `comm`; collective over its ranks, ends with an error after init_timeout_s."""
    from mpi4py import MPI

    deadline = Deadline(config.init_timeout_s, "hierring.init", [])
    # After a timeout the duplication is still under way, and a second one would not meet the first
    # one of a rank that comes late: a new try goes on with the old one.
    pending = next((item for item in _unfinished if item[0] == comm), None)
    if pending is None:
        pending = (comm, Resumable(bootstrap.duplicate(comm)))
        _unfinished.append(pending)
    twin = pending[1].run(deadline)
    _unfinished.remove(pending)
    size = twin.Get_size()
    members = list(range(size))
    world = MPI.Group.Translate_ranks(twin.Get_group(), members, MPI.COMM_WORLD.Get_group())
    return Contact(twin, members, twin.Get_rank(), [int(rank) for rank in world])


def discover(
    contact: Contact, config: Config, mpi_node: int | None = None
) -> tuple[Topology, bool]:
    """Compare settings and find out which ranks share memory.

    Args:
        mpi_node: what MPI's own split says of this rank, see Facts. An init leaves it out, because
            MPI can only split in a call that blocks.

    Returns the topology, and whether some node's segment needs a name (where /proc hides unnamed
    ones). Raises ConfigurationError on every rank if the ranks' settings or versions differ.
    """
    seconds = config.init_timeout_s
    with contextlib.ExitStack() as stack:
        probe: Probe | None = None

        def look() -> tuple[str, dict[str, object], Facts, ProbeToken]:
            nonlocal probe
            probe = stack.enter_context(Probe())
            facts = local_facts(contact.me, mpi_node=mpi_node)
            return __version__, config.protocol_fingerprint(), facts, probe.token

        answers = contact.agree(look, seconds, "hierring.init")
        assert probe is not None
        _compare([(version, settings) for version, settings, _, _ in answers])
        facts = [facts for _, _, facts, _ in answers]
        tokens = [token for _, _, _, token in answers]
        found = readable(probe, facts, tokens, contact.me)
        table = contact.allgather(found, seconds, "hierring.init")
        first_table = table
        if needs_named_round(facts, table):
            named_tokens = contact.agree(probe.name_file, seconds, "hierring.init")
            found = readable(probe, facts, named_tokens, contact.me)
            table = join_tables(table, contact.allgather(found, seconds, "hierring.init"))
        simulated = _simulated(config, contact)
        nodes = partition(table, simulated, config.shared_memory)
        named = any(needs_name(ranks, tokens, first_table) for ranks in nodes if len(ranks) > 1)
        # Nobody takes its probe away before all have looked.
        contact.allgather(None, seconds, "hierring.init")
    topology = Topology.build(
        contact.me,
        facts,
        nodes,
        simulated=simulated is not None,
        shared_memory=config.shared_memory,
        errors=[token.error for token in tokens],
    )
    return topology, named


def _compare(claims: list[tuple[str, dict[str, object]]]) -> None:
    """Raise, on every rank alike, if two ranks have other settings."""
    version, settings = claims[0]
    for rank, (other_version, other) in enumerate(claims):
        if other_version != version:
            raise ConfigurationError(
                f"rank 0 runs hierring {version}, rank {rank} {other_version}: install one version"
            )
        for name, value in settings.items():
            if other.get(name) != value:
                raise ConfigurationError(
                    f"{name} is {value!r} on rank 0 and {other.get(name)!r} on rank {rank}: set it "
                    f"alike on all ranks (HIERRING_{name.upper()})"
                )


def _simulated(config: Config, contact: Contact) -> list[int] | None:
    """The pretended node of each rank, from the layout of MPI.COMM_WORLD's ranks."""
    if config.simulate_nodes is None:
        return None
    from mpi4py import MPI

    layout = parse_nodes(config.simulate_nodes, MPI.COMM_WORLD.Get_size())
    return [layout[rank] for rank in contact.world]


def build_memory(contact: Contact, topology: Topology, config: Config, named: bool) -> NodeMemory:
    """Create, attach and reserve the node's segment, with smaller cells where /dev/shm is short.

    Raises SharedMemoryError with both sizes, on every rank, if even the smallest don't fit.
    """
    cell_bytes = config.cell_bytes
    while True:
        memory, shortage = _try_memory(contact, topology, config, named, cell_bytes)
        if shortage is None:
            return memory
        memory.close()
        smaller = max(cell_bytes // 2 // 64 * 64, SMALLEST_CELL_BYTES)
        if smaller >= cell_bytes:
            needed, available, rank = shortage
            raise SharedMemoryError(
                f"the node of rank {rank} needs {needed} bytes in /dev/shm and {available} are "
                "free: enlarge /dev/shm (in containers: --shm-size), remove what lies there, lower "
                "HIERRING_CELL_BYTES, or set HIERRING_SHARED_MEMORY=0",
                needed_bytes=needed,
                available_bytes=available,
            )
        cell_bytes = smaller


def _try_memory(
    contact: Contact, topology: Topology, config: Config, named: bool, cell_bytes: int
) -> tuple[NodeMemory, tuple[int, int, int] | None]:
    """One try; the second value says who had too little: (needed, available, rank)."""
    seconds, what = config.init_timeout_s, "setting up shared memory"
    sizes = [len(node.ranks) for node in topology.nodes]
    layout = plan_layout(min(sizes), len(sizes), cell_bytes, config.slice_bytes, config.small_bytes)
    memory = NodeMemory(
        layout, topology.local_rank, topology.local_size, config.intra_schedule == "ring"
    )
    leader = topology.nodes[topology.node_rank].ranks[0]
    try:
        created = contact.agree(
            lambda: _create(memory, named) if contact.me == leader else None, seconds, what
        )
        path, available = created[leader] or ("", 0)
        contact.agree(
            lambda: None if contact.me == leader else _attach(memory, path),
            seconds,
            what,
        )
        if contact.me == leader:
            memory.unlink()
        shortages = contact.agree(lambda: _claim(memory, topology, available), seconds, what)
    except BaseException:
        memory.close()
        raise
    for rank, shortage in enumerate(shortages):
        if shortage is not None:
            return memory, (*shortage, rank)
    return memory, None


def _create(memory: NodeMemory, named: bool) -> tuple[str, int]:
    """(path of the node's new segment, bytes that /dev/shm had left for it)."""
    try:
        path = memory.create(named)
        free = os.statvfs("/dev/shm") if path else None
    except OSError as error:
        raise _unusable("create", error, memory) from error
    return path, free.f_bavail * free.f_frsize if free is not None else 0


def _attach(memory: NodeMemory, path: str) -> None:
    try:
        memory.attach(path)
    except OSError as error:
        raise _unusable("attach to", error, memory) from error


def _unusable(what: str, error: OSError, memory: NodeMemory) -> SharedMemoryError:
    return SharedMemoryError(
        f"could not {what} a segment of {memory.nbytes} bytes in /dev/shm ({error}): it must be a "
        "tmpfs that this user may write to; or set HIERRING_SHARED_MEMORY=0, which is slower",
        needed_bytes=memory.nbytes,
    )


def _claim(memory: NodeMemory, topology: Topology, available: int) -> tuple[int, int] | None:
    """Reserve this rank's part; (needed, available) bytes of the node if there is no room.

    Args:
        available: what was free before any rank of the node reserved its part.
    """
    try:
        memory.claim(topology.oversubscribed)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.ENOMEM):
            raise
        return memory.nbytes, available
    return None


def sweep_leftovers() -> None:
    """Unlink named segments that a killed run left behind; nobody holds their lock any more."""
    with contextlib.suppress(OSError):  # no /dev/shm here: init will say so if it matters
        _core.sweep()
