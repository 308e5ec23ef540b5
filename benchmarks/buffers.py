"""The memory of one row: written before every call, compared after it, both untimed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hierring.benchmarks import data
from hierring.benchmarks.plan import Point
from hierring.config import Config
from hierring.dtypes import DType

__all__ = ["Buffers"]

Array = npt.NDArray[Any]


class Buffers:
    """Input and output of one rank for one row, and what must come out.

    All contenders use the same memory in turn. Attributes:
        x: the input as stored; written by every call in place.
        out: the result out of place.
    """

    def __init__(self, point: Point, rank: int, size: int, config: Config) -> None:
        self._point, self._rank, self._size = point, rank, size
        block = point.count // size
        sent = block if point.collective == "allgather" else point.count
        received = block if point.collective == "reduce_scatter" else point.count
        stored = data.storage(point.dtype)
        self.x = np.empty(sent, stored)
        self.out = np.empty(received, stored)
        wire = point.wire(config)
        self._tables = _tables(point.dtype, point.op, size, wire)
        self._mine = self._tables[rank]
        self._reduced = (
            None if point.op == "none" else data.reduced(point.dtype, point.op, self._tables, wire)
        )

    @property
    def tolerance(self) -> float:
        """How far an element may be off; 0 is exact."""
        return self._reduced.tolerance if self._reduced else 0.0

    def rewrite(self) -> None:
        """Fill the input, and the output with what no result is."""
        data.fill(self._mine, self.x)
        data.poison(self.out)

    def wrong(self, in_place: bool) -> int:
        """Count this rank's wrong elements; out of place the input must be as it was, too."""
        result = self.x if in_place else self.out
        unharmed = 0 if in_place else self._expected(self._rank).wrong(self.x)
        block = self._point.count // self._size
        if self._point.collective == "allgather":
            parts = (
                self._expected(rank).wrong(result[rank * block : (rank + 1) * block])
                for rank in range(self._size)
            )
            return unharmed + sum(parts)
        if self._point.collective == "broadcast":
            return unharmed + self._expected(0).wrong(result)
        assert self._reduced is not None
        first = self._rank * block if self._point.collective == "reduce_scatter" else 0
        return unharmed + self._reduced.wrong(result, first)

    def _expected(self, rank: int) -> data.Expected:
        return data.Expected(self._loaded(rank), self._point.dtype)

    def _loaded(self, rank: int) -> Array:
        return data.loaded(self._tables[rank], self._point.dtype)


_cache: dict[tuple[DType, str, int, DType], list[Array]] = {}


def _tables(dtype: DType, op: str, size: int, wire: DType) -> list[Array]:
    """The tables of all ranks; the last ones are kept, for the next size needs the same."""
    key = (dtype, op, size, wire)
    if key not in _cache:
        _cache.clear()
        _cache[key] = [data.table(dtype, op, rank, size, wire) for rank in range(size)]
    return _cache[key]
