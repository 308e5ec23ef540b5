"""Inputs and expected results of tests that run on many ranks.

The input of every rank is a pure function of (dtype, op, rank, size, count), so each rank knows the
inputs of all others and computes the expected result alone, without the code under test or MPI.
Data differ in every rank and, as far as the dtype allows, in every element, so that a misplaced
chunk shows.
"""

from __future__ import annotations

import functools
import itertools
import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

FLOATS = ("float64", "float32", "float16")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
COMPLEX = ("complex64", "complex128")
DTYPES = (*FLOATS, *INTEGERS, "bool", *COMPLEX)
ALGORITHMS = ("auto", "hierarchical", "ring", "tree", "naive")

#: Largest integer up to which every integer is exact in a dtype.
EXACT_LIMIT = {
    "float64": 2**52,
    "float32": 2**24,
    "float16": 2**11,
    "bfloat16": 2**8,
    "complex128": 2**52,
    "complex64": 2**24,
}
#: Unit roundoff: half the distance from 1 to the next number.
UNIT = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


def ops_for(dtype: str) -> tuple[str, ...]:
    """Return the reduction operations that are defined for a dtype."""
    if dtype in COMPLEX:
        return ("sum", "avg", "prod")
    if dtype in INTEGERS or dtype == "bool":
        return ("sum", "prod", "min", "max", "band", "bor", "bxor")
    return ("sum", "avg", "prod", "min", "max")


