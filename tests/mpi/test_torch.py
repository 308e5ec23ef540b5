"""torch tensors: dtypes NumPy lacks, views, version counters, autograd, refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

import hierring as hr
from hierring._testing import (
    ALGORITHMS,
    UNIT,
    Checks,
    exact_input,
    exact_sum,
    expected,
    expected_nodes,
    general_input,
    ops_for,
    round_to_bfloat16,
    sum_bound,
)
from hierring.config import Config

torch = pytest.importorskip("torch")

RANK, SIZE = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
NODES = expected_nodes(SIZE)
TOTAL = SIZE * (SIZE + 1) // 2


@pytest.fixture(scope="module")
def comm() -> Iterator[hr.Communicator]:
    torch.set_num_threads(1)
    config = Config.from_env(timeout_s=60, cell_bytes=4096, small_bytes=256)
    with hr.Communicator(MPI.COMM_WORLD, config=config) as handle:
        yield handle


@pytest.fixture(scope="module")
def control() -> Iterator[MPI.Comm]:
    comm = MPI.COMM_WORLD.Dup()
    yield comm
    comm.Free()


def bits(tensor: Any) -> np.ndarray:
    """The bits of a bfloat16 tensor."""
    return tensor.contiguous().view(torch.int16).numpy()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_bfloat16(comm: hr.Communicator, control: MPI.Comm, algorithm: str) -> None:
    with Checks() as check:
        for op in ops_for("bfloat16"):
            for count in (0, 1, 7, 33, 2500):
                x = torch.from_numpy(exact_input("bfloat16", op, RANK, SIZE, count)).bfloat16()
                result = comm.allreduce(x, op, algorithm=algorithm)
                label = f"{op} {algorithm} count {count}"
                check.true(result is x and x.dtype == torch.bfloat16, f"{label}: in place")
                check.equal(x.float().numpy(), expected("bfloat16", op, SIZE, count), label)
        flat = algorithm not in ("hierarchical",)
        for count in (6, 2500):
            inputs = [general_input("bfloat16", rank, count) for rank in range(SIZE)]
            x = torch.from_numpy(inputs[RANK].copy()).bfloat16()
            comm.allreduce(x, algorithm=algorithm)
            steps = SIZE if flat else len(NODES)
            bound = sum_bound(inputs, UNIT["float32"], UNIT["bfloat16"], steps)
            check.within(x.float().numpy(), exact_sum(inputs), bound, f"general, count {count}")
            check.same_on_all_ranks(control, f"general, count {count}", bits(x))


def test_bfloat16_rounds_once_with_a_float32_wire(comm: hr.Communicator) -> None:
    rng = np.random.default_rng(13)
    with Checks() as check:
        for count in (6, 2500):
            inputs = rng.integers(128, 256, (SIZE, count)) / 128.0
            inputs *= 2.0 ** rng.integers(-4, 4, (SIZE, count))
            exact = round_to_bfloat16(inputs.sum(axis=0).astype(np.float32))
            for algorithm in ALGORITHMS:
                x = torch.from_numpy(inputs[RANK]).bfloat16()
                comm.allreduce(x, wire_dtype="float32", algorithm=algorithm)
                check.equal(x.float().numpy(), exact, f"{algorithm} count {count}")


@pytest.mark.parametrize(
    "name",
    [
        "float64",
        "float32",
        "float16",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "bool",
        "complex64",
    ],
)
def test_other_dtypes(comm: hr.Communicator, name: str) -> None:
    with Checks() as check:
        for op in ops_for(name):
            for count in (5, 1100):
                x = torch.from_numpy(exact_input(name, op, RANK, SIZE, count))
                comm.allreduce(x, op)
                check.equal(x.numpy(), expected(name, op, SIZE, count), f"{op} count {count}")


def test_views(comm: hr.Communicator) -> None:
    """Strided, transposed and offset views: the result lies in the view, its surroundings stay."""
    cases: dict[str, Callable[[Any], Any]] = {
        "columns": lambda base: base[:, ::2],
        "transposed": lambda base: base.t(),
        "offset": lambda base: base.view(-1)[3:40],
        "row": lambda base: base[2],
        "scalar": lambda base: base[1, 1],
        "permuted": lambda base: base.view(2, -1, 5).permute(2, 0, 1),
    }
    with Checks() as check:
        for name, take in cases.items():
            for dtype in (torch.float32, torch.bfloat16):
                for rows in (10, 300):
                    base = torch.full((rows, 10), 77.0, dtype=dtype)
                    view = take(base)
                    kind = "float32" if dtype == torch.float32 else "bfloat16"
                    flat = exact_input(kind, "sum", RANK, SIZE, view.numel())
                    view.copy_(torch.from_numpy(flat).to(dtype).view(view.shape))
                    comm.allreduce(view)
                    wanted = expected(kind, "sum", SIZE, view.numel()).reshape(tuple(view.shape))
                    check.equal(view.float().numpy(), wanted, f"{name} {dtype} rows {rows}")
                    take(base).fill_(77.0)
                    check.true((base == 77.0).all(), f"{name} {dtype} rows {rows}: surroundings")


def test_out_of_another_layout(comm: hr.Communicator) -> None:
    with Checks() as check:
        x = torch.full((4, 6), float(RANK + 1))
        out = torch.zeros(6, 4).t()
        check.true(comm.allreduce(x, out=out) is out, "returns out")
        check.equal(out.numpy(), np.full((4, 6), TOTAL, "float32"), "result")
        check.equal(x.numpy(), np.full((4, 6), RANK + 1, "float32"), "x untouched")
        expanded = torch.ones(1).expand(12)
        check.equal(
            comm.allreduce(expanded, out=torch.zeros(12)).numpy(),
            np.full(12, SIZE, "float32"),
            "stride 0",
        )


def test_version_counter(comm: hr.Communicator) -> None:
    """In place is a write autograd must know of."""
    with Checks() as check:
        weight = torch.full((3,), 2.0, requires_grad=True)
        x = torch.ones(3)
        product = weight * x  # saves x
        before = x._version
        comm.allreduce(x)
        check.true(x._version > before, "the counter of x rises")
        check.raises(RuntimeError, lambda: product.sum().backward(), "backward of a changed input")
        y, out = torch.ones(3), torch.zeros(3)
        versions = y._version, out._version
        comm.allreduce(y, out=out)
        check.true(y._version == versions[0], "x is not written with out=")
        check.true(out._version > versions[1], "out is written")


def test_gradients(comm: hr.Communicator) -> None:
    """The common use: averaging .grad of parameters, and parameters under no_grad."""
    with Checks() as check:
        layer = torch.nn.Linear(3, 2)
        with torch.no_grad():
            layer.weight.fill_(RANK)
            comm.broadcast(layer.weight, root=SIZE - 1)
        check.equal(layer.weight.detach().numpy(), np.full((2, 3), SIZE - 1, "float32"), "weights")
        layer(torch.full((1, 3), float(RANK + 1))).sum().backward()
        comm.allreduce(layer.weight.grad, "avg")
        check.equal(
            layer.weight.grad.numpy(), np.full((2, 3), TOTAL / SIZE, "float32"), "gradients"
        )


def test_reduce_op_constants(comm: hr.Communicator) -> None:
    names = {"SUM": "sum", "AVG": "avg", "MIN": "min", "MAX": "max", "PRODUCT": "prod"}
    distributed = pytest.importorskip("torch.distributed")
    with Checks() as check:
        for constant, op in names.items():
            x = torch.from_numpy(exact_input("float32", op, RANK, SIZE, 9))
            comm.allreduce(x, getattr(distributed.ReduceOp, constant))
            check.equal(x.numpy(), expected("float32", op, SIZE, 9), constant)


def test_torch_and_numpy_meet(comm: hr.Communicator) -> None:
    """One rank's array and another's tensor of equal dtype and count are one operation."""
    with Checks() as check:
        data = exact_input("float32", "sum", RANK, SIZE, 50)
        x = torch.from_numpy(data) if RANK % 2 else data
        comm.allreduce(x)
        check.equal(data, expected("float32", "sum", SIZE, 50), "sum")


REFUSED: dict[str, Callable[[], Any]] = {
    "sparse": lambda: torch.eye(3).to_sparse(),
    "meta": lambda: torch.ones(3, device="meta"),
    "float8": lambda: torch.ones(3).to(torch.float8_e4m3fn),
    "conjugated": lambda: torch.ones(3, dtype=torch.complex64).conj(),
    "negated": lambda: torch.ones(3, dtype=torch.complex64).conj().imag,
    "expanded": lambda: torch.ones(1).expand(3),
    "requires grad": lambda: torch.ones(3, requires_grad=True),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_on_one_rank(comm: hr.Communicator, name: str) -> None:
    """The refusing rank raises its own error, the others one that quotes it; then all go on."""
    with Checks() as check:
        for refusing in {0, SIZE - 1}:
            x = REFUSED[name]() if refusing == RANK else torch.ones(3)
            kind = hr.UnsupportedTypeError if refusing == RANK else hr.CollectiveMismatchError
            error = check.raises(kind, lambda x=x: comm.allreduce(x), name)
            if refusing != RANK:
                check.true(f"rank {refusing}" in str(error), f"names rank {refusing}: {error}")
                check.true((x == 1).all(), "untouched")
            y = torch.ones(4)
            comm.allreduce(y)
            check.true((y == SIZE).all(), "the next call is right")
