"""Inputs whose results are known: every element of a result is compared, whatever its size.

A rank's input is a table of PERIOD elements, over and over. The tables differ in every rank and are
a function of rank, dtype and operation, so each rank knows all of them and reduces them alone. The
period is prime: a chunk at the wrong place shows, for chunks begin at other multiples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from hierring.dtypes import DType, is_complex, is_integer, mean_so_far, parse_op

__all__ = ["PERIOD", "Expected", "fill", "loaded", "poison", "reduced", "storage", "table"]

Array = npt.NDArray[Any]

PERIOD = 8191
#: Up to where all integers are exact, and half the distance from 1 to the next number.
_EXACT = {
    DType.FLOAT64: 2**52,
    DType.FLOAT32: 2**24,
    DType.FLOAT16: 2**11,
    DType.BFLOAT16: 2**8,
    DType.COMPLEX128: 2**52,
    DType.COMPLEX64: 2**24,
}
_BITWISE: dict[str, Callable[[Any, Any], Any]] = {
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
}


def storage(dtype: DType) -> np.dtype[Any]:
    """The NumPy dtype of memory that holds such elements; bfloat16 lies in uint16."""
    return np.dtype("uint16" if dtype is DType.BFLOAT16 else str(dtype))


def fill(values: Array, memory: Array) -> None:
    """Repeat the beginning of `values` all over `memory`."""
    whole = len(memory) // len(values) * len(values)
    memory[:whole].reshape(-1, len(values))[:] = values
    memory[whole:] = values[: len(memory) - whole]


def poison(memory: Array) -> None:
    """Write what few elements of a result are: NaN for floats, all bits set for integers."""
    memory.view(np.uint8)[:] = 0 if memory.dtype == bool else 0xFF


def table(dtype: DType, op: str, rank: int, size: int, wire: DType) -> Array:
    """One rank's input, PERIOD elements as they lie in memory.

    Args:
        wire: type that travels between nodes; the sums are exact in it as well, if the world is
            small enough.
    """
    return _stored(_values(dtype, op, rank, size, wire), dtype)


def _values(dtype: DType, op: str, rank: int, size: int, wire: DType) -> Array:
    word = _hash(rank)
    if dtype is DType.BOOL:
        rare = word % np.uint64(4) == 0
        return np.asarray(~rare if op in ("prod", "min", "band") else rare)
    if is_integer(dtype):
        # An even factor would soon make every product zero.
        return np.asarray((word | np.uint64(op == "prod")).astype(str(dtype)))
    if op == "prod":
        signs = np.array([1, -1, 1j, -1j]) if is_complex(dtype) else np.array([1.0, -1, 1, -1])
        # Powers of two of some ranks only, so that no number of ranks overflows.
        power = (word >> np.uint64(8)) % np.uint64(3) if rank < 2 else np.uint64(1)
        return np.asarray(signs[(word % np.uint64(4)).astype(int)] * 2.0 ** (power - 1.0))
    values = _whole_numbers(word, dtype, op, size, wire)
    if is_complex(dtype):
        return np.asarray(
            values + 1j * _whole_numbers(word >> np.uint64(20), dtype, op, size, wire)
        )
    return values


def _whole_numbers(word: Array, dtype: DType, op: str, size: int, wire: DType) -> Array:
    """Numbers whose sum over all ranks is exact; for avg also divisible by their number."""
    step = size if op == "avg" else 1
    added = size if op in ("sum", "avg") else 1
    spread = max(min(_limit(dtype, wire) // added // step, 2**20), 2)
    return np.asarray((word % np.uint64(spread)).astype(np.float64) - spread // 2) * step


def _limit(dtype: DType, wire: DType) -> int:
    return min(_EXACT[dtype], _EXACT.get(wire, 2**52))


def _hash(rank: int) -> Array:
    """Well-mixed 64-bit words (splitmix64), others for each rank."""
    start = rank * 1_000_003 * 2_654_435_761 % 2**64
    with np.errstate(over="ignore"):
        z = (np.arange(PERIOD, dtype=np.uint64) + np.uint64(start)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)))


def _stored(values: Array, dtype: DType) -> Array:
    if dtype is not DType.BFLOAT16:
        return values.astype(storage(dtype))
    bits = values.astype(np.float32).view(np.uint32)  # whole numbers of 8 bits: nothing to round
    return np.asarray((bits >> np.uint32(16)).astype(np.uint16))


def loaded(memory: Array, dtype: DType) -> Array:
    """As numbers that NumPy can compare."""
    if dtype is not DType.BFLOAT16:
        return memory
    return np.asarray((memory.astype(np.uint32) << np.uint32(16)).view(np.float32))


@dataclass(frozen=True)
class Expected:
    """A result: `values` over and over, from any place on."""

    values: Array
    dtype: DType
    tolerance: float = 0.0

    def wrong(self, memory: Array, first: int = 0) -> int:
        """How many elements of `memory`, the result from element `first` on, are not as expected.

        A NaN is always wrong.
        """
        values = np.roll(self.values, -(first % PERIOD))
        whole = len(memory) // PERIOD * PERIOD
        body = self._wrong(memory[:whole].reshape(-1, PERIOD), values)
        return body + self._wrong(memory[whole:], values[: len(memory) - whole])

    def _wrong(self, memory: Array, values: Array) -> int:
        found = loaded(memory, self.dtype)
        if self.tolerance == 0:
            return int(np.count_nonzero(found != values))
        with np.errstate(invalid="ignore"):
            return int(np.count_nonzero(~(np.abs(found - values) <= self.tolerance)))


def reduced(dtype: DType, op: str, tables: Iterable[Array], wire: DType) -> Expected:
    """The reduction of all ranks' tables, taken one by one: a large world has many.

    Exact, and in any order, unless so many ranks add numbers of so few bits that sums get rounded;
    then within the bound for the worst order.
    """
    numbers = (loaded(one, dtype) for one in tables)
    function = _exact_function(dtype, op)
    with np.errstate(over="ignore"):  # integers wrap around, as they do in every order
        if function is not None:
            return Expected(reduce(function, numbers), dtype)
        wide = np.complex128 if is_complex(dtype) else np.float64
        total, magnitude = np.zeros(PERIOD, wide), np.zeros(PERIOD)
        ranks = 0
        for one in numbers:
            total += one
            magnitude += np.abs(one.astype(wide))
            ranks += 1
    largest, limit = float(magnitude.max()), _limit(dtype, wire)
    share = ranks if op == "avg" else 1
    # Means of some ranks are fractions.
    exact = largest <= limit and not mean_so_far(dtype, parse_op(op), wire)
    tolerance = 0.0 if exact else 1.01 * ranks * largest / limit / share
    return Expected(total / share, dtype, tolerance)


def _exact_function(dtype: DType, op: str) -> Callable[[Any, Any], Any] | None:
    """What reduces two arrays exactly; None for sums of floats."""
    if op in ("min", "max"):
        return np.minimum if op == "min" else np.maximum
    if dtype is DType.BOOL:
        words: dict[str, Callable[[Any, Any], Any]] = {
            "sum": np.logical_or,
            "bor": np.logical_or,
            "bxor": np.logical_xor,
        }
        return words.get(op, np.logical_and)
    if op in _BITWISE:
        return _BITWISE[op]
    if op == "prod":
        return np.multiply  # of floats: powers of two
    return np.add if is_integer(dtype) else None