@functools.lru_cache(
    maxsize=64
)  # dtypes and operations share it; tests would spend half their time here
def _hash(rank: int, count: int, salt: int = 0) -> Array:
    """Return a well-mixed 64-bit word per element (splitmix64), others for each rank and salt."""
    start = (rank * 1_000_003 + salt * 7_368_787) * 2_654_435_761 % 2**64
    z = (np.arange(count, dtype=np.uint64) + np.uint64(start)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    z.flags.writeable = False
    return np.asarray(z)


def exact_input(dtype: str, op: str, rank: int, size: int, count: int, salt: int = 0) -> Array:
    """Return the input of one rank, chosen so that every order of reduction gives an exact result.

    A shorter input is the beginning of a longer one. bfloat16 values are returned as float32.
    """
    carrier = "float32" if dtype == "bfloat16" else dtype
    word = _hash(rank, count, salt)
    if dtype == "bool":
        rare = (word % np.uint64(4)) == 0
        return np.asarray(~rare if op in ("prod", "min", "band") else rare)
    if dtype in INTEGERS:
        # An even factor would soon make every product zero.
        return np.asarray((word | np.uint64(op == "prod")).astype(carrier))
    if op == "prod":
        return _exact_factors(dtype, word).astype(carrier)
    values = _exact_numbers(dtype, op, rank, size, count, salt)
    if dtype in COMPLEX:
        values = values + 1j * _exact_numbers(dtype, op, rank, size, count, salt + 1)
    return np.asarray(values.astype(carrier))


def _exact_numbers(dtype: str, op: str, rank: int, size: int, count: int, salt: int) -> Array:
    """Return whole numbers whose sum over all ranks is exact; for avg also divisible by size."""
    step = size if op == "avg" else 1
    spread = max(min(EXACT_LIMIT[dtype] // size // step, 2**40), 2)
    word = _hash(rank, count, salt) % np.uint64(spread)
    return np.asarray((word.astype(np.float64) - float(spread // 2)) * step)


def _exact_factors(dtype: str, word: Array) -> Array:
    """Return signed powers of two or complex units; their products are exact in any order."""
    if dtype in COMPLEX:
        table = np.array([1, -1, 1j, -1j, 2, 0.5j, 1 + 1j, 1 - 1j])
        return np.asarray(table[(word % np.uint64(8)).astype(np.int64)])
    table = np.array([1.0, -1.0, 2.0, -0.5, 0.5, -2.0])
    return np.asarray(table[(word % np.uint64(6)).astype(np.int64)])


def general_input(dtype: str, rank: int, count: int, seed: int = 0) -> Array:
    """Return floating or complex numbers of mixed sign and magnitude, members of the dtype."""
    rng = np.random.default_rng([seed, rank])
    values = rng.standard_normal(count) * 2.0 ** rng.integers(-6, 6, count)
    if dtype in COMPLEX:
        return np.asarray((values + 1j * rng.standard_normal(count)).astype(dtype))
    if dtype == "bfloat16":
        return round_to_bfloat16(values.astype(np.float32))
    return np.asarray(values.astype(dtype))


def round_to_bfloat16(values: Array) -> Array:
    """Round finite float32 values to the nearest bfloat16, ties to even; returns float32."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return np.asarray((rounded & np.uint32(0xFFFF0000)).view(np.float32))


_UFUNCS: dict[str, Callable[[Array, Array], Array]] = {
    "sum": np.add,
    "avg": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
}
_BOOL_UFUNCS: dict[str, Callable[[Array, Array], Array]] = {
    "sum": np.logical_or,
    "prod": np.logical_and,
    "min": np.logical_and,
    "max": np.logical_or,
    "band": np.logical_and,
    "bor": np.logical_or,
    "bxor": np.logical_xor,
}


def reduce(op: str, inputs: Sequence[Array]) -> Array:
    """Reduce the inputs of all ranks: floats in float64, integers in their dtype (wrapping)."""
    dtype = inputs[0].dtype
    if dtype == np.bool_:
        return functools.reduce(_BOOL_UFUNCS[op], inputs)
    wide = {"f": np.float64, "c": np.complex128}.get(dtype.kind, dtype)
    total = functools.reduce(_UFUNCS[op], [x.astype(wide) for x in inputs])
    return np.asarray(total / len(inputs) if op == "avg" else total).astype(dtype)


def expected(dtype: str, op: str, size: int, count: int, salt: int = 0) -> Array:
    """Return what an all-reduce of `exact_input` of all ranks must give."""
    return reduce(op, [exact_input(dtype, op, r, size, count, salt) for r in range(size)])


def exact_sum(inputs: Sequence[Array]) -> Array:
    """Return the correctly rounded float64 sum of real inputs, element by element."""
    columns = np.stack([np.asarray(x, dtype=np.float64).reshape(-1) for x in inputs], axis=1)
    return np.array([math.fsum(row) for row in columns.tolist()], dtype=np.float64)


def sum_bound(inputs: Sequence[Array], sum_unit: float, wire_unit: float, roundings: int) -> Array:
    """Return the promised bound on |error| of a sum.

    That is (N-1) u sum|x| in the type summed in, plus `roundings` roundings to the wire type, each
    of a partial sum that is at most sum|x|. The factor 1.01 covers products of roundings, the last
    term subnormal numbers of 16-bit types.
    """
    total = np.sum([np.abs(np.asarray(x, dtype=np.float64)) for x in inputs], axis=0)
    unit = (len(inputs) - 1) * sum_unit + roundings * wire_unit
    return np.asarray(
        1.01 * unit * total + roundings * 2.0**-25 * (wire_unit > 2.0**-12), np.float64
    )


def expected_nodes(size: int, text: str | None = None) -> list[list[int]]:
    """Return the ranks of each node: real ones of HIERRING_TEST_NODES, else the pretended ones."""
    if text is None:
        environ = os.environ
        text = environ.get("HIERRING_TEST_NODES") or environ.get("HIERRING_SIMULATE_NODES", "")
    if not text:
        return [list(range(size))]
    if text.startswith("cyclic:"):
        num_nodes = int(text.partition(":")[2])
        return [list(range(node, size, num_nodes)) for node in range(num_nodes)]
    if "x" in text:
        num_nodes, local_size = map(int, text.split("x"))
        counts = [local_size] * num_nodes
    else:
        counts = [int(word) for word in text.split(",")]
    borders = np.cumsum([0, *counts]).tolist()
    return [list(range(a, b)) for a, b in itertools.pairwise(borders)]
