"""Schedules of `hierring.ring`, checked by carrying them out on sets."""

from __future__ import annotations

import pytest

from hierring import ring

SIZES = [1, 2, 3, 4, 5, 6, 7, 8, 13]


@pytest.mark.parametrize("count", [0, 1, 2, 7, 64, 1000, 1001])
@pytest.mark.parametrize("parts", [1, 2, 3, 7])
@pytest.mark.parametrize("align", [1, 16])
def test_spans_cover_everything_once_at_aligned_borders(count: int, parts: int, align: int) -> None:
    spans = ring.spans(count, parts, align)
    assert len(spans) == parts
    covered = [index for first, length in spans for index in range(first, first + length)]
    assert covered == list(range(count))
    assert all(first % align == 0 for first, length in spans if length)


@pytest.mark.parametrize("members", SIZES)
def test_reduce_scatter_steps_bring_every_contribution_to_the_chunk_s_owner(members: int) -> None:
    held = [[{me} for _ in range(members)] for me in range(members)]
    for step in range(members - 1):
        sent = []
        for me in range(members):
            out, _ = ring.reduce_scatter_steps(members, me)[step]
            sent.append((out, held[me][out]))
        for me in range(members):
            _, into = ring.reduce_scatter_steps(members, me)[step]
            chunk, arrived = sent[(me - 1) % members]
            assert chunk == into
            assert len(arrived) == ring.weights_before([1] * members, me, step)
            assert not arrived & held[me][into]
            held[me][into] = held[me][into] | arrived
    assert all(held[me][me] == set(range(members)) for me in range(members))


@pytest.mark.parametrize("members", SIZES)
def test_allgather_steps_bring_every_chunk_to_everybody(members: int) -> None:
    held = [{me} for me in range(members)]
    for step in range(members - 1):
        sent = [ring.allgather_steps(members, me)[step][0] for me in range(members)]
        for me in range(members):
            assert sent[me] in held[me]
        for me in range(members):
            into = ring.allgather_steps(members, me)[step][1]
            assert into == sent[(me - 1) % members]
            held[me].add(into)
    assert all(chunks == set(range(members)) for chunks in held)


@pytest.mark.parametrize("members", SIZES)
def test_doubling_covers_all_members_and_counts_them(members: int) -> None:
    held = [{me} for me in range(members)]
    covers = ring.Covers([10 + me for me in range(members)])
    plans = [ring.doubling(members, me) for me in range(members)]
    for me, plan in enumerate(plans):
        if plan.folded is not None:
            assert plans[plan.folded].folds_to == me
            assert covers.fold(me, plan.folded) == (10 + me, 10 + plan.folded)
            held[me] = held[me] | held[plan.folded]
    covers.all_folded()
    core = [me for me, plan in enumerate(plans) if plan.folds_to is None]
    for step in range(len(plans[0].partners)):
        before = [set(ranks) for ranks in held]
        for me in core:
            partner = plans[me].partners[step]
            low, high = min(me, partner), max(me, partner)
            weights = covers.pair(me, partner)
            assert weights == tuple(sum(10 + m for m in before[one]) for one in (low, high))
            assert not before[me] & before[partner]
            held[me] = before[me] | before[partner]
        covers.doubled(plans[0].partners[step])
    assert all(held[me] == set(range(members)) for me in core)


@pytest.mark.parametrize("members", SIZES)
@pytest.mark.parametrize("root", [0, 1, 5])
def test_binomial_tree_reaches_everybody_once(members: int, root: int) -> None:
    root %= members
    assert ring.binomial_parent(members, root, root) is None
    reached = []
    level = [root]
    depth = 0
    while level:
        reached += level
        for me in level:
            for child in ring.binomial_children(members, me, root):
                assert ring.binomial_parent(members, child, root) == me
        level = [c for me in level for c in ring.binomial_children(members, me, root)]
        depth += 1
    assert sorted(reached) == list(range(members))
    assert depth - 1 <= (members - 1).bit_length()
