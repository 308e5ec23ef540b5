"""The kernels against NumPy, bit for bit, on every SIMD level this CPU has.

NumPy computes elementwise in the type at hand, as the kernels promise to, so results are compared
by bits; only NaNs count as equal whatever their payload.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest

from hierring import _core

DTYPES = _core.dtype_names()
OPS = _core.op_names()
F32_FAMILY = ("float32", "float16", "bfloat16")
CANARY = 0xA5
LARGE = 1029
COUNTS = (*range(68), 128, 255, LARGE)
SOURCE_COUNTS = (*range(1, 10), 17)

Array = npt.NDArray[np.generic]


def storage(dtype: str) -> np.dtype[np.generic]:
    """Return the NumPy type that holds the bits; bool is bytes, of which any but 0 is true."""
    return np.dtype({"bfloat16": "uint16", "bool": "uint8"}.get(dtype, dtype))


def is_floating(dtype: str) -> bool:
    return "float" in dtype or "complex" in dtype


def defined(dtype: str, op: str) -> bool:
    if op in ("band", "bor", "bxor"):
        return not is_floating(dtype)
    return op in ("sum", "prod") or "complex" not in dtype


PAIRS = [(dtype, op) for dtype in DTYPES for op in OPS if defined(dtype, op)]


@pytest.fixture(params=_core.simd_levels())
def level(request: pytest.FixtureRequest) -> Iterator[str]:
    before = _core.simd_level()
    assert _core.set_simd_level(request.param)
    yield request.param
    _core.set_simd_level(before)


# --- the model ---------------------------------------------------------------------------------


def round_bf16(values: Array) -> Array:
    """float32 to the bits of bfloat16, to nearest even, by picking the nearer neighbour."""
    bits = values.view(np.uint32)
    down = (bits >> np.uint32(16)).astype(np.uint16)
    rest = bits & np.uint32(0xFFFF)
    up = (rest > 0x8000) | ((rest == 0x8000) & (down % 2 == 1))
    rounded = down + up.astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded)


def widen(raw: Array, dtype: str) -> Array:
    """Stored elements as the type computed in."""
    if dtype == "bfloat16":
        return (raw.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if dtype == "float16":
        return raw.astype(np.float32)
    return raw != 0 if dtype == "bool" else raw


def narrow(values: Array, dtype: str) -> Array:
    """Computed elements as they are stored."""
    if dtype == "bfloat16":
        return round_bf16(values)
    return values.astype(storage(dtype))


def extreme(a: Array, b: Array, op: str) -> Array:
    """minimum or maximum; of floating zeros -0 is the smaller."""
    result = np.minimum(a, b) if op == "min" else np.maximum(a, b)
    if a.dtype.kind == "f":
        either, both = np.signbit(a) | np.signbit(b), np.signbit(a) & np.signbit(b)
        sign = np.where(either if op == "min" else both, -1.0, 1.0).astype(a.dtype)
        result = np.where((a == 0) & (b == 0), np.copysign(a, sign), result)
    return result


def complex_product(a: Array, b: Array) -> Array:
    result = np.empty_like(a)
    result.real = a.real * b.real - a.imag * b.imag
    result.imag = a.real * b.imag + a.imag * b.real
    return result


def combine(a: Array, b: Array, op: str) -> Array:
    if a.dtype.kind == "b":
        logical = {"sum": "or", "max": "or", "bor": "or", "bxor": "xor"}.get(op, "and")
        return getattr(np, f"logical_{logical}")(a, b)
    if op in ("min", "max"):
        return extreme(a, b, op)
    if op == "prod" and a.dtype.kind == "c":
        return complex_product(a, b)
    names = {"sum": "add", "prod": "multiply"}
    return getattr(np, names.get(op, f"bitwise_{op[1:]}"))(a, b)


@dataclass
class Operand:
    """One source of a reduction, as it is stored."""

    raw: Array
    dtype: str
    scale: float = 1.0


def by_component(function: np.ufunc, values: Array, factor: float) -> Array:
    """Apply a real factor to real and imaginary parts."""
    real = values.view(values.real.dtype)
    return function(real, real.dtype.type(factor)).view(values.dtype)


def model(operands: Sequence[Operand], dst_dtype: str, op: str, divisor: float = 1.0) -> Array:
    with np.errstate(all="ignore"):
        result: Array | None = None
        for operand in operands:
            values = widen(operand.raw, operand.dtype)
            if operand.scale != 1.0:
                values = by_component(np.multiply, values, operand.scale)
            result = values if result is None else combine(result, values, op)
        assert result is not None
        if divisor != 1.0:
            result = by_component(np.divide, result, divisor)
        return narrow(result, dst_dtype)


# --- memory ------------------------------------------------------------------------------------


def misplaced(raw: Array, offset: int) -> Array:
    """A copy of the array `offset` bytes off any alignment."""
    room = np.empty(raw.nbytes + 64 + offset, np.uint8)
    start = -room.ctypes.data % 64 + offset
    copy = room[start : start + raw.nbytes].view(raw.dtype)
    copy[:] = raw
    return copy


def samples(rng: np.random.Generator, dtype: str, count: int) -> Array:
    """Random bits and, of floating types, many moderate, special and equal values."""
    kind = storage(dtype)
    raw = np.frombuffer(rng.bytes(count * kind.itemsize), kind).copy()
    if dtype == "bool":
        raw[rng.random(count) < 0.5] = 0
    if not is_floating(dtype):
        return raw
    real = "float32" if dtype in F32_FAMILY else raw.real.dtype.name
    flat = raw if dtype in F32_FAMILY else raw.view(real)
    with np.errstate(all="ignore"):
        tiny = {"float16": 6e-8, "bfloat16": 1e-40}.get(dtype, float(np.finfo(real).tiny) / 3)
        special = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1, -1, tiny, -tiny], real)
        moderate = rng.normal(0, 2, flat.size).astype(real)
        choice = rng.random(flat.size)
        values = np.where(choice < 0.2, rng.choice(special, flat.size), moderate)
        chosen = narrow(values, dtype) if dtype in F32_FAMILY else values
    flat[choice < 0.9] = chosen[choice < 0.9]
    return raw


def assert_same_bits(actual: Array, expected: Array, dtype: str, what: str) -> None:
    if actual.tobytes() == expected.tobytes():
        return
    wide = [widen(raw, dtype) for raw in (actual, expected)]
    a, b = (values.view(values.real.dtype) for values in wide)
    nbytes = actual.nbytes // a.size
    bits = [np.frombuffer(raw.tobytes(), f"V{nbytes}") for raw in (actual, expected)]
    wrong = np.flatnonzero((bits[0] != bits[1]) & ~(np.isnan(a) & np.isnan(b)))
    assert wrong.size == 0, f"{what}: at {wrong[:5]} {a[wrong[:5]]} is not {b[wrong[:5]]}"


def run(
    operands: Sequence[Operand],
    dst_dtype: str,
    op: str,
    count: int,
    divisor: float = 1.0,
    dst: Array | None = None,
) -> Array:
    """Reduce into fresh memory with guards around it (or into dst), and check the guards."""
    kind = storage(dst_dtype)
    guarded = np.full(count * kind.itemsize + 130, CANARY, np.uint8)
    begin, end = 65, 65 + count * kind.itemsize
    address = guarded[begin:].ctypes.data if dst is None else dst.ctypes.data
    _core.reduce(
        address,
        DTYPES.index(dst_dtype),
        [(o.raw.ctypes.data, DTYPES.index(o.dtype)) for o in operands],
        count,
        OPS.index(op),
        [o.scale for o in operands],
        divisor,
    )
    assert (guarded[:begin] == CANARY).all()
    assert (guarded[end:] == CANARY).all()
    return guarded[begin:end].view(kind) if dst is None else dst[:count]


# --- tests -------------------------------------------------------------------------------------


def test_this_cpu_runs_all_levels() -> None:
    missing = {"scalar", "avx2", "avx512"} - set(_core.simd_levels())
    assert "scalar" not in missing
    if missing:
        pytest.skip(f"this CPU lacks {' and '.join(sorted(missing))} (AVX-512 is the highest)")


@pytest.mark.parametrize(("dtype", "op"), PAIRS)
def test_every_count_and_number_of_sources(
    level: str, dtype: str, op: str, rng: np.random.Generator
) -> None:
    operands = [Operand(misplaced(samples(rng, dtype, LARGE), k % 9), dtype) for k in range(17)]
    for number in SOURCE_COUNTS:
        expected = model(operands[:number], dtype, op)
        for count in COUNTS:
            actual = run(operands[:number], dtype, op, count)
            assert_same_bits(actual, expected[:count], dtype, f"{number} sources, {count}")


@pytest.mark.parametrize(("dtype", "op"), [p for p in PAIRS if is_floating(p[0])])
def test_scales_and_divisor(level: str, dtype: str, op: str, rng: np.random.Generator) -> None:
    for number in SOURCE_COUNTS:
        scales = rng.choice([1.0, 0.25, 1 / 3, -2.5], number)
        operands = [
            Operand(misplaced(samples(rng, dtype, LARGE), 3), dtype, float(s)) for s in scales
        ]
        for divisor in (1.0, 3.0):
            expected = model(operands, dtype, op, divisor)
            for count in (1, 7, 67, LARGE):
                actual = run(operands, dtype, op, count, divisor)
                assert_same_bits(actual, expected[:count], dtype, f"{number}, {count}, {divisor}")


@pytest.mark.parametrize("dst_dtype", F32_FAMILY)
@pytest.mark.parametrize("op", ["sum", "prod", "min", "max"])
def test_types_that_mix(level: str, dst_dtype: str, op: str, rng: np.random.Generator) -> None:
    for trial in range(24):
        number = int(rng.integers(1, 20))
        few = rng.choice(F32_FAMILY, int(rng.integers(1, 4)))  # long runs of one type, too
        operands = []
        for _ in range(number):
            dtype = str(rng.choice(few))
            scale = float(rng.choice([1.0, 0.3])) if trial % 2 else 1.0
            operands.append(Operand(misplaced(samples(rng, dtype, LARGE), 1), dtype, scale))
        divisor = 7.0 if trial % 3 == 2 else 1.0
        expected = model(operands, dst_dtype, op, divisor)
        for count in (1, 33, LARGE):
            actual = run(operands, dst_dtype, op, count, divisor)
            what = f"{[(o.dtype, o.scale) for o in operands]} / {divisor}, {count}"
            assert_same_bits(actual, expected[:count], dst_dtype, what)


@pytest.mark.parametrize(("dtype", "op"), PAIRS)
def test_dst_is_a_source(level: str, dtype: str, op: str, rng: np.random.Generator) -> None:
    for number in (1, 2, 5, 12):
        raws = [samples(rng, dtype, LARGE) for _ in range(number)]
        for k in range(number):
            operands = [Operand(raw.copy(), dtype) for raw in raws]
            expected = model(operands, dtype, op)
            actual = run(operands, dtype, op, LARGE, dst=operands[k].raw)
            if number > 1 or dtype == "bool":
                assert_same_bits(actual, expected, dtype, f"source {k} of {number}")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64"])
def test_as_many_sources_as_allowed(level: str, dtype: str, rng: np.random.Generator) -> None:
    raw = samples(rng, dtype, 1064)
    operands = [Operand(raw[k : k + 40], dtype) for k in range(1024)]
    assert_same_bits(run(operands, dtype, "sum", 40), model(operands, dtype, "sum"), dtype, "")
