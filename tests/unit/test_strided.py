"""Packing and unpacking of views against NumPy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from hierring import _core

KINDS = ("u1", "i2", "f4", "f8", "c16")

Array = npt.NDArray[np.generic]


def view_of(arrays: list[Array]) -> _core.View:
    pieces = [(array.ctypes.data, array.shape, array.strides) for array in arrays]
    return _core.View(pieces, arrays[0].itemsize)


def flat(arrays: list[Array]) -> Array:
    return np.concatenate([array.ravel() for array in arrays])


def random_array(rng: np.random.Generator, kind: str, repeats: bool) -> tuple[Array, Array]:
    """A strided array, and the memory it lies in; with repeats some strides may be 0."""
    sizes = rng.integers(1, 7, rng.integers(0, 6))
    if rng.random() < 0.05:
        sizes = np.append(sizes, 0)
    if rng.random() < 0.3:
        sizes = np.append(sizes, rng.integers(30, 90))
    nbytes = int(np.prod(sizes)) * np.dtype(kind).itemsize
    memory = np.frombuffer(rng.bytes(nbytes + 1), np.uint8).copy()
    array = memory[1:].view(kind).reshape(sizes)  # off any alignment
    if rng.random() < 0.7:
        steps = [int(rng.choice([1, 1, 2, 3, -1, -2])) for _ in sizes]
        array = array[(..., *(slice(None, None, step) for step in steps))]
    if rng.random() < 0.5:
        array = array.transpose(rng.permutation(array.ndim))
    if repeats and rng.random() < 0.3:
        array = np.broadcast_to(array, (int(rng.integers(1, 4)), *array.shape))
    return array, memory


def ranges(rng: np.random.Generator, count: int) -> list[tuple[int, int]]:
    """All of it, nothing, and some parts, as (first, count)."""
    borders = np.sort(rng.integers(0, count + 1, (6, 2)), axis=1)
    return [(0, count), (count, 0), *((int(a), int(b - a)) for a, b in borders)]


@pytest.mark.parametrize("kind", KINDS)
def test_pack_is_numpys_order(kind: str, rng: np.random.Generator) -> None:
    for _ in range(150):
        arrays = [random_array(rng, kind, True)[0] for _ in range(rng.integers(1, 5))]
        view, expected = view_of(arrays), flat(arrays)
        assert view.count == expected.size
        assert view.nbytes == expected.nbytes
        for first, count in ranges(rng, view.count):
            guarded = np.full(count * view.itemsize + 40, 0xA5, np.uint8)
            _core.pack(view, first, count, guarded[20:].ctypes.data)
            packed = guarded[20 : 20 + count * view.itemsize]
            shown = [(a.shape, a.strides) for a in arrays], first, count
            assert packed.tobytes() == expected[first : first + count].tobytes(), shown
            assert (guarded[:20] == 0xA5).all()
            assert (guarded[20 + packed.size :] == 0xA5).all()


@pytest.mark.parametrize("kind", KINDS)
def test_unpack_writes_the_view_and_nothing_else(kind: str, rng: np.random.Generator) -> None:
    for _ in range(150):
        arrays, memories = zip(
            *(random_array(rng, kind, False) for _ in range(rng.integers(1, 5))), strict=True
        )
        view, before = view_of(list(arrays)), [memory.copy() for memory in memories]
        for first, count in ranges(rng, view.count):
            for memory, old in zip(memories, before, strict=True):
                memory[:] = old
            values = flat(list(arrays))
            fresh = np.frombuffer(rng.bytes(count * view.itemsize), kind)
            values[first : first + count] = fresh
            expected, at = [], 0
            for array, memory in zip(arrays, memories, strict=True):
                new = values[at : at + array.size].reshape(array.shape)
                saved = memory.copy()
                array[...] = new
                expected.append(memory.copy())
                memory[:] = saved
                at += array.size
            _core.unpack(view, first, count, fresh.ctypes.data)
            for array, memory, wanted in zip(arrays, memories, expected, strict=True):
                assert memory.tobytes() == wanted.tobytes(), (array.shape, array.strides)


@pytest.mark.parametrize(
    ("shape", "strides", "contiguous"),
    [
        ((), (), True),
        ((5,), (4,), True),
        ((5,), (8,), False),
        ((5,), (-4,), False),
        ((5,), (0,), False),
        ((1,), (-400,), True),
        ((2, 3), (12, 4), True),
        ((2, 3), (4, 8), False),
        ((2, 1, 3), (12, 999, 4), True),
        ((2, 0, 3), (7, 7, 7), True),
    ],
)
def test_what_is_contiguous(
    shape: tuple[int, ...], strides: tuple[int, ...], contiguous: bool
) -> None:
    assert _core.View([(4096, shape, strides)], 4).contiguous == contiguous


def test_pieces_that_follow_each_other_are_one() -> None:
    assert _core.View([(4096, (3,), (4,)), (4096, (0,), (4,)), (4108, (2,), (4,))], 4).contiguous
    assert not _core.View([(4096, (3,), (4,)), (4112, (2,), (4,))], 4).contiguous
    assert not _core.View([(4108, (2,), (4,)), (4096, (3,), (4,))], 4).contiguous
    assert _core.View([], 4).count == 0


def test_long_rows_and_columns(rng: np.random.Generator) -> None:
    matrix = rng.normal(size=(300, 400))
    for array in (matrix, matrix.T, matrix[:, :397], matrix[::-1, 3:9], matrix[:, ::-1]):
        packed = np.empty(array.size)
        view = view_of([array])
        for first in range(0, view.count, 4099):
            count = min(4099, view.count - first)
            _core.pack(view, first, count, packed[first:].ctypes.data)
        assert packed.tobytes() == array.tobytes()
        target = np.zeros((array.shape[0] * 2, array.shape[1] + 1))[::2, 1:]
        _core.unpack(view_of([target]), 0, view.count, packed.ctypes.data)
        assert (target == array).all()


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="differ in length"):
        _core.View([(0, (2, 3), (4,))], 4)
    with pytest.raises(ValueError, match="negative"):
        _core.View([(0, (-2,), (4,))], 4)
    with pytest.raises(ValueError, match="itemsize"):
        _core.View([(0, (2,), (4,))], 0)
    with pytest.raises(ValueError, match="more bytes"):
        _core.View([(0, (1 << 40, 1 << 40), (0, 0))], 4)
    view = _core.View([(4096, (5,), (4,))], 4)
    for first, count in ((0, 6), (5, 1), (6, 0), (3, (1 << 64) - 1)):
        with pytest.raises(ValueError, match="not in a view of 5"):
            _core.pack(view, first, count, 0)
        with pytest.raises(ValueError, match="not in a view of 5"):
            _core.unpack(view, first, count, 0)
