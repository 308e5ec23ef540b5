"""The agreed answer: which rank is on which node, and what was found around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from hierring.topology.checks import Sign, find_signs, oversubscribed_ranks
from hierring.topology.facts import Facts
from hierring.topology.hardware import Hardware
from hierring.topology.render import describe
from hierring.topology.switches import ring_order
from hierring.topology.sysfs import format_ranges

__all__ = ["Node", "Topology"]


@dataclass(frozen=True)
class Node:
    """Ranks that share memory, ascending; `facts` are theirs, in the same order.

    Attributes:
        number: its node_rank; nodes are numbered by their lowest rank.
        oversubscribed: whether some of its ranks have less than a CPU each.
    """

    number: int
    ranks: tuple[int, ...]
    facts: tuple[Facts, ...]
    oversubscribed: bool

    @property
    def hostname(self) -> str:
        """As its leader has it; a name only, never the reason why ranks are on one node."""
        return self.facts[0].hostname

    @property
    def leader(self) -> int:
        """The lowest rank, which speaks for the node."""
        return self.ranks[0]

    @property
    def local_size(self) -> int:
        """Number of ranks on the node."""
        return len(self.ranks)

    @property
    def hardware(self) -> Hardware:
        """What its leader sees of the machine."""
        return self.facts[0].hardware


@dataclass(frozen=True)
class Topology:
    """The nodes of one communicator as one of its ranks holds them; only `rank` differs by rank.

    Attributes:
        rank: the rank that holds it.
        nodes: by number.
        simulated: the nodes are pretended and run on one machine (HIERRING_SIMULATE_NODES).
        shared_memory: False if sharing is switched off and every rank is a node.
        signs: what the user should know about this launch, by sort.
    """

    rank: int
    nodes: tuple[Node, ...]
    simulated: bool = False
    shared_memory: bool = True
    signs: tuple[Sign, ...] = ()

    @classmethod
    def build(
        cls,
        rank: int,
        facts: Sequence[Facts],
        groups: Sequence[Sequence[int]],
        *,
        simulated: bool = False,
        shared_memory: bool = True,
        errors: Sequence[str] = (),
    ) -> Topology:
        """Compose it from what all ranks hold; pure.

        Args:
            rank: the caller's.
            facts: of all ranks.
            groups: the nodes, from `partition`.
            simulated, shared_memory: as configured.
            errors: for each rank why it could make no probe file ("" if it could), from its token.
        """
        crowded = oversubscribed_ranks(facts)
        return cls(
            rank=rank,
            nodes=tuple(
                Node(
                    number=number,
                    ranks=tuple(ranks),
                    facts=tuple(facts[member] for member in ranks),
                    oversubscribed=not crowded.isdisjoint(ranks),
                )
                for number, ranks in enumerate(groups)
            ),
            simulated=simulated,
            shared_memory=shared_memory,
            signs=find_signs(facts, groups, errors, probed=shared_memory and not simulated),
        )

    @cached_property
    def _places(self) -> dict[int, tuple[int, int]]:
        """(node_rank, local_rank) of each rank."""
        return {
            rank: (node.number, local_rank)
            for node in self.nodes
            for local_rank, rank in enumerate(node.ranks)
        }

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self._places)

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return len(self.nodes)

    @property
    def node(self) -> Node:
        """The node of this rank."""
        return self.nodes[self.node_rank]

    @property
    def node_rank(self) -> int:
        """Number of this rank's node."""
        return self._places[self.rank][0]

    @property
    def local_rank(self) -> int:
        """Index of this rank within its node."""
        return self._places[self.rank][1]

    @property
    def local_size(self) -> int:
        """Number of ranks on this rank's node."""
        return self.node.local_size

    @property
    def leaders(self) -> tuple[int, ...]:
        """The leader of each node, by node number."""
        return tuple(node.leader for node in self.nodes)

    @property
    def oversubscribed(self) -> bool:
        """Whether ranks of any node have less than a CPU each."""
        return any(node.oversubscribed for node in self.nodes)

    @property
    def has_rdma(self) -> bool:
        """Whether a node has a live port that MPI reaches without TCP (InfiniBand, RoCE)."""
        return any(nic.rdma and nic.up for node in self.nodes for nic in node.hardware.nics)

    @cached_property
    def leader_order(self) -> tuple[int, ...]:
        """Node numbers as the leader ring visits them, crossing switches as seldom as it can."""
        return ring_order([node.hardware.switch_path for node in self.nodes])

    @cached_property
    def ring_nodes(self) -> tuple[Node, ...]:
        """The nodes in the order of the leader ring."""
        return tuple(self.nodes[number] for number in self.leader_order)

    def ring_position(self, node: int) -> int:
        """Where node number `node` stands in the leader ring."""
        return self.leader_order.index(node)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the user should know about this launch, one sentence each."""
        return tuple(sign.text for sign in self.signs)

    @property
    def placement(self) -> str:
        """How ranks lie: "one node", "one rank per node", "block", "cyclic" or "mixed"."""
        order = [self._places[rank][0] for rank in range(self.size)]
        if self.num_nodes == 1:
            return "one node"
        if self.num_nodes == self.size:
            return "one rank per node"
        if order == sorted(order):
            return "block"
        # Cyclic deals skip nodes that are full.
        dealt = sorted(self._places.values(), key=lambda place: (place[1], place[0]))
        return "cyclic" if [node for node, _ in dealt] == order else "mixed"

    def node_of(self, rank: int) -> int:
        """The number of the node a rank is on."""
        return self._places[rank][0]

    def local_rank_of(self, rank: int) -> int:
        """The index of a rank within its node."""
        return self._places[rank][1]

    def describe(self) -> str:
        """A tree for people: nodes, their hardware, ranks, the leader ring and the warnings."""
        return describe(self)

    def to_dict(self) -> dict[str, Any]:
        """The same as strict JSON holds it: str keys, lists, no NaN."""
        return {
            "rank": self.rank,
            "size": self.size,
            "num_nodes": self.num_nodes,
            "node_rank": self.node_rank,
            "local_rank": self.local_rank,
            "local_size": self.local_size,
            "simulated": self.simulated,
            "shared_memory": self.shared_memory,
            "placement": self.placement,
            "oversubscribed": self.oversubscribed,
            "leaders": list(self.leaders),
            "leader_order": list(self.leader_order),
            "warnings": list(self.warnings),
            "nodes": [_node_to_dict(node) for node in self.nodes],
        }


def _node_to_dict(node: Node) -> dict[str, Any]:
    return {
        "number": node.number,
        "hostname": node.hostname,
        "leader": node.leader,
        "local_size": node.local_size,
        "oversubscribed": node.oversubscribed,
        "shm_nbytes": node.facts[0].shm_nbytes,
        "shm_free_nbytes": node.facts[0].shm_free_nbytes,
        "hardware": _listed(asdict(node.hardware)),
        "ranks": [
            {
                "rank": rank,
                "pid": facts.pid,
                "uid": facts.uid,
                "cpus": format_ranges(facts.cpus),
                "usable_cpus": facts.usable_cpus,
            }
            for rank, facts in zip(node.ranks, node.facts, strict=True)
        ],
    }


def _listed(value: Any) -> Any:
    """Tuples become lists, so that the dictionary equals what JSON gives back."""
    if isinstance(value, dict):
        return {key: _listed(item) for key, item in value.items()}
    return [_listed(item) for item in value] if isinstance(value, (list, tuple)) else value
