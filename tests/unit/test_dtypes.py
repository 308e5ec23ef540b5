"""Element types and operations: tables, parsing, and which pairs are refused in which words.

One file, because every table in it runs over the same dtypes.
"""

from __future__ import annotations

import itertools
import math
import subprocess
import sys

import numpy as np
import pytest

from hierring import _core, dtypes
from hierring.config import WIRE_DTYPES
from hierring.dtypes import DType, Op, ReduceOp
from hierring.errors import ConfigurationError, UnsupportedTypeError

torch = pytest.importorskip("torch")

FLOATING = [DType.FLOAT64, DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16]
INTEGER = [DType[f"{sign}INT{bits}"] for sign in ("", "U") for bits in (8, 16, 32, 64)]
COMPLEX = [DType.COMPLEX64, DType.COMPLEX128]
SUM, AVG = dtypes.parse_op("sum"), dtypes.parse_op("avg")


# --- types ---------------------------------------------------------------------------------------


def test_numbers_are_those_of_the_kernels() -> None:
    assert [str(dtype) for dtype in DType] == _core.dtype_names()
    assert [op.name.lower() for op in Op] == _core.op_names()
    assert list(DType) == list(range(len(DType)))
    assert list(Op) == list(range(len(Op)))


def test_a_dtype_prints_its_name() -> None:
    assert f"{DType.BFLOAT16} {DType.BOOL:>6}" == "bfloat16   bool"


def test_every_dtype_is_of_one_family() -> None:
    assert [d for d in DType if dtypes.is_floating(d)] == FLOATING
    assert [d for d in DType if dtypes.is_integer(d)] == INTEGER
    assert [d for d in DType if dtypes.is_complex(d)] == COMPLEX
    assert sorted([*FLOATING, *INTEGER, *COMPLEX, DType.BOOL]) == list(DType)


@pytest.mark.parametrize("dtype", list(DType))
def test_numpy_and_torch_agree_on_names_and_sizes(dtype: DType) -> None:
    torch_dtype = dtypes.to_torch(dtype)
    assert str(torch_dtype) == f"torch.{dtype}"
    assert dtypes.from_torch(torch_dtype) is dtype
    assert dtypes.itemsize(dtype) == torch_dtype.itemsize
    if dtype is not DType.BFLOAT16:
        numpy_dtype = dtypes.to_numpy(dtype)
        assert numpy_dtype == np.dtype(str(dtype))
        assert dtypes.from_numpy(numpy_dtype) is dtype
        assert dtypes.itemsize(dtype) == numpy_dtype.itemsize


@pytest.mark.parametrize("letter", "bBhHiIlLqQfdFD?")
def test_every_native_letter_of_numpy_is_known(letter: str) -> None:
    dtype = np.dtype(letter)
    assert dtypes.itemsize(dtypes.from_numpy(dtype)) == dtype.itemsize
    assert dtypes.from_numpy(np.dtype("=" + letter)) is dtypes.from_numpy(dtype)


def test_bfloat16_of_ml_dtypes() -> None:
    bfloat16 = np.dtype(pytest.importorskip("ml_dtypes").bfloat16)
    assert dtypes.from_numpy(bfloat16) is DType.BFLOAT16
    assert dtypes.from_numpy(bfloat16) is DType.BFLOAT16  # the second time from the table
    assert dtypes.to_numpy(DType.BFLOAT16) == bfloat16
    with pytest.raises(UnsupportedTypeError, match="convert it to native byte order"):
        dtypes.from_numpy(bfloat16.newbyteorder())


def test_bfloat16_without_ml_dtypes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    assert dtypes.to_numpy(DType.BFLOAT16) is None


@pytest.mark.parametrize(
    ("dtype", "remedy"),
    [
        (np.dtype("f4").newbyteorder(), "native byte order with x.astype"),
        (np.dtype(object), "numeric dtype with x.astype"),
        (np.dtype("S3"), "text cannot be reduced; use comm.bcast or comm.gather"),
        (np.dtype("U3"), "text cannot be reduced"),
        (np.dtype("M8[s]"), r"x.view\(numpy.int64\)"),
        (np.dtype("m8[s]"), r"x.view\(numpy.int64\)"),
        (np.dtype([("a", "f4"), ("b", "i4")]), r"one by one, as x\['name'\]"),
        (np.dtype("V8"), r"convert it with x.astype\(...\)"),
        (np.dtype(np.longdouble), r"x.astype\(numpy.float64\)"),
        (np.dtype(np.clongdouble), "or numpy.complex128"),
    ],
)
def test_numpy_dtypes_refused(dtype: np.dtype, remedy: str) -> None:
    with pytest.raises(UnsupportedTypeError, match=f"is not supported: .*{remedy}") as caught:
        dtypes.from_numpy(dtype)
    assert str(dtype) in str(caught.value)
    assert "supported are float64, float32, float16, bfloat16, int8" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("float8_e4m3fn", r"x.to\(torch.bfloat16\) or x.float\(\)"),
        ("float8_e5m2", r"x.to\(torch.bfloat16\)"),
        ("qint8", r"x.dequantize\(\)"),
        ("quint8", "x.int_repr"),
        ("complex32", r"x.to\(torch.complex64\)"),
        ("uint4", r"convert it with x.to\(...\)"),
    ],
)
def test_torch_dtypes_refused(name: str, remedy: str) -> None:
    dtype = getattr(torch, name)
    with pytest.raises(UnsupportedTypeError, match=f"dtype torch.{name} is not supp.*{remedy}.*;"):
        dtypes.from_torch(dtype)


