"""Where ranks lie, read from the topology in a file.

The topology of a file is a tree of whatever its writer knew, so fields are asked for with care: a
report of an old file lacks a detail rather than failing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hierring.benchmarks.result import Result
from hierring.topology.sysfs import parse_ranges

__all__ = ["NodePlace", "RankPlace", "nodes_of", "ring_order", "ring_rates"]


@dataclass(frozen=True)
class RankPlace:
    """A rank and the NUMA node that all of its CPUs belong to; None if they are of several."""

    rank: int
    cpus: str
    numa: int | None


@dataclass(frozen=True)
class NodePlace:
    """A node: its name, its leader, its NUMA nodes and its ranks."""

    number: int
    hostname: str
    leader: int
    numa: tuple[int, ...]
    ranks: tuple[RankPlace, ...]
    cpus: str
    cores: int | None
    memory_nbytes: int | None
    nics: str
    oversubscribed: bool


def nodes_of(result: Result) -> list[NodePlace]:
    """All nodes, by number."""
    return [_node(node) for node in result.topology.get("nodes", [])]


def _node(node: dict[str, Any]) -> NodePlace:
    hardware = node.get("hardware") or {}
    numa = {one["number"]: set(_cpus(one.get("cpus"))) for one in hardware.get("numa_nodes") or []}
    ranks = tuple(_rank(rank, numa) for rank in node.get("ranks") or [])
    return NodePlace(
        number=node["number"],
        hostname=str(node.get("hostname", "")),
        leader=node.get("leader", ranks[0].rank if ranks else 0),
        numa=tuple(numa),
        ranks=ranks,
        cpus=str(hardware.get("cpus") or "–"),
        cores=hardware.get("num_cores"),
        memory_nbytes=hardware.get("memory_nbytes"),
        nics=_nics(hardware.get("nics") or []),
        oversubscribed=bool(node.get("oversubscribed")),
    )


def _rank(rank: dict[str, Any], numa: dict[int, set[int]]) -> RankPlace:
    cpus = set(_cpus(rank.get("cpus")))
    homes = [number for number, its in numa.items() if cpus & its]
    return RankPlace(
        rank["rank"], str(rank.get("cpus") or "–"), homes[0] if len(homes) == 1 else None
    )


def _cpus(text: object) -> tuple[int, ...]:
    try:
        return parse_ranges(str(text or ""))
    except ValueError:
        return ()


def _nics(nics: list[dict[str, Any]]) -> str:
    used = [nic for nic in nics if nic.get("up") and nic.get("kind") != "loopback"]
    return ", ".join(
        f"{nic.get('name')} {speed / 1e9:g} Gbit/s" if speed else str(nic.get("name"))
        for nic in used
        for speed in [nic.get("speed_bits_per_s")]
    )


def ring_order(result: Result) -> list[int]:
    """Nodes in the order of the leader ring."""
    order = result.topology.get("leader_order")
    return list(order) if order else [node.number for node in nodes_of(result)]


def ring_rates(result: Result) -> tuple[dict[tuple[int, int], float], str]:
    """GB/s of each (sender, receiver) next to each other in the ring, and how it was measured."""
    if result.ring:
        return {link.nodes: link.bandwidth for link in result.ring}, "all links of the ring at once"
    rates = {link.nodes: link.forth for link in result.links}
    rates |= {link.nodes[::-1]: link.back for link in result.links}
    return rates, "one pair of nodes at a time" if rates else "not measured"
