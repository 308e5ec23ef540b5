"""Checks of tests that run on many ranks, and array layouts with canaries around them."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from hierring._testing.data import Array

if TYPE_CHECKING:
    from typing_extensions import Self


def digest(*arrays: Array) -> str:
    """Return a digest of the elements' bytes, in logical order."""
    state = hashlib.sha256()
    for array in arrays:
        state.update(np.ascontiguousarray(array).tobytes())
    return state.hexdigest()


class Checks:
    """Collects failed checks and raises them together at the end of a `with` block.

    A rank that stopped at its first failed check would leave its peers waiting in the next call.
    """

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        shown = "\n".join(self.problems[:8])
        assert not self.problems, f"{len(self.problems)} of {self.count} checks failed\n{shown}"
        assert self.count or error, "nothing was checked"

    def true(self, condition: object, label: str) -> None:
        """Check that a condition holds."""
        self.count += 1
        if not condition:
            self.problems.append(label)

    def equal(self, actual: Any, wanted: Any, label: str) -> None:
        """Check that two arrays agree in dtype, shape and every bit pattern (NaN equals NaN)."""
        self.count += 1
        a, b = np.asarray(actual), np.asarray(wanted)
        if a.dtype != b.dtype or a.shape != b.shape:
            self.problems.append(f"{label}: {a.dtype}{a.shape}, expected {b.dtype}{b.shape}")
        elif not np.array_equal(a, b, equal_nan=a.dtype.kind in "fc"):
            at = np.argwhere(~((a == b) | ((a != a) & (b != b))))
            first = tuple(at[0].tolist())
            self.problems.append(
                f"{label}: {len(at)} of {a.size} wrong, first at {first}:"
                f" {a[first]!r}, expected {b[first]!r}"
            )

    def within(self, actual: Any, wanted: Array, bound: Array, label: str) -> None:
        """Check |actual - wanted| <= bound, element by element; a NaN fails."""
        self.count += 1
        error = np.abs(np.asarray(actual, dtype=np.float64).reshape(-1) - wanted)
        bad = np.flatnonzero(~(error <= bound))
        if bad.size:
            i = int(bad[0])
            self.problems.append(
                f"{label}: {bad.size} of {error.size} beyond the bound, first at {i}:"
                f" error {error[i]:.3e}, bound {bound[i]:.3e}"
            )

    def raises(
        self,
        kinds: type[BaseException] | tuple[type[BaseException], ...],
        call: Callable[[], object],
        label: str,
    ) -> BaseException | None:
        """Check that a call raises one of the given errors, and return the error."""
        self.count += 1
        try:
            result = call()
        except kinds as error:
            return error
        except Exception as error:  # any other error is the failed check itself
            self.problems.append(f"{label}: raised {type(error).__name__}: {error}")
            return error
        self.problems.append(f"{label}: returned {type(result).__name__} instead of raising")
        return None

    def same_on_all_ranks(self, control: Any, label: str, *arrays: Array) -> None:
        """Check that all ranks of an mpi4py communicator hold the same bits."""
        self.count += 1
        digests = control.allgather(digest(*arrays))
        if len(set(digests)) != 1:
            self.problems.append(f"{label}: bits differ between ranks: {[d[:8] for d in digests]}")


#: For each name: a base shape for about `count` elements, and what takes the view of such a base.
_LAYOUTS: dict[str, tuple[Callable[[int], tuple[int, ...]], Callable[[Array], Array]]] = {
    "contiguous": (lambda n: (n,), lambda b: b),
    "offset": (lambda n: (n + 5,), lambda b: b[3:-2]),
    "strided": (lambda n: (3 * n + 1,), lambda b: b[1::3]),
    "reversed": (lambda n: (n + 2,), lambda b: b[-2:0:-1]),
    "reversed-strided": (lambda n: (2 * n,), lambda b: b[::-2]),
    "columns": (lambda n: (n // 7 + 1, 17), lambda b: b[:, 2:15:2]),
    "transposed": (lambda n: (n // 5 + 1, 5), lambda b: b.T),
    "permuted": (lambda n: (3, n // 12 + 1, 4), lambda b: b.transpose(2, 0, 1)),
    "flipped-plane": (lambda n: (n // 6 + 1, 9), lambda b: b[::-1, 1:7]),
    "zero-size": (lambda _: (4, 0, 3), lambda b: b),
    "zero-d": (lambda _: (3,), lambda b: b[1:2].reshape(())),
}


def layouts() -> Iterator[tuple[str, Callable[[str, int], tuple[Array, Array]]]]:
    """Yield (name, make); make(dtype, count) gives a base full of canaries and a zeroed view."""

    def make(name: str, dtype: str, count: int) -> tuple[Array, Array]:
        shape, take = _LAYOUTS[name]
        base = np.full(shape(count), 77, dtype=dtype)
        view = take(base)
        view[...] = 0
        return base, view

    for name in _LAYOUTS:
        yield name, functools.partial(make, name)


def canaries_intact(base: Array, name: str) -> bool:
    """Tell whether every element of the base outside the named view still holds its canary."""
    outside = np.ones(base.shape, dtype=bool)
    _LAYOUTS[name][1](outside)[...] = False
    return bool(np.all(base[outside] == np.asarray(77, dtype=base.dtype)))
