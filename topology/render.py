"""A topology as a tree of text, in ASCII so that any terminal or log takes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hierring.topology.facts import Facts
from hierring.topology.hardware import Cache, Hardware
from hierring.topology.sysfs import format_ranges, parse_ranges

if TYPE_CHECKING:
    from hierring.topology.topology import Node, Topology

__all__ = ["describe"]


def describe(topology: Topology) -> str:
    """The whole tree, one entry a line, without a newline at the end."""
    lines = [_headline(topology)]
    seen: dict[tuple[str, ...], int] = {}
    for node in topology.nodes:
        lines.append(f"|-- {_node_line(node)}")
        entries = [*_machine_entries(node, seen), *_nic_entries(node.hardware)]
        entries += _rank_entries(node, topology.rank)
        lines += [f"|   |-- {entry}" for entry in entries]
    lines.append(f"`-- leader ring: {_ring(topology)}")
    lines += [f"warning: {warning}" for warning in topology.warnings]
    return "\n".join(lines)


def _headline(topology: Topology) -> str:
    notes = ["simulated nodes"] if topology.simulated else []
    notes += [] if topology.shared_memory else ["shared memory off"]
    sizes = ", ".join(str(node.local_size) for node in topology.nodes)
    return (
        f"hierring: {_count(topology.size, 'rank')} on {_count(topology.num_nodes, 'node')} "
        f"[{sizes}], placement: {topology.placement}" + "".join(f", {note}" for note in notes)
    )


def _node_line(node: Node) -> str:
    ranks = f"{'ranks' if len(node.ranks) > 1 else 'rank'} {format_ranges(node.ranks)}"
    return (
        f"node {node.number}: {node.hostname}, {ranks}, "
        f"leader {node.leader}{', oversubscribed' if node.oversubscribed else ''}"
    )


def _machine_entries(node: Node, seen: dict[tuple[str, ...], int]) -> Sequence[str]:
    """CPUs, memory, caches and GPUs; one line where an earlier node has just the same."""
    hardware = node.hardware
    entries = [_cpu_entry(hardware), _memory_entry(hardware)]
    entries += [
        f"NUMA {numa.number}: CPUs {numa.cpus or 'none'}, {_nbytes(numa.memory_nbytes)}"
        for numa in hardware.numa_nodes
    ]
    entries += [_cache_entry(cache) for cache in hardware.caches]
    entries += [
        f"GPU {gpu.address}: {gpu.vendor} {gpu.model}".rstrip() + _at_numa(gpu.numa_node)
        for gpu in hardware.gpus
    ]
    like = seen.setdefault(tuple(entries), node.number)
    if like != node.number:
        entries = [f"CPUs, memory, caches and GPUs as node {like}"]
    entries.append(_shm_entry(node.facts[0]))
    if hardware.switch_path:
        entries.append(f"switches: {' > '.join(hardware.switch_path)}")
    return entries


def _cpu_entry(hardware: Hardware) -> str:
    text = f"CPUs {hardware.cpus}"
    if hardware.num_cores:
        sockets = _count(max(1, hardware.num_sockets), "socket")
        text += f": {_count(hardware.num_cores, 'core')} in {sockets}"
    if hardware.cpu_quota is not None:
        text += f", cgroup grants {hardware.cpu_quota:g}"
    return text


def _memory_entry(hardware: Hardware) -> str:
    text = f"memory {_nbytes(hardware.memory_nbytes)}"
    if hardware.memory_limit_nbytes is not None:
        text += f", cgroup grants {_nbytes(hardware.memory_limit_nbytes)}"
    return text


def _shm_entry(facts: Facts) -> str:
    if facts.shm_device < 0:
        return "no /dev/shm"
    return f"/dev/shm {_nbytes(facts.shm_nbytes)}, {_nbytes(facts.shm_free_nbytes)} free"


def _cache_entry(cache: Cache) -> str:
    kind = {"data": "d", "instruction": "i"}.get(cache.kind, "")
    shared = "" if len(cache.groups) > 8 else f", CPUs {' | '.join(cache.groups)}"
    return f"L{cache.level}{kind}: {len(cache.groups)} x {_nbytes(cache.nbytes)}{shared}"


def _nic_entries(hardware: Hardware) -> list[str]:
    """The interfaces that can reach another node: up, with a device or an address."""
    return [
        f"NIC {nic.name}: {nic.kind}, {_speed(nic.speed_bits_per_s)}"
        + "".join(f", {address}" for address in nic.addresses)
        + _at_numa(nic.numa_node)
        for nic in hardware.nics
        if nic.up and nic.kind != "loopback" and (nic.kind != "virtual" or nic.addresses)
    ]


def _rank_entries(node: Node, own_rank: int) -> list[str]:
    entries = []
    for rank, facts in zip(node.ranks, node.facts, strict=True):
        numa = [
            numa.number
            for numa in facts.hardware.numa_nodes
            if set(parse_ranges(numa.cpus)) & set(facts.cpus)
        ]
        entries.append(
            f"rank {rank}: pid {facts.pid}, CPUs {format_ranges(facts.cpus)} "
            f"({facts.usable_cpus} usable)"
            + (f", NUMA {format_ranges(numa)}" if numa else "")
            + (" <- this rank" if rank == own_rank else "")
        )
    return entries


def _ring(topology: Topology) -> str:
    order = topology.leader_order
    if len(order) == 1:
        return "none, there is one node"
    return " -> ".join(f"node {number}" for number in (*order, order[0]))


def _at_numa(number: int | None) -> str:
    return "" if number is None else f", NUMA {number}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _nbytes(number: int) -> str:
    """Bytes in the largest unit that leaves a number of at least 1: "512 KiB", "23.5 GiB"."""
    value = float(number)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.4g} {unit}"
        value /= 1024
    return f"{value:.4g} TiB"


def _speed(bits_per_s: int | None) -> str:
    if bits_per_s is None:
        return "speed unknown"
    giga = bits_per_s / 1e9
    return f"{giga:g} Gbit/s" if giga >= 1 else f"{bits_per_s / 1e6:g} Mbit/s"
