"""Random calls against the reference: dtype, operation, shape, strides, algorithm and cell sizes.

All ranks draw the same calls from the seed of the test (`--seed` gives other ones), which stands in
the text of every failure.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from mpi4py import MPI

import hierring as hr
from hierring._testing import ALGORITHMS, DTYPES, Checks, exact_input, expected, ops_for
from hierring.config import Config

RANK, SIZE = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
SETTINGS: list[dict[str, object]] = [
    {},
    {"cell_bytes": 128, "small_bytes": 64, "max_message_bytes": 64},
    {"cell_bytes": 4096, "small_bytes": 1024, "slice_bytes": 1024, "leaders": 2},
    {"cell_bytes": 2048, "small_bytes": 64, "intra_schedule": "ring", "leaders": 1},
]


@pytest.fixture(scope="module", params=range(len(SETTINGS)))
def comm(request: pytest.FixtureRequest) -> Iterator[hr.Communicator]:
    config = Config.from_env(timeout_s=60, **SETTINGS[request.param])
    with hr.Communicator(MPI.COMM_WORLD, config=config) as handle:
        yield handle


class Draw:
    """One random array description; the same on every rank."""

    def __init__(self, rng: np.random.Generator, max_count: int) -> None:
        ndim = int(rng.integers(0, 4))
        room = int(rng.integers(1, max_count)) if ndim else 1
        shape = []
        for _ in range(ndim):
            extent = int(rng.integers(0 if rng.random() < 0.1 else 1, max(2, room + 1)))
            shape.append(extent)
            room = max(1, room // max(extent, 1))
        rng.shuffle(shape)
        self.shape = tuple(shape)
        self.order = rng.permutation(ndim)
        self.steps = [int(rng.choice([1, 1, 2, 3, -1, -2])) for _ in range(ndim)]
        self.margin = int(rng.integers(0, 3))

    def array(self, dtype: str) -> np.ndarray:
        """A view of this shape with permuted axes, gaps and negative strides."""
        extents = [self.shape[axis] for axis in self.order]
        base = np.zeros(
            [n * abs(step) + self.margin for n, step in zip(extents, self.steps, strict=True)],
            dtype,
        )
        # The ellipsis keeps a 0-d view an array.
        window = base[(*(slice(self.margin, None) for _ in extents), ...)]
        view = window[(*(slice(None, None, step) for step in self.steps), ...)]
        view = view[(*(slice(0, n) for n in extents), ...)]
        return view.transpose(np.argsort(self.order))

    def __repr__(self) -> str:
        return f"shape {self.shape} axes {self.order.tolist()} steps {self.steps}"


def test_random_all_reduces(comm: hr.Communicator, seed: int) -> None:
    rng = np.random.default_rng(seed)
    with Checks() as check:
        for call in range(16):
            dtype = str(rng.choice(DTYPES))
            op = str(rng.choice(ops_for(dtype)))
            algorithm = str(rng.choice(ALGORITHMS))
            source, target = Draw(rng, 3000), Draw(rng, 3000)
            target.shape = source.shape
            target.order, target.steps = source.order[::-1].copy(), source.steps[::-1]
            style = int(rng.integers(3))

            x = source.array(dtype)
            x[...] = exact_input(dtype, op, RANK, SIZE, x.size, salt=call).reshape(x.shape)
            before = x.copy()
            out = None if style == 0 else x if style == 1 else target.array(dtype)
            result = comm.allreduce(x, op, out=out, algorithm=algorithm)

            label = f"seed {seed} call {call}: {dtype} {op} {algorithm} {source!r} style {style}"
            wanted = expected(dtype, op, SIZE, x.size, salt=call).reshape(x.shape)
            check.true(result is (x if out is None else out), f"{label}: what is returned")
            check.equal(result, wanted, label)
            if style == 2:
                check.equal(x, before, f"{label}: x untouched")


def test_random_other_collectives(comm: hr.Communicator, seed: int) -> None:
    rng = np.random.default_rng(seed)
    with Checks() as check:
        for call in range(12):
            dtype = str(rng.choice(DTYPES))
            kind = str(rng.choice(["broadcast", "allgather", "reduce_scatter", "coalesced"]))
            label = f"seed {seed} call {call}: {kind} {dtype}"
            if kind == "broadcast":
                root, draw = int(rng.integers(SIZE)), Draw(rng, 2000)
                x = draw.array(dtype)
                wanted = exact_input(dtype, "max", root, SIZE, x.size, salt=call).reshape(x.shape)
                x[...] = wanted if root == RANK else np.zeros_like(wanted)
                comm.broadcast(x, root=root)
                check.equal(x, wanted, f"{label} root {root} {draw!r}")
            elif kind == "allgather":
                rows, columns = rng.integers(0, 40, SIZE).tolist(), int(rng.integers(1, 30))
                blocks = [
                    exact_input(dtype, "max", rank, SIZE, n * columns, salt=call).reshape(
                        n, columns
                    )
                    for rank, n in enumerate(rows)
                ]
                check.equal(comm.allgather(blocks[RANK]), np.concatenate(blocks), f"{label} {rows}")
            elif kind == "reduce_scatter":
                rows, columns = int(rng.integers(0, 20)), int(rng.integers(1, 30))
                count = SIZE * rows * columns
                op = str(rng.choice(ops_for(dtype)))
                x = exact_input(dtype, op, RANK, SIZE, count, salt=call).reshape(-1, columns)
                wanted = expected(dtype, op, SIZE, count, salt=call).reshape(-1, columns)
                block = wanted[RANK * rows : (RANK + 1) * rows]
                check.equal(comm.reduce_scatter(x, op), block, f"{label} {op} rows {rows}")
            else:
                counts = rng.integers(0, 500, int(rng.integers(1, 12))).tolist()
                tensors = [
                    exact_input(dtype, "sum", RANK, SIZE, n, salt=i) for i, n in enumerate(counts)
                ]
                comm.allreduce_coalesced(tensors)
                for i, tensor in enumerate(tensors):
                    wanted = expected(dtype, "sum", SIZE, counts[i], salt=i)
                    check.equal(tensor, wanted, f"{label} {counts} tensor {i}")
