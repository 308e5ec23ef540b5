"""Two or more buffers: whether `out` fits, what overlaps, and how coalesced items join."""

from __future__ import annotations

import contextlib
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

from hierring import buffers
from hierring._testing.memory import addresses, content, fill
from hierring.buffers.buffer import self_overlaps
from hierring.errors import UnsupportedTypeError

torch = pytest.importorskip("torch")


# --- one array ------------------------------------------------------------------------------------


@pytest.mark.parametrize("write", [False, True])
def test_repeated_elements_are_read_but_never_written(write: bool) -> None:
    for x in (as_strided(np.float32([5]), (4,), (0,)), torch.full((1,), 5.0).expand(4)):
        if not write:
            assert content(buffers.read(x)) == np.full(4, 5, np.float32).tobytes()
            continue
        for mode in (buffers.inplace, buffers.write):
            with pytest.raises(UnsupportedTypeError, match=r"shape \(4,\).*at one address: give o"):
                mode(x)


@hypothesis.given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(-12, 12)), max_size=3),
    st.sampled_from([1, 4]),
)
def test_self_overlap_is_never_missed(axes: list[tuple[int, int]], size: int) -> None:
    shape, strides = tuple(a[0] for a in axes), tuple(a[1] for a in axes)
    found = addresses([(0, shape, strides)], size)
    if len(found) != len(set(found)):
        assert self_overlaps(shape, strides, size)


# --- out -----------------------------------------------------------------------------------------


def _fits(x: Any, out: Any, **options: Any) -> None:
    buffers.check_out(buffers.read(x), buffers.write(out), **options)


def test_out_may_be_x_or_memory_apart() -> None:
    base = np.zeros(12, np.float32)
    _fits(base, base)
    _fits(base, base[:])
    _fits(base.reshape(3, 4), base)
    _fits(base[::2], base[::2])
    _fits(base[::2], base[1::2])
    _fits(base[:6], base[6:])
    _fits(base.reshape(3, 4)[:, :2], base.reshape(3, 4)[:, 2:])
    _fits(base, torch.zeros(3, 4))
    _fits(base, torch.from_numpy(base))
    _fits(base[:0], base[:0])
    _fits(base[:3], np.zeros(12, np.float32), count=12)


@pytest.mark.parametrize("shift", [1, 3, 5])
def test_partial_overlap_is_refused(shift: int) -> None:
    base = np.zeros(12, np.float32)
    for out in (base[shift:], torch.from_numpy(base)[shift:]):
        with pytest.raises(
            UnsupportedTypeError, match=r"overlaps x in part: give x itself, or mem"
        ):
            _fits(base[:-shift], out)


def test_the_same_memory_in_another_order_is_an_overlap() -> None:
    square = np.zeros((3, 3))
    with pytest.raises(UnsupportedTypeError, match="overlaps x in part"):
        _fits(square, square.T)
    with pytest.raises(UnsupportedTypeError, match="overlaps x in part"):
        _fits(square[0], square[0, ::-1])


def test_out_of_another_dtype_or_count_is_refused() -> None:
    x = np.zeros((2, 3), np.float32)
    with pytest.raises(
        UnsupportedTypeError, match=r"out of dtype float64, shape \(6,\) .*float32$"
    ):
        _fits(x, np.zeros(6))
    with pytest.raises(
        UnsupportedTypeError, match=r"shape \(5,\) with 5 .*: give an out of 6 elem"
    ):
        _fits(x, np.zeros(5, np.float32))
    with pytest.raises(UnsupportedTypeError, match="give an out of 12 elements"):
        _fits(x, np.zeros(6, np.float32), count=12)


