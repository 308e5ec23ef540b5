"""Whole calls: which tensors they take, and that nothing has happened where they do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hierring import _core
from hierring.communicator import whole
from hierring.communicator.whole import DONE, ENTERED, LARGE, UNFIT
from hierring.dtypes import DType

SMALL_BYTES, CELL_BYTES, WINDOW_CELLS = 256, 1024, 4
SUM = _core.op_names().index("sum")
COUNTS = (6, 5000)  # small, large


def channel_of(size: int) -> _core.Channel:
    """A channel on memory of this process; its peers, if any, never come."""
    sizes = (size, CELL_BYTES, WINDOW_CELLS, SMALL_BYTES)
    segment = _core.Segment.private(_core.Channel.layout_nbytes(*sizes))
    channel = _core.Channel(segment, 0, *sizes)
    channel.reserve()
    return channel


def call_of(channel: _core.Channel) -> _core.WholeCall:
    """A whole call that halves sums of float32 and complex64 with these counts."""
    call = whole.make(channel)
    for dtype, size in ((DType.FLOAT32, 4), (DType.COMPLEX64, 8)):
        for count in COUNTS:
            call.learn("sum", int(dtype), SUM, count, CELL_BYTES // size, 2.0, 1, b"sum")
    return call


@pytest.fixture
def alone() -> tuple[_core.WholeCall, _core.Channel]:
    channel = channel_of(1)
    return call_of(channel), channel


def run(call: _core.WholeCall, x: Any, op: Any = "sum", out: Any = None) -> int:
    """As the communicator does it."""
    answer = call.run(x, op, out)
    return call.run_large(x, op, out) if answer == LARGE else answer


@pytest.mark.parametrize("count", COUNTS)
def test_in_place_and_out_of_place(
    alone: tuple[_core.WholeCall, _core.Channel], count: int
) -> None:
    call, channel = alone
    x = np.arange(count, dtype=np.float32)
    out = np.zeros((2, count // 2), np.float32)
    assert run(call, x, "".join(["su", "m"]), out) == DONE  # an equal string, but not the same
    np.testing.assert_array_equal(out.ravel(), np.arange(count) / 2)
    np.testing.assert_array_equal(x, np.arange(count))
    assert run(call, x) == DONE
    np.testing.assert_array_equal(x, np.arange(count) / 2)
    assert (channel.seq, call.settled) == (2, 2)
    assert call.completed == ((2, 0) if count == 6 else (0, 2))
    assert call.done_here
    assert not call.claimed


class Derived(np.ndarray):
    """Might mean anything by its elements."""


def read_only(count: int) -> Any:
    x = np.zeros(count, np.float32)
    x.flags.writeable = False
    return x


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(
    "make",
    [
        lambda count: np.zeros(2 * count, np.float32)[::2],
        lambda count: np.zeros((2, count // 2), np.float32).T,
        lambda count: np.zeros(count, np.dtype(np.float32).newbyteorder()),
        lambda count: np.zeros(count, np.float64),  # no recipe
        lambda count: np.zeros(count + 1, np.float32),  # no recipe
        lambda count: np.zeros(count, np.float32).view(Derived),
        read_only,
        lambda count: [0.0] * count,
        lambda count: None,
    ],
    ids=[
        "strided",
        "transposed",
        "swapped",
        "dtype",
        "count",
        "derived",
        "read-only",
        "list",
        "no",
    ],
)
def test_what_it_leaves_to_the_engine(
    alone: tuple[_core.WholeCall, _core.Channel], make: Any, count: int
) -> None:
    call, channel = alone
    assert run(call, make(count)) == UNFIT
    assert run(call, np.zeros(count, np.float32), "prod") == UNFIT
    assert run(call, np.zeros(count, np.float32), None) == UNFIT
    assert channel.seq == 0


@pytest.mark.parametrize("count", COUNTS)
def test_where_a_result_does_not_fit(
    alone: tuple[_core.WholeCall, _core.Channel], count: int
) -> None:
    call, channel = alone
    memory = np.zeros(2 * count, np.float32)
    x = memory[:count]
    for out in (memory[1 : count + 1], np.zeros(count, np.complex64), read_only(count), 3.0):
        assert run(call, x, out=out) == UNFIT
    assert channel.seq == 0
    assert run(call, x, out=memory[count:]) == DONE
    assert run(call, read_only(count), out=x) == DONE


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("count", COUNTS)
def test_tensors(alone: tuple[_core.WholeCall, _core.Channel], count: int) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    call, channel = alone
    x = torch.ones(count)
    assert run(call, x) == UNFIT  # as long as nothing has told it of torch
    whole._learn_torch(call)
    version = x._version
    assert run(call, x) == DONE
    assert x.tolist() == [0.5] * count
    assert x._version > version
    grad = torch.ones(count, requires_grad=True)
    nested = torch.nested.nested_tensor([torch.ones(count // 2)] * 2)
    complex_ones = torch.ones(count, dtype=torch.complex64)
    refused = (
        grad,
        torch.ones(2 * count)[::2],
        complex_ones.conj(),
        torch.ones(count, dtype=torch.complex64).conj().imag,
        torch.ones(count).to_sparse(),
        torch.ones(count, device="meta"),
        nested,
        torch.nn.Parameter(torch.ones(count)),
    )
    for tensor in refused:
        assert run(call, tensor) == UNFIT
    assert channel.seq == 1
    assert run(call, complex_ones) == DONE
    assert run(call, grad.detach()) == DONE


@pytest.mark.parametrize("count", COUNTS)
def test_a_call_that_others_are_late_for_is_handed_over(count: int) -> None:
    channel = channel_of(2)
    call = call_of(channel)
    x = np.arange(count, dtype=np.float32)
    assert run(call, x) == ENTERED
    assert (channel.seq, call.settled, call.completed) == (1, 0, (0, 0))
    assert call.mine
    assert not call.done_here
    np.testing.assert_array_equal(x, np.arange(count))
    assert channel.missing() == [1]
    assert run(call, x) == UNFIT  # somebody is inside
    assert channel.seq == 1
    call.release()
    assert not call.claimed


def test_a_channel_that_is_broken_or_left_takes_no_call() -> None:
    for end in (lambda c: c.set_abort(1, 0, b"gone"), lambda c: c.leave()):
        channel = channel_of(1)
        call = call_of(channel)
        end(channel)
        assert run(call, np.zeros(6, np.float32)) == UNFIT
        assert channel.seq == 0


def test_arrays_that_look_otherwise_are_not_touched() -> None:
    """Should NumPy ever change how its arrays begin."""
    call = _core.WholeCall(channel_of(1))
    probe = np.zeros((2, 3))
    dtypes = {np.dtype(np.float64): int(DType.FLOAT64)}
    assert not call.know_numpy(np.ndarray, dtypes, probe, probe.ctypes.data + 8)
    assert not call.know_numpy(np.ndarray, dtypes, probe[:, :2], probe.ctypes.data)
    call.learn("sum", int(DType.FLOAT64), SUM, 6, 8, 1.0, 1, b"sum")
    assert call.run(probe, "sum", None) == UNFIT
    assert call.know_numpy(np.ndarray, dtypes, probe, probe.ctypes.data)
    assert call.run(probe, "sum", None) == DONE
