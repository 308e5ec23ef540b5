"""How blocks are cut into pieces, and how a call is described to the other ranks."""

from __future__ import annotations

import numpy as np
import pytest

from hierring.communicator.descriptor import ALGORITHMS, KINDS, REFUSED, Descriptor, digest_of
from hierring.communicator.transfer import (
    Transfer,
    block_pieces,
    gather_pieces,
    scatter_pieces,
)
from hierring.dtypes import DType, itemsize, parse_op

NODE_OF = {"2x2": [0, 0, 1, 1], "cyclic": [0, 1, 0, 1], "3+1": [0, 0, 0, 1], "one": [0, 0, 0, 0]}


@pytest.mark.parametrize("counts", [[5, 0, 17, 8], [1, 1, 1, 1], [0, 0, 0, 0], [0, 0, 0, 100]])
@pytest.mark.parametrize("layout", list(NODE_OF))
@pytest.mark.parametrize("cell", [1, 4, 1000])
def test_gathered_pieces_cover_every_element_once(
    counts: list[int], layout: str, cell: int
) -> None:
    """Carried out with arrays: every rank contributes its rows and all get everything."""
    node_of = NODE_OF[layout]
    places = [sum(counts[:rank]) for rank in range(4)]
    blocks = [100 * rank + np.arange(count) for rank, count in enumerate(counts)]
    plans = [gather_pieces(counts, places, node_of, me, cell) for me in range(4)]
    assert len({len(plan.owners) for plan in plans}) == 1
    assert all(plan.owners == plans[0].owners for plan in plans)
    for me, plan in enumerate(plans):
        out = np.full(sum(counts), -1)
        for index, owner in enumerate(plan.owners):
            sources = [rank for rank in range(4) if plans[rank].table[index][0] >= 0]
            assert len(sources) == 1
            assert node_of[sources[0]] == owner
            first = plans[sources[0]].table[index][0]
            _, count, to = plan.table[index]
            assert count <= cell
            assert (out[to : to + count] == -1).all()
            out[to : to + count] = blocks[sources[0]][first : first + count]
        np.testing.assert_array_equal(out, np.concatenate(blocks), err_msg=f"rank {me}")


@pytest.mark.parametrize("layout", list(NODE_OF))
def test_scattered_pieces_bring_each_block_to_its_rank_alone(layout: str) -> None:
    block, cell = 10, 4
    vector = np.arange(4 * block)
    for me in range(4):
        plan = scatter_pieces(block, 4, NODE_OF[layout], me, cell)
        out = np.full(block, -1)
        seen = []
        for (first, count, to), owner in zip(plan.table, plan.owners, strict=True):
            seen += list(range(first, first + count))
            if to >= 0:
                assert owner == NODE_OF[layout][me]
                out[to : to + count] = vector[first : first + count]
        np.testing.assert_array_equal(out, vector[me * block : (me + 1) * block])
        assert sorted(seen) == list(range(4 * block))


def test_nodes_take_turns_so_that_all_links_are_busy() -> None:
    order = [rank for rank, _, _ in block_pieces([8, 8, 8, 8], [0, 0, 1, 1], 4)]
    assert order == [0, 2, 1, 3, 0, 2, 1, 3]


@pytest.mark.parametrize("dtype", list(DType))
@pytest.mark.parametrize("ring_schedule", [False, True])
def test_a_piece_fits_into_a_cell_in_every_type_it_takes(dtype: DType, ring_schedule: bool) -> None:
    wire = DType.FLOAT32 if dtype is DType.FLOAT16 else dtype
    transfer = Transfer("reduce", None, None, dtype, wire, parse_op("sum"), 10)
    cells = transfer.cell_elems(4096, wire, ring_schedule)
    assert cells * max(itemsize(dtype), itemsize(wire)) <= 4096
    if ring_schedule and dtype in (DType.FLOAT16, DType.BFLOAT16):
        assert cells * 4 <= 4096


def _descriptor(**changes: object) -> Descriptor:
    fields: dict[str, object] = {
        "kind": KINDS.index("allreduce"),
        "dtype": int(DType.FLOAT32),
        "wire": int(DType.FLOAT32),
        "algorithm": ALGORITHMS.index("hierarchical"),
        "count": 1000,
    }
    return Descriptor(**{**fields, **changes})  # type: ignore[arg-type]


CHANGES = [
    {"kind": KINDS.index("barrier")},
    {"op": 3},
    {"average": True},
    {"dtype": int(DType.INT32)},
    {"wire": int(DType.BFLOAT16)},
    {"algorithm": ALGORITHMS.index("ring")},
    {"root": 2},
    {"count": 999},
    {"extra": 7},
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: next(iter(change)))
def test_every_field_that_must_agree_changes_the_digest_and_is_named(
    change: dict[str, object],
) -> None:
    one, other = _descriptor(), _descriptor(**change)
    assert one.pack()[0] != other.pack()[0]
    assert one.differences(other)
    assert Descriptor.unpack(other.pack()[1]) == other


def test_the_text_of_a_refusal_is_quoted_but_not_compared() -> None:
    one = Descriptor.refused(ValueError("bad"))
    other = Descriptor.refused(TypeError("worse" * 100))
    assert one.kind == REFUSED
    assert one.pack()[0] == other.pack()[0] != _descriptor().pack()[0]
    assert "ValueError: bad" in Descriptor.unpack(one.pack()[1]).describe()
    assert len(other.pack()[1]) <= 290


def test_digests_of_facts_are_the_same_in_every_process() -> None:
    # A constant: ranks with different hash seeds must agree.
    assert digest_of("x") == 0xF3BA8400C5DC79A7
    assert digest_of((3, 4), 2) != digest_of((4, 3), 2)


def test_a_call_is_described_for_people() -> None:
    text = _descriptor(average=True, wire=int(DType.BFLOAT16)).describe()
    assert text == ("allreduce(float32[1000], op=avg, algorithm=hierarchical, wire_dtype=bfloat16)")
