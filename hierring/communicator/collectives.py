"""The collectives as methods; what they share in docs and behaviour is in `Communicator`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hierring.communicator import block_requests, requests
from hierring.communicator.operating import Operating, Timeout
from hierring.communicator.whole import DONE, ENTERED, LARGE, UNFIT

__all__ = ["Collectives"]


class Collectives(Operating):
    """All ranks call the same ones in the same order. Errors: see `Communicator`."""

    def allreduce(
        self,
        x: Any,
        op: object = "sum",
        *,
        out: Any = None,
        algorithm: str | None = None,
        wire_dtype: str | None = None,
        scale: float | None = None,
        timeout: Timeout = None,
    ) -> Any:
        """Reduce `x` over all ranks, in place or into `out`; every rank gets the same bits.

        Args:
            x: NumPy array, torch CPU tensor, DLPack or buffer object, Python number or NumPy
                scalar. Same dtype and element count on all ranks; elements pair up in logical (C)
                order, shapes may differ.
            op: "sum", "avg", "min", "max", "prod", "band", "bor", "bxor", or torch's or mpi4py's
                constant.
            out: where the result goes; `x` is then only read. `out is x` is fine, partial overlap
                not.
            algorithm: "auto", "hierarchical", "ring", "tree", "naive", or ranges by size, as in
                "tree:0-4K;hierarchical:4K-max"; default config.algorithm.
            wire_dtype: type that float data travels in between nodes: "float32", "bfloat16" or
                "float16"; default config.wire_dtype.
            scale: factor of this rank's contribution (sum and avg); may differ between ranks.
            timeout: seconds or timedelta; default config.timeout_s.

        Returns `out` if given, else `x`; for a Python number the reduced number.
        """
        return self._allreduce(x, op, out, algorithm, wire_dtype, scale, timeout)

    def _allreduce(
        self,
        x: Any,
        op: object,
        out: Any,
        algorithm: str | None,
        wire_dtype: str | None,
        scale: float | None,
        timeout: Timeout,
    ) -> Any:
        """`allreduce` without keywords, without closures, and without a call that can be spared.

        A small tensor takes less than a microsecond, so these would be most of its time.
        """
        run_whole = self._run_whole
        if (
            run_whole is not None
            and algorithm is None
            and wire_dtype is None
            and scale is None
            and timeout is None
        ):
            try:
                answer = run_whole(x, op, out)
                if answer == DONE:
                    return x if out is None else out
                if answer != UNFIT:
                    return self._under_lock(answer, x, op, out)
            except BaseException as error:
                self._abandon_claimed("allreduce", error)
                raise
        arguments = (x, op, out, algorithm, wire_dtype, scale)
        return self._operate("allreduce", timeout, requests.allreduce, *arguments)

    def _under_lock(self, answer: int, x: Any, op: object, out: Any) -> Any:
        """Do what a whole call has left undone: all of a large one, the rest of a small one."""
        with self._lock:
            if answer == LARGE and self._run_whole is not None:
                answer = self._engine.whole.run_large(x, op, out)
            if answer == DONE:
                return x if out is None else out
            if answer == ENTERED:
                return self._take_over("allreduce", requests.allreduce, x, op, out)
        return self._operate("allreduce", None, requests.allreduce, x, op, out)

    def allreduce_coalesced(
        self,
        tensors: Sequence[Any],
        op: object = "sum",
        *,
        algorithm: str | None = None,
        wire_dtype: str | None = None,
        scale: float | None = None,
        timeout: Timeout = None,
    ) -> list[Any]:
        """Reduce many tensors as one operation per dtype, in place; returns them in a list.

        The list must have the same dtypes and element counts on all ranks. If it has not, no tensor
        of it is written. The other arguments are those of `allreduce`.
        """
        with self._entered("allreduce_coalesced", timeout) as (engine, call, check):
            prepared = self._prepared(
                engine,
                call,
                lambda: (
                    check(),
                    requests.allreduce_coalesced(engine, tensors, op, algorithm, wire_dtype, scale),
                )[1],
            )
            for index, request in enumerate(prepared):
                if index:
                    call = engine.enter(call.name, call.deadline - call.started)
                engine.run(call, request.descriptor, request.transfer)
                result: list[Any] = request.finish()
            self._completed += 1
            return result

    def reduce_scatter(
        self, x: Any, op: object = "sum", *, out: Any = None, timeout: Timeout = None
    ) -> Any:
        """Reduce `x` over all ranks and return this rank's block of it.

        Args:
            x: first dimension divisible by `size`; block r of it is rank r's result.
            out: a tensor for the block (x.shape[0] // size rows); default a new one.
        """
        return self._operate("reduce_scatter", timeout, block_requests.reduce_scatter, x, op, out)

    def allgather(self, x: Any, *, out: Any = None, timeout: Timeout = None) -> Any:
        """Concatenate all ranks' `x` along the first dimension, in rank order.

        Args:
            x: first dimensions may differ between ranks, the others and the dtype not; a 0-d tensor
                or a number counts as one row.
            out: a tensor for all rows; default a new one.
        """
        with self._entered("allgather", timeout) as (engine, call, check):
            request, source = self._prepared(
                engine, call, lambda: (check(), block_requests.allgather_counts(engine, x))[1]
            )
            engine.run(call, request.descriptor, request.transfer)
            rows = request.finish()
            call = engine.enter("allgather", call.deadline - call.started)
            request = self._prepared(
                engine, call, lambda: block_requests.allgather_data(engine, source, rows, out)
            )
            engine.run(call, request.descriptor, request.transfer)
            gathered = request.finish()
            self._completed += 1
            return gathered

    def broadcast(self, x: Any, root: int = 0, *, out: Any = None, timeout: Timeout = None) -> Any:
        """Copy rank `root`'s `x` to all ranks, in place or into `out`.

        Args:
            x: same dtype and element count on all ranks.
            root: the same on all ranks.
        """
        return self._operate("broadcast", timeout, block_requests.broadcast, x, root, out)

    def barrier(self, *, timeout: Timeout = None) -> None:
        """Return once all ranks have called it."""
        self._operate("barrier", timeout, lambda engine: requests.plain("barrier"))
