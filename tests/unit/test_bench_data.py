"""Data whose results are known: right results pass, and each way to be wrong is counted."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest

from hierring.benchmarks import data
from hierring.dtypes import DType, check_op, parse_op, wire_type
from hierring.errors import UnsupportedTypeError

OPS = ("sum", "avg", "min", "max", "prod", "band", "bor", "bxor")
COUNT = 2 * data.PERIOD + 100


def allowed(dtype, op):
    try:
        check_op(parse_op(op), dtype)
    except UnsupportedTypeError:
        return False
    return True


PAIRS = [(dtype, op) for dtype in DType for op in OPS if allowed(dtype, op)]


def memory_of(values):
    memory = np.empty(COUNT, values.dtype)
    data.fill(values, memory)
    return memory


def reduce_in(order, dtype, op):
    """Add up inputs one after the other, each partial result rounded to the type."""
    one = data.storage(dtype)
    numbers = [data.loaded(table, dtype) for table in order]
    if dtype is DType.BOOL:
        words = {"sum": "or", "max": "or", "bor": "or", "bxor": "xor"}
        function = getattr(np, f"logical_{words.get(op, 'and')}")
    else:
        words = {
            "sum": "add", "avg": "add", "min": "minimum", "max": "maximum", "prod": "multiply",
            "band": "bitwise_and", "bor": "bitwise_or", "bxor": "bitwise_xor",
        }  # fmt: skip
        function = getattr(np, words[op])
    total = reduce(lambda a, b: function(a, b).astype(a.dtype), numbers)
    if op == "avg":
        total = (total / len(order)).astype(total.dtype)
    if dtype is DType.BFLOAT16:
        bits = total.view(np.uint32)
        assert not (bits & 0xFFFF).any(), "all partial results are bfloat16"
        total = (bits >> 16).astype(one)
    return total


@pytest.mark.parametrize(("dtype", "op"), PAIRS, ids=lambda item: str(item))
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_a_right_result_is_right_in_any_order(dtype, op, size):
    wire = wire_type(dtype, parse_op(op))
    tables = [data.table(dtype, op, rank, size, wire) for rank in range(size)]
    expected = data.reduced(dtype, op, tables, wire)
    assert expected.tolerance == 0
    for order in (tables, tables[::-1]):
        assert expected.wrong(memory_of(reduce_in(order, dtype, op))) == 0


@pytest.mark.parametrize(("dtype", "op"), PAIRS, ids=lambda item: str(item))
def test_each_rank_counts(dtype, op):
    """Without one of them the result is wrong somewhere."""
    tables = [data.table(dtype, op, rank, 3, dtype) for rank in range(3)]
    expected = data.reduced(dtype, op, tables, dtype)
    for missing in range(3):
        rest = [table for rank, table in enumerate(tables) if rank != missing]
        assert expected.wrong(memory_of(reduce_in(rest, dtype, op))) > 0


@pytest.mark.parametrize("dtype", list(DType), ids=str)
def test_untouched_memory_is_wrong(dtype):
    tables = [data.table(dtype, "sum", rank, 2, dtype) for rank in range(2)]
    memory = memory_of(tables[0])
    data.poison(memory)
    assert data.reduced(dtype, "sum", tables, dtype).wrong(memory) > COUNT // 2 - COUNT // 8


def test_wrong_elements_are_counted():
    tables = [data.table(DType.FLOAT32, "sum", rank, 2, DType.FLOAT32) for rank in range(2)]
    expected = data.reduced(DType.FLOAT32, "sum", tables, DType.FLOAT32)
    memory = memory_of(expected.values.astype(np.float32))
    assert expected.wrong(memory) == 0
    memory[7] += 1
    memory[-1] = np.nan
    assert expected.wrong(memory) == 2


def test_a_chunk_at_the_wrong_place_shows():
    table = data.table(DType.FLOAT32, "sum", 0, 2, DType.FLOAT32)
    expected = data.Expected(table, DType.FLOAT32)
    memory = memory_of(table)
    memory[0:1024], memory[4096:5120] = memory[4096:5120].copy(), memory[0:1024].copy()
    assert expected.wrong(memory) > 2000


def test_a_block_is_compared_from_its_place_on():
    table = data.table(DType.INT32, "sum", 0, 2, DType.INT32)
    memory = memory_of(table)
    expected = data.Expected(table, DType.INT32)
    assert expected.wrong(memory[9000:], 9000) == 0
    assert expected.wrong(memory[9000:], 9001) > 0


@pytest.mark.parametrize("count", [0, 1, data.PERIOD - 1, data.PERIOD, data.PERIOD + 1])
def test_any_count(count):
    table = data.table(DType.INT32, "sum", 0, 2, DType.INT32)
    memory = np.empty(count, np.int32)
    data.fill(table, memory)
    assert (memory == np.resize(table, count)).all()
    assert data.Expected(table, DType.INT32).wrong(memory) == 0


@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16], ids=str)
def test_many_ranks_and_few_bits_leave_a_tolerance(dtype):
    """Sums that must get rounded are right within a bound, and wrong beyond it."""
    size = 5000 if dtype is DType.FLOAT16 else 600
    tables = [data.table(dtype, "sum", rank, size, dtype) for rank in range(size)]
    expected = data.reduced(dtype, "sum", tables, dtype)
    assert expected.tolerance > 0
    memory = data.Expected(expected.values, DType.FLOAT64, expected.tolerance)
    values = expected.values.copy()
    values[3] += 0.9 * expected.tolerance
    assert memory.wrong(values) == 0
    values[4] += 1.1 * expected.tolerance
    values[5] = np.nan
    assert memory.wrong(values) == 2


def test_a_narrow_wire_narrows_the_numbers():
    for rank in range(4):
        wide = data.table(DType.FLOAT32, "sum", rank, 4, DType.FLOAT32)
        narrow = data.table(DType.FLOAT32, "sum", rank, 4, DType.BFLOAT16)
        assert np.abs(narrow).max() * 4 <= 2**8 < np.abs(wide).max()


def test_means_of_some_ranks_are_rounded_on_a_narrow_wire():
    """A third has no end in binary."""
    tables = [data.table(DType.FLOAT32, "avg", rank, 4, DType.FLOAT16) for rank in range(4)]
    expected = data.reduced(DType.FLOAT32, "avg", tables, DType.FLOAT16)
    assert 0 < expected.tolerance < 0.1 * np.abs(expected.values).max()
    three = (sum(tables[:3]) / 3).astype(np.float16).astype(np.float32)
    whole = ((3 * three + tables[3]) / 4).astype(np.float16)
    assert (whole != expected.values).any()
    assert expected.wrong(memory_of(whole.astype(np.float32))) == 0
