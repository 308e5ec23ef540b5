"""What may not take part, and in which words it is refused; what autograd is told."""

from __future__ import annotations

import array
import decimal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from hierring import buffers
from hierring._testing.memory import content
from hierring.errors import UnsupportedTypeError

torch = pytest.importorskip("torch")

MODES = {"inplace": buffers.inplace, "read": buffers.read, "write": buffers.write}


def _read_only() -> np.ndarray:
    x = np.zeros((2, 3), np.float32)
    x.flags.writeable = False
    return x


def _jagged() -> Any:
    return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)


def _fake() -> Any:
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        return torch.zeros(4)


REFUSED_IN_EVERY_MODE: dict[str, tuple[Callable[[], Any], str]] = {
    "byte-swapped": (
        lambda: np.zeros(3, np.dtype("f4").newbyteorder()),
        r"NumPy array of shape \(3,\): dtype >f4 is not supported: convert it to native byte order",
    ),
    "object": (lambda: np.zeros(3, object), "dtype object is not supported"),
    "str": (lambda: np.zeros(3, "U2"), "text cannot be reduced"),
    "datetime": (lambda: np.zeros(3, "M8[s]"), r"dtype datetime64\[s\] .*view\(numpy.int64\)"),
    "structured": (lambda: np.zeros(3, [("a", "f4")]), r"one by one, as x\['name'\]"),
    "long double": (lambda: np.zeros(3, np.longdouble), "astype"),
    "masked": (
        lambda: np.ma.zeros(3),
        r"dtype float64, shape \(3,\) is masked: give x.filled\(value\), or x.data",
    ),
    "list": (lambda: [1.0, 2.0], r"a list has no .*: give numpy.asarray\(x\), .*allreduce_coalesc"),
    "tuple": (lambda: (1, 2), r"a tuple has no elements in one piece"),
    "None": (lambda: None, "type builtins.NoneType has neither DLPack nor the buffer protocol: gi"),
    "text": (lambda: "abc", "type builtins.str has neither"),
    "decimal": (lambda: decimal.Decimal(3), "type decimal.Decimal has neither"),
    "letters": (lambda: array.array("u", "ab"), r"object of type array of shape \(2,\): dtype <U1"),
    "scalar text": (lambda: np.str_("a"), "object of type str_ of shape|type builtins|text cannot"),
    "meta": (
        lambda: torch.zeros(3, device="meta"),
        r"torch tensor of dtype float32, shape \(3,\) has no data: give a tensor that has been mat",
    ),
    "sparse COO": (
        lambda: torch.eye(3).to_sparse(),
        r"shape \(3, 3\) has layout torch.sparse_coo: give x.to_dense\(\), or its x.values\(\)",
    ),
    "sparse CSR": (
        lambda: torch.eye(3).to_sparse_csr(),
        "has layout torch.sparse_csr: give x.to_d",
    ),
    "quantised": (
        lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
        r"torch tensor of shape \(3,\): dtype torch.qint8 is not supported: reduce x.dequantize",
    ),
    "float8": (
        lambda: torch.zeros(3, dtype=torch.float8_e4m3fn),
        r"torch tensor of shape \(3,\): dtype torch.float8_e4m3fn is not .*: reduce x.to\(torch.bf",
    ),
    "lazy conjugate": (
        lambda: torch.zeros(3, dtype=torch.complex64).conj(),
        r"dtype complex64, shape \(3,\) is a lazy conjugate .*: give x.resolve_conj\(\)",
    ),
    "lazy negative": (
        lambda: torch.zeros(3, dtype=torch.complex64).conj().imag,
        r"is a lazy negative of its memory: give x.resolve_neg\(\)",
    ),
    "nested": (_jagged, r"float32 is nested: give x.values\(\), or each of x.unbind\(\)"),
    "fake": (_fake, r"shape \(4,\) has no memory of its own: give the plain tensor inside"),
    "leaf with grad": (
        lambda: torch.zeros(3, requires_grad=True),
        r"requires grad, and .*: call under torch.no_grad\(\), or give x.detach\(\)",
    ),
    "parameter": (lambda: torch.nn.Parameter(torch.zeros(3)), "requires grad"),
    "result with grad": (lambda: torch.zeros(3, requires_grad=True) * 2, "requires grad"),
}


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
@pytest.mark.parametrize("mode", list(MODES))
@pytest.mark.parametrize("what", list(REFUSED_IN_EVERY_MODE))
def test_refused_in_every_mode(what: str, mode: str) -> None:
    make, message = REFUSED_IN_EVERY_MODE[what]
    x = make()
    if what == "scalar text" and mode == "write":
        message = "has no memory to write to"
    with pytest.raises(UnsupportedTypeError, match=message):
        MODES[mode](x)


@pytest.mark.parametrize("mode", ["inplace", "write"])
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            _read_only,
            r"NumPy array of dtype float32, shape \(2, 3\) is read-only: give out=, or a c",
        ),
        (lambda: np.broadcast_to(np.zeros(1), (4,)), "is read-only"),
        (
            lambda: b"abcd",
            r"object of type bytes of dtype uint8, shape \(4,\) is read-only: give o",
        ),
        (
            lambda: as_strided(np.zeros(9), (3, 3), (8, 8)),
            r"strides \(8, 8\) holds several elements",
        ),
    ],
)
def test_refused_only_where_it_would_be_written(
    make: Callable[[], Any], message: str, mode: str
) -> None:
    x = make()
    assert content(buffers.read(x)) == np.asarray(memoryview(x)).tobytes()
    with pytest.raises(UnsupportedTypeError, match=message):
        MODES[mode](x)


@pytest.mark.parametrize("number", [3, 0.5, True, 1j, np.float32(3)])
def test_a_number_is_no_out(number: Any) -> None:
    with pytest.raises(
        UnsupportedTypeError, match=r"^out=.* has no memory to write to: give an arr"
    ):
        buffers.write(number)


def test_tensors_inside_a_transform_are_refused() -> None:
    def inside(x: Any) -> Any:
        with pytest.raises(
            UnsupportedTypeError, match=r"has no memory of its own: .*outside of tran"
        ):
            buffers.inplace(x)
        return x

    torch.vmap(inside)(torch.ones(3, 2))


# --- torch's autograd ----------------------------------------------------------------------------


def test_requiring_grad_is_fine_without_grad_mode() -> None:
    leaf = torch.nn.Parameter(torch.zeros(3))
    with torch.no_grad():
        assert buffers.inplace(leaf).value() is leaf
    assert buffers.inplace(leaf.detach()).count == 3


def test_written_raises_the_version_counter_of_the_base_too() -> None:
    base = torch.zeros(4, 4)
    view = base[:, ::2]
    before = base._version
    buffers.inplace(view).written()
    assert base._version > before
    assert view._version == base._version


def test_a_stale_use_in_backward_is_noticed() -> None:
    weight = torch.ones(3, requires_grad=True)
    x = torch.ones(3)
    loss = (weight * x).sum()
    buffers.inplace(x).written()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_written_is_harmless_for_everything_else() -> None:
    with torch.inference_mode():
        x = torch.zeros(3)
    for buffer in (buffers.inplace(x), buffers.inplace(np.zeros(3)), buffers.inplace(1.0)):
        buffer.written()