def test_a_dtype_that_this_torch_lacks() -> None:
    class Old:
        pass

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "torch", Old)
        with pytest.raises(UnsupportedTypeError, match="no dtype uint32: use a newer one"):
            dtypes.to_torch(DType.UINT32)


# --- operations ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sum", "avg", "min", "max", "prod", "band", "bor", "bxor"])
def test_parse_op_names(name: str) -> None:
    parsed = dtypes.parse_op(name)
    assert parsed.name == str(parsed) == name
    assert parsed.average is (name == "avg")
    assert parsed.op is (Op.SUM if name == "avg" else Op[name.upper()])
    assert dtypes.parse_op(name.upper()) is parsed
    assert dtypes.parse_op(parsed) is parsed


@pytest.mark.parametrize("bad", ["mean", "", "add", None, 3, sum, [], np.add])
def test_unknown_op_is_refused_with_the_known_ones(bad: object) -> None:
    with pytest.raises(
        ConfigurationError, match=r"op=.* is not known: give one of sum, avg, min, "
    ):
        dtypes.parse_op(bad)


TORCH_OPS = {
    "SUM": "sum",
    "AVG": "avg",
    "PRODUCT": "prod",
    "MIN": "min",
    "MAX": "max",
    "BAND": "band",
    "BOR": "bor",
    "BXOR": "bxor",
}


@pytest.mark.parametrize(("theirs", "ours"), list(TORCH_OPS.items()))
def test_torch_ops(theirs: str, ours: str) -> None:
    reduce_op = torch.distributed.ReduceOp
    value = getattr(reduce_op, theirs)
    assert dtypes.parse_op(value) is dtypes.parse_op(ours)
    assert dtypes.parse_op(reduce_op(value)) is dtypes.parse_op(ours)


def test_torch_op_with_a_factor_is_refused_naming_scale() -> None:
    with pytest.raises(ConfigurationError, match=r"ReduceOp.PREMUL_SUM .* op='sum' with scale="):
        dtypes.parse_op(torch.distributed.ReduceOp.PREMUL_SUM)


MPI_CHECK = """
from mpi4py import MPI
from hierring import dtypes, errors

for name in ("SUM", "PROD", "MIN", "MAX", "BAND", "BOR", "BXOR"):
    assert dtypes.parse_op(getattr(MPI, name)) is dtypes.parse_op(name.lower()), name
for op in (MPI.Op.Create(lambda a, b, c: None), MPI.LAND, MPI.MAXLOC, MPI.REPLACE, MPI.OP_NULL):
    try:
        dtypes.parse_op(op)
    except errors.ConfigurationError as error:
        print(error)
"""


