"""How kernels round and convert, and what their bindings refuse."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest

from hierring import _core

DTYPES = _core.dtype_names()
OPS = _core.op_names()
F32, F16, BF16, I8, B8, C64 = (
    DTYPES.index(name) for name in ("float32", "float16", "bfloat16", "int8", "bool", "complex64")
)
SUM, MIN, MAX = (OPS.index(name) for name in ("sum", "min", "max"))

Array = npt.NDArray[np.generic]


@pytest.fixture(params=_core.simd_levels(), autouse=True)
def level(request: pytest.FixtureRequest) -> Iterator[str]:
    before = _core.simd_level()
    assert _core.set_simd_level(request.param)
    yield request.param
    _core.set_simd_level(before)


def convert(values: Array, source: int, dst: int, kind: type[np.generic]) -> Array:
    """One source and no scale is a conversion."""
    result = np.zeros(values.size, kind)
    _core.reduce(result.ctypes.data, dst, [(values.ctypes.data, source)], values.size, SUM)
    return result


def reduce(arrays: list[Array], dtype: int, op: int, **options: float) -> Array:
    result = np.zeros_like(arrays[0])
    sources = [(array.ctypes.data, dtype) for array in arrays]
    _core.reduce(result.ctypes.data, dtype, sources, result.size, op, **options)
    return result


def near_halfway(bits: npt.NDArray[np.uint32]) -> npt.NDArray[np.float32]:
    """The float32 of these bits, and those one step below and above, of both signs."""
    around = np.concatenate([bits - np.uint32(1), bits, bits + np.uint32(1)])
    return np.concatenate([around, around | np.uint32(0x80000000)]).view(np.float32)


def random_float32(rng: np.random.Generator) -> npt.NDArray[np.float32]:
    return np.frombuffer(rng.bytes(4 << 18), np.float32)


def assert_equal(actual: Array, expected: Array) -> None:
    """Same bits; any NaN equals any other."""
    nan = np.isnan(expected)
    assert (np.isnan(actual) == nan).all()
    assert actual[~nan].tobytes() == expected[~nan].tobytes()


def test_every_float16_widens_exactly() -> None:
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    assert_equal(convert(halves, F16, F32, np.float32), halves.astype(np.float32))


def test_every_bfloat16_widens_exactly() -> None:
    raw = np.arange(1 << 16, dtype=np.uint16)
    expected = (raw.astype(np.uint32) << np.uint32(16)).view(np.float32)
    assert_equal(convert(raw, BF16, F32, np.float32), expected)


def test_float16_is_rounded_to_nearest_even(rng: np.random.Generator) -> None:
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float64)
    above = np.append(halves[1:], 65536.0)  # the one after the largest would be
    halfway = ((halves + above) / 2).astype(np.float32).view(np.uint32)
    for values in (near_halfway(halfway), random_float32(rng)):
        with np.errstate(all="ignore"):
            expected = values.astype(np.float16)
        assert_equal(convert(values, F32, F16, np.float16), expected)


def test_bfloat16_is_rounded_as_torch_does(rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    halfway = (np.arange(0x8000, dtype=np.uint32) << np.uint32(16)) + np.uint32(0x8000)
    for values in (near_halfway(halfway), random_float32(rng)):
        rounded = torch.from_numpy(values.copy()).to(torch.bfloat16)
        actual = torch.from_numpy(convert(values, F32, BF16, np.int16)).view(torch.bfloat16)
        assert_equal(actual.float().numpy(), rounded.float().numpy())


@pytest.mark.parametrize("low", [1, 0x7FFF, 0x8000, 0xFFFF])
@pytest.mark.parametrize("high", [0x7F80, 0x7FFF, 0xFF80, 0xFFFF])
@pytest.mark.parametrize("dst", [F16, BF16])
def test_any_nan_stays_one(high: int, low: int, dst: int) -> None:
    values = np.full(70, (high << 16) | low, np.uint32)
    narrow = convert(values, F32, dst, np.uint16)
    assert np.isnan(convert(narrow, dst, F32, np.float32)).all()
    for op in (SUM, MIN, MAX):
        half = np.full(70, high | (low == 1), np.uint16)  # 0x7f80 itself is infinity
        numbers = np.full(70, 0x3FFF, np.uint16)
        for scale in (1.0, 1.0009765625):
            options = {"scales": [scale, scale]}
            for arrays in ([half, numbers], [numbers, half]):
                result = reduce(arrays, BF16, op, **options)  # type: ignore[arg-type]
                is_nan = np.isnan(convert(result, BF16, F32, np.float32))
                assert is_nan.all() == (half[0] & 0x7F != 0)


def test_partial_sums_are_not_rounded_to_16_bits() -> None:
    big, one = np.full(50, 2048, np.float16), np.ones(50, np.float16)
    assert (reduce([big, one, one], F16, SUM) == 2050).all()  # 2048 + 1 is 2048 in float16
    assert (reduce([big, *[one] * 40], F16, SUM) == 2088).all()
    largest = np.full(50, 65504, np.float16)
    assert (reduce([largest, largest], F16, SUM, divisor=2.0) == 65504).all()


def test_division_is_exact() -> None:
    numerators = np.arange(1, 400, dtype=np.float32)
    for divisor in (3.0, 7.0, 41.0, 49.0):
        result = reduce([numerators], F32, SUM, divisor=divisor)
        assert (result == numerators / np.float32(divisor)).all()


def test_one_scale_of_one_changes_no_bit() -> None:
    bits = np.array([0x80000000, 0x7FC12345, 0xFFC00001, 0x00000001, 0x7F7FFFFF] * 9, np.uint32)
    assert (convert(bits, F32, F32, np.uint32) == bits).all()


def test_integers_wrap_and_bool_is_any_or_all() -> None:
    big = np.full(33, 100, np.int8)
    assert (reduce([big, big], I8, SUM) == np.int8(-56)).all()
    odd = np.array([0, 2, 0, 255] * 10, np.uint8)
    even = np.array([0, 0, 4, 255] * 10, np.uint8)
    assert (reduce([odd, even], B8, SUM).reshape(10, 4) == [0, 1, 1, 1]).all()
    assert (reduce([odd, even], B8, MIN).reshape(10, 4) == [0, 0, 0, 1]).all()


def test_reduce2_is_reduce() -> None:
    a, b = np.arange(50, dtype=np.float32), np.full(50, 3, np.float32)
    result = np.zeros_like(a)
    _core.reduce2(
        *(result.ctypes.data, F32, a.ctypes.data, b.ctypes.data, 50, SUM),
        scale_a=2.0,
        scale_b=-1.0,
        divisor=3.0,
    )
    assert (result == (2 * a - b) / np.float32(3)).all()


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="max is not defined for complex64"):
        _core.reduce(0, C64, [(0, C64)], 0, MAX)
    with pytest.raises(ValueError, match="band is not defined for float32"):
        _core.reduce2(0, F32, 0, 0, 0, OPS.index("band"))
    with pytest.raises(ValueError, match="no dtype has number 15"):
        _core.reduce(0, 15, [(0, 0)], 0, SUM)
    with pytest.raises(ValueError, match="no operator has number 7"):
        _core.reduce2(0, F32, 0, 0, 0, 7)
    with pytest.raises(ValueError, match="dtypes must be equal"):
        _core.reduce(0, F32, [(0, F32), (0, DTYPES.index("float64"))], 0, SUM)
    for number in (0, 1025):
        with pytest.raises(ValueError, match="number of sources"):
            _core.reduce(0, F32, [(0, F32)] * number, 0, SUM)
    with pytest.raises(ValueError, match="one scale for each source"):
        _core.reduce(0, F32, [(0, F32)], 0, SUM, [1.0, 1.0])
    level = _core.simd_level()
    assert not _core.set_simd_level("mmx")
    assert _core.simd_level() == level
