"""Schedules of a link probe, its matrices, and who is named as slow."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations

import pytest

from hierring.topology import Link, LinkReport, NodeMemory, RingLink
from hierring.topology.links import neighbour_rounds, tournament


def report(nodes: int) -> LinkReport:
    """All links and nodes alike."""
    return LinkReport(
        num_nodes=nodes,
        links=tuple(Link(pair, 25e-6, 1.0, 1.25, 0.75) for pair in combinations(range(nodes), 2)),
        ring=tuple(RingLink((node, (node + 1) % nodes), 0.5) for node in range(nodes)),
        memory=tuple(NodeMemory(node, 10.0, 5.0) for node in range(nodes)),
    )


@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 5, 8, 13, 64])
def test_in_a_tournament_all_meet_once(nodes: int) -> None:
    rounds = tournament(nodes)
    assert sorted(pair for meetings in rounds for pair in meetings) == list(
        combinations(range(nodes), 2)
    )
    for meetings in rounds:
        players = [node for pair in meetings for node in pair]
        assert len(players) == len(set(players)), "nobody can be in two meetings of a round"
    assert len(rounds) == (nodes if nodes % 2 and nodes > 1 else nodes - 1), "no idle rounds"


@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 5, 8, 301])
def test_neighbours_meet_in_few_rounds(nodes: int) -> None:
    order = [(11 * place) % nodes for place in range(nodes)]
    rounds = neighbour_rounds(order)
    wanted = {tuple(sorted((order[i], order[(i + 1) % nodes]))) for i in range(nodes)} - {(0, 0)}
    found = [pair for meetings in rounds for pair in meetings]
    assert set(found) == wanted
    assert len(found) == len(wanted)
    assert len(rounds) <= 3
    for meetings in rounds:
        players = [node for pair in meetings for node in pair]
        assert len(players) == len(set(players))


def test_nobody_is_slow_among_equals() -> None:
    assert report(4).slow() == ()
    assert report(1).slow() == ()
    assert LinkReport(1, (), (), (NodeMemory(0, 10.0, None),)).slow() == ()


def test_slow_links_are_named_with_their_direction() -> None:
    alike = report(4)
    links = tuple(
        replace(link, back=0.25) if link.nodes == (1, 3) else link for link in alike.links
    )
    (text,) = replace(alike, links=links).slow()
    assert "from node 3 to node 1 " in text
    assert "0.25 GB/s" in text
    ring = (*alike.ring[:3], RingLink((3, 0), 0.1))
    (text,) = replace(alike, ring=ring).slow()
    assert "from node 3 to node 0" in text
    assert "ring" in text


@pytest.mark.parametrize("nodes", [3, 4, 6])
def test_a_slow_node_is_named_once(nodes: int) -> None:
    """Though most of the links of three nodes are slow then, and slow is what is usual."""
    alike = report(nodes)
    links = tuple(
        replace(link, forth=0.1, back=0.1, both=0.1) if 1 in link.nodes else link
        for link in alike.links
    )
    ring = tuple(replace(link, bandwidth=0.05) if 1 in link.nodes else link for link in alike.ring)
    texts = replace(alike, links=links, ring=ring).slow()
    assert len(texts) == 2
    assert "out of node 1 carries 0.1 GB/s" in texts[0]
    assert "into node 1 carries 0.1 GB/s" in texts[1]


def test_two_nodes_can_differ_in_direction_only() -> None:
    links = (Link((0, 1), 25e-6, 1.0, 0.1, 0.1),)
    (text,) = replace(report(2), links=links).slow()
    assert "link from node 1 to node 0 " in text


def test_slow_memory_is_named() -> None:
    memory = (*report(3).memory[:2], NodeMemory(2, 4.0, 2.0))
    texts = replace(report(3), memory=memory).slow()
    assert len(texts) == 2
    assert all("memory of node 2 " in text for text in texts)


def test_description() -> None:
    text = report(3).describe()
    lines = text.splitlines()
    assert lines[0] == "latency between nodes, microseconds"
    assert lines[1].split() == ["0", "1", "2"]
    assert lines[3].split() == ["1", "25", "-", "25"]
    ways = lines.index("bandwidth from node (row) to node, GB/s")
    assert lines[ways + 2].split() == ["0", "-", "1", "1"]
    assert lines[ways + 4].split() == ["2", "1.25", "1.25", "-"]
    assert "leader ring, all links at once, GB/s: 0>1 0.5, 1>2 0.5, 2>0 0.5" in lines
    assert "node 2: memcpy 10 GB/s a rank, shared memory 5 GB/s" in lines
    assert text.isascii()
    assert "slow" not in text


def test_many_nodes_are_summed_up() -> None:
    lines = report(40).describe().splitlines()
    assert max(map(len, lines)) < 120
    assert len(lines) < 40
    assert lines[0].startswith("780 links: 1 to 1 GB/s")


def test_json_is_strict() -> None:
    found = report(2).to_dict()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["links"] == [
        {"nodes": [0, 1], "latency": 25e-6, "forth": 1.0, "back": 1.25, "both": 0.75}
    ]
    assert found["slow"] == []
