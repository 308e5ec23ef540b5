"""Who is named as slow, and who isn't."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from hierring.benchmarks.cases import faster_of
from hierring.benchmarks.figures import Ratio
from hierring.benchmarks.result import load
from hierring.benchmarks.stragglers import find_stragglers
from hierring.topology import Link, NodeMemory

SAMPLE = load(Path(__file__).resolve().parents[1] / "data" / "bench-2x2.json")
#: A case of four ranks on two nodes; what differs is set by each test.
CASE = next(case for case in SAMPLE.cases if case.library == "hierring" and case.ratio is None)


def case_of(lateness, awaited=(0.0,) * 4, time_s=1e-3, iterations=10):
    times = dataclasses.replace(CASE.times, mean=time_s)
    ranks = tuple(
        dataclasses.replace(rank, lateness=late, awaited=waited)
        for rank, late, waited in zip(CASE.ranks, lateness, awaited, strict=True)
    )
    return dataclasses.replace(CASE, times=times, ranks=ranks, iterations=iterations)


def ranks_of(*cases):
    return [one for one in find_stragglers(cases, (), ()) if one.kind == "rank"]


def test_a_rank_that_comes_late_is_named():
    (found,) = ranks_of(case_of((1e-5, 2e-5, 8e-4, 1e-5)))
    assert (found.members, found.evidence, found.stands_out) == ((2,), "lateness", True)
    assert found.value == 8e-4
    assert "rank 2 (node 1) comes 800 us" in found.text


def test_a_rank_that_its_node_waits_for_is_named():
    (found,) = ranks_of(case_of((1e-5,) * 4, (1e-5, 1e-5, 1e-5, 7e-4)))
    assert (found.members, found.evidence, found.stands_out) == ((3,), "awaited", True)


def test_the_slowest_is_listed_though_it_is_within_the_usual():
    (found,) = ranks_of(case_of((1e-5, 2e-5, 3e-5, 1e-5)))
    assert (found.members, found.stands_out) == ((2,), False)


def test_a_crowd_of_late_ranks_is_no_straggler():
    """As on a machine with more ranks than cores."""
    (found,) = ranks_of(case_of((4e-4, 5e-4, 6e-4, 5e-4)))
    assert not found.stands_out


def test_cases_count_by_the_time_they_take():
    """Late in short calls is nothing beside being late in long ones."""
    short = case_of((9e-6, 0, 0, 0), time_s=1e-5)
    long = case_of((0, 5e-2, 0, 0), time_s=1e-1)
    (found,) = ranks_of(short, long)
    assert (found.members, found.stands_out) == ((1,), True)


def test_ranks_alone_on_their_nodes_can_only_be_late():
    (found,) = ranks_of(case_of((1e-5, 9e-4, 1e-5, 1e-5), (None,) * 4))
    assert (found.members, found.evidence) == ((1,), "lateness")


def test_a_node_is_slow_if_all_its_ranks_are():
    def node(lateness):
        return [one for one in find_stragglers([case_of(lateness)], (), ()) if one.kind == "node"]

    (slow,) = node((1e-5, 1e-5, 5e-4, 6e-4))
    assert (slow.members, slow.stands_out) == ((1,), True)
    (one_rank,) = node((1e-5, 1e-5, 1e-5, 6e-4))
    assert not one_rank.stands_out


def links(*speeds):
    pairs = ((0, 1), (0, 2), (1, 2))
    return [
        Link(pair, 1e-5, speed, speed, speed) for pair, speed in zip(pairs, speeds, strict=True)
    ]


def test_a_node_behind_a_slow_link_is_named_for_both_ways():
    found = find_stragglers((), links(0.1, 0.1, 1.0), ())
    assert [(one.kind, one.members, one.evidence) for one in found] == [
        ("node", (0,), "bandwidth"),
        ("node", (0,), "bandwidth"),
    ]
    assert found[0].text == "node 0 sends 0.1 GB/s at best, the median node 1"
    assert found[1].text == "node 0 receives 0.1 GB/s at best, the median node 1"


def test_a_node_that_sends_slowly_is_named_for_that():
    pairs = (((0, 1), 0.1, 1.0), ((0, 2), 0.1, 1.0), ((1, 2), 1.0, 1.0))
    rows = [Link(pair, 1e-5, forth, back, 1.0) for pair, forth, back in pairs]
    (found,) = find_stragglers((), rows, ())
    assert found.text == "node 0 sends 0.1 GB/s at best, the median node 1"


def test_a_slow_link_between_good_nodes_is_named():
    found = find_stragglers((), links(1.0, 1.0, 0.1), ())
    assert [(one.kind, one.members) for one in found] == [("link", (1, 2)), ("link", (2, 1))]


def test_of_two_nodes_the_slow_direction_is_named():
    (found,) = find_stragglers((), [Link((0, 1), 1e-5, 1.0, 0.1, 0.1)], ())
    assert (found.kind, found.members, found.value, found.median) == ("link", (1, 0), 0.1, 1.0)


def test_equal_links_and_the_only_one_are_not():
    assert find_stragglers((), links(1.0, 0.9, 1.1), ()) == ()
    assert find_stragglers((), [Link((0, 1), 1e-5, 0.1, 0.1, 0.1)], ()) == ()


def test_a_node_with_slow_memory_is_named():
    memory = [NodeMemory(node, rate, None) for node, rate in enumerate((5.0, 2.0, 5.5))]
    (found,) = find_stragglers((), (), memory)
    assert (found.kind, found.members, found.evidence) == ("node", (1,), "memcpy")


def test_one_rank_and_no_case_have_no_straggler():
    alone = dataclasses.replace(CASE, ranks=CASE.ranks[:1])
    assert find_stragglers([alone], (), ()) == ()
    assert find_stragglers((), (), ()) == ()


def other(algorithm, median, high, library="hierring"):
    return dataclasses.replace(
        CASE, library=library, algorithm=algorithm, ratio=Ratio("hierring auto", median, 0.1, high)
    )


def test_the_best_of_the_algorithms_that_beat_auto_is_listed():
    found = faster_of([CASE, other("tree", 0.8, 0.9), other("ring", 0.7, 0.9)])
    assert [(one.better, one.ratio) for one in found] == [("hierring ring", 0.7)]


def test_peers_and_draws_are_not_listed():
    draws = [other("tree", 0.97, 0.99), other("ring", 0.8, 1.3), other("", 0.5, 0.6, "mpi")]
    assert faster_of([CASE, *draws]) == ()
