"""Which ranks share a node, and what their machines are made of.

The package communicates nothing by itself: callers exchange `Facts` and `ProbeToken` and hand the
tables back. All functions of a table are pure, so that ranks with equal tables decide equally.
"""

from __future__ import annotations

from hierring.topology.devices import Gpu, Nic
from hierring.topology.facts import Facts, local_facts
from hierring.topology.hardware import Cache, Hardware, NumaNode
from hierring.topology.links import Link, LinkReport, NodeMemory, RingLink
from hierring.topology.partition import partition
from hierring.topology.probe import (
    Probe,
    ProbeToken,
    candidates,
    join_tables,
    needs_name,
    needs_named_round,
    readable,
)
from hierring.topology.topology import Node, Topology

__all__ = [
    "Cache",
    "Facts",
    "Gpu",
    "Hardware",
    "Link",
    "LinkReport",
    "Nic",
    "Node",
    "NodeMemory",
    "NumaNode",
    "Probe",
    "ProbeToken",
    "RingLink",
    "Topology",
    "candidates",
    "join_tables",
    "local_facts",
    "needs_name",
    "needs_named_round",
    "partition",
    "readable",
]