@hypothesis.given(st.data())
def test_overlap_agrees_with_counting_bytes(data: st.DataObject) -> None:
    base = np.zeros((5, 6), np.int16)
    draw_slice = st.tuples(st.slices(5), st.slices(6))
    x, out = base[data.draw(draw_slice)], base[data.draw(draw_slice)]
    first, second = buffers.read(x), buffers.write(out)
    shared = set(addresses(first.pieces, 2)) & set(addresses(second.pieces, 2))
    fits = not shared or first.pieces == second.pieces
    with contextlib.nullcontext() if fits else pytest.raises(UnsupportedTypeError):
        buffers.check_out(first, second, count=out.size)


# --- coalescing ----------------------------------------------------------------------------------


def test_many_joins_in_order_and_gives_each_back() -> None:
    base = np.arange(12, dtype=np.float32)
    items = [base[:3], torch.arange(20.0, 26.0).reshape(2, 3).T, base[3:9:2], base[:0], 7.0]
    items[-1] = np.float32(7)
    joined = buffers.many([buffers.inplace(item) for item in items])
    assert (joined.count, joined.shape, joined.kind, joined.nbytes) == (13, (13,), "list", 52)
    expected = [0, 1, 2, 20, 23, 21, 24, 22, 25, 3, 5, 7, 7]
    assert content(joined) == np.float32(expected).tobytes()
    fill(joined, np.arange(100, 113, dtype=np.float32).tobytes())
    values = joined.value()
    assert values[0] is items[0]
    assert values[1] is items[1]
    assert values[1].tolist() == [[103, 104], [105, 106], [107, 108]]
    assert base.tolist() == [100, 101, 102, 109, 4, 110, 6, 111, 8, 9, 10, 11]
    assert values[4] == np.float32(112)


def test_many_of_nothing() -> None:
    joined = buffers.many([])
    assert (joined.count, joined.nbytes, joined.value()) == (0, 0, [])
    joined.written()


def test_many_refuses_mixed_dtypes() -> None:
    parts = [buffers.inplace(np.zeros(3)), buffers.inplace(np.zeros((2, 2), np.float32))]
    with pytest.raises(
        UnsupportedTypeError, match=r"item 1 of dtype float32, shape \(2, 2\) cannot"
    ):
        buffers.many(parts)


def test_many_refuses_writing_one_element_twice() -> None:
    base = np.zeros(10)
    parts = [buffers.inplace(np.zeros(2)), buffers.inplace(base[:6]), buffers.inplace(base[5:])]
    with pytest.raises(UnsupportedTypeError, match="items 1 and 2 overlap in memory"):
        buffers.many(parts)
    assert buffers.many(parts, written=False).count == 13
    assert buffers.many([buffers.inplace(base[::2]), buffers.inplace(base[1::2])]).count == 10


def test_many_is_writable_only_if_all_are() -> None:
    parts = [buffers.read(bytearray(3)), buffers.read(b"abc")]
    assert buffers.many(parts, written=False).writable is False
    assert buffers.many(parts[:1]).writable is True


def test_many_bumps_every_version_counter() -> None:
    tensors = [torch.zeros(2), torch.zeros(3)]
    buffers.many([buffers.inplace(tensor) for tensor in tensors]).written()
    assert [tensor._version for tensor in tensors] == [1, 1]


def test_out_of_joined_buffers() -> None:
    a, b, c = np.zeros(4), np.zeros(4), np.zeros(4)

    def joined(*items: np.ndarray) -> buffers.Buffer:
        return buffers.many([buffers.inplace(item) for item in items])

    buffers.check_out(joined(a, b), joined(a, b))
    buffers.check_out(joined(a, b), joined(c, b))  # b is its own result, at its own place
    for out in (joined(b, a), joined(b, c), joined(a[::-1], c)):
        with pytest.raises(UnsupportedTypeError, match="overlaps x in part"):
            buffers.check_out(joined(a, b), out)


def test_a_thousand_items_are_compared_in_no_time() -> None:
    # Pair by pair these would be half a million comparisons.
    base = np.zeros((1000, 8), np.float32)
    parts = [buffers.inplace(row) for row in base]
    assert buffers.many(parts).view.contiguous
