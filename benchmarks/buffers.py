"""The memory of one row: written before every call, compared after it, both untimed."""

from __future__ import annotations

from functools import lru_cache
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
        self._wire = point.wire(config)
        self._mine = self._table(rank)
        # An all-gather has a result of each rank, the others one of all.
        self._tables = (
            [self._table(other) for other in range(size)]
            if point.collective == "allgather"
            else [self._table(0)]
        )
        self._reduced = (
            None if point.op == "none" else _reduced(point.dtype, point.op, size, self._wire)
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
        unharmed = 0 if in_place else self._as_expected(self._mine).wrong(self.x)
        block = self._point.count // self._size
        if self._point.collective == "allgather":
            parts = (
                self._as_expected(self._tables[rank]).wrong(
                    result[rank * block : (rank + 1) * block]
                )
                for rank in range(self._size)
            )
            return unharmed + sum(parts)
        if self._point.collective == "broadcast":
            return unharmed + self._as_expected(self._tables[0]).wrong(result)
        assert self._reduced is not None
        first = self._rank * block if self._point.collective == "reduce_scatter" else 0
        return unharmed + self._reduced.wrong(result, first)

    def _table(self, rank: int) -> Array:
        point = self._point
        return data.table(point.dtype, point.op, rank, self._size, self._wire)

    def _as_expected(self, table: Array) -> data.Expected:
        return data.Expected(data.loaded(table, self._point.dtype), self._point.dtype)


@lru_cache(maxsize=4)  # the next size of a row needs the same
def _reduced(dtype: DType, op: str, size: int, wire: DType) -> data.Expected:
    tables = (data.table(dtype, op, rank, size, wire) for rank in range(size))
    return data.reduced(dtype, op, tables, wire)