@pytest.mark.slow
def test_mpi_ops() -> None:
    # In a process of its own, for importing MPI starts it.
    run = subprocess.run(
        [sys.executable, "-P", "-c", MPI_CHECK], capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 0, run.stderr
    first, *rest = run.stdout.splitlines()
    assert first.startswith("op is a user-defined MPI.Op, which only MPI can run: call comm.Allre")
    assert len(rest) == 4
    for line in rest:
        assert line.startswith("op is a predefined MPI.Op without a hierring counterpart: call com")
        assert line.endswith("give one of sum, avg, min, max, prod, band, bor, bxor")


def _refused(op: str, dtype: DType) -> bool:
    if dtype in FLOATING:
        return op in ("band", "bor", "bxor")
    if dtype in COMPLEX:
        return op in ("band", "bor", "bxor", "min", "max")
    return op == "avg"


@pytest.mark.parametrize(
    ("op", "dtype"),
    list(itertools.product(["sum", "avg", "min", "max", "prod", "band", "bor", "bxor"], DType)),
)
def test_matrix_of_ops_and_dtypes(op: str, dtype: DType) -> None:
    parsed = dtypes.parse_op(op)
    if not _refused(op, dtype):
        dtypes.check_op(parsed, dtype)
        return
    with pytest.raises(UnsupportedTypeError) as caught:
        dtypes.check_op(parsed, dtype)
    message = str(caught.value)
    assert message.startswith(f"op='{op}' is not supported for {dtype}, which allows sum, ")
    allowed = message.split("allows ")[1].split(":")[0].split(", ")
    every = ["sum", "avg", "min", "max", "prod", "band", "bor", "bxor"]
    assert sorted(allowed) == sorted(name for name in every if not _refused(name, dtype))


# --- scale ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATING + COMPLEX)
def test_scale_goes_with_sum_and_avg_of_floating_and_complex(dtype: DType) -> None:
    for scale in (0.25, 2, -0.0, math.inf, np.float32(3), np.array(1.5)):
        assert dtypes.check_scale(scale, SUM, dtype) == float(scale)
        assert type(dtypes.check_scale(scale, AVG, dtype)) is float
    assert math.isnan(dtypes.check_scale(math.nan, SUM, dtype))


@pytest.mark.parametrize("dtype", list(DType))
def test_no_scale_is_one(dtype: DType) -> None:
    assert dtypes.check_scale(None, SUM, dtype) == 1.0


@pytest.mark.parametrize(
    ("scale", "op", "dtype", "reason"),
    [
        (0.5, "max", DType.FLOAT32, "does not go with op='max': it is for sum and avg"),
        (1.0, "prod", DType.COMPLEX64, "does not go with op='prod'"),
        (2, "sum", DType.INT32, "does not go with int32: it is for floating and complex dtypes"),
        (2, "sum", DType.BOOL, "does not go with bool"),
        ("2", "sum", DType.FLOAT32, "scale='2' is not valid: give a real number"),
        (1j, "sum", DType.COMPLEX64, "give a real number"),
        ([1.0], "sum", DType.FLOAT32, "give a real number"),
        (10**400, "sum", DType.FLOAT64, "give a real number"),
    ],
)
def test_scale_refused(scale: object, op: str, dtype: DType, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        dtypes.check_scale(scale, dtypes.parse_op(op), dtype)


# --- the wire ------------------------------------------------------------------------------------

FITTING = {
    DType.FLOAT32: {"float32", "bfloat16", "float16"},
    DType.FLOAT16: {"float32", "float16"},
    DType.BFLOAT16: {"float32", "bfloat16"},
}


@pytest.mark.parametrize("dtype", list(DType))
def test_by_default_a_dtype_travels_as_itself_but_the_mean_of_float16(dtype: DType) -> None:
    assert dtypes.wire_type(dtype, SUM) is dtype
    average = DType.FLOAT32 if dtype is DType.FLOAT16 else dtype
    assert dtypes.wire_type(dtype, AVG, None, explicit=False) is average


@pytest.mark.parametrize(
    ("dtype", "wire", "op"),
    list(itertools.product(DType, WIRE_DTYPES, [SUM, AVG, dtypes.parse_op("max")])),
)
def test_matrix_of_wire_types(dtype: DType, wire: str, op: ReduceOp) -> None:
    if wire in FITTING.get(dtype, ()):
        for explicit in (True, False):
            assert dtypes.wire_type(dtype, op, wire, explicit) is DType[wire.upper()]
        return
    # A setting for all calls is passed over where it does not apply; a request is not.
    assert dtypes.wire_type(dtype, op, wire, False) is dtypes.wire_type(dtype, op)
    with pytest.raises(ConfigurationError, match=f"wire_dtype='{wire}' does not fit {dtype}: it t"):
        dtypes.wire_type(dtype, op, wire, True)


def test_wire_errors_list_what_is_good() -> None:
    with pytest.raises(ConfigurationError, match=r"it takes float32 or float16$"):
        dtypes.wire_type(DType.FLOAT16, SUM, "bfloat16")
    with pytest.raises(ConfigurationError, match=r"it takes none: leave wire_dtype out$"):
        dtypes.wire_type(DType.FLOAT64, SUM, "float32")
    for explicit in (True, False):
        with pytest.raises(ConfigurationError, match="not known: give one of float32, bfloat16, f"):
            dtypes.wire_type(DType.FLOAT32, SUM, "float8", explicit)


@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.FLOAT32])
def test_only_averages_that_travel_as_float16_are_kept_as_means(dtype: DType) -> None:
    assert dtypes.mean_so_far(dtype, AVG, DType.FLOAT16)
    assert not dtypes.mean_so_far(dtype, AVG, DType.FLOAT32)
    assert not dtypes.mean_so_far(dtype, SUM, DType.FLOAT16)
