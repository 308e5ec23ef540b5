"""The public communicator: collectives as methods, and the life cycle."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from types import TracebackType
from typing import Any

from hierring.communicator import exit_hook, requests
from hierring.communicator.connect import (
    build_memory,
    discover,
    first_contact,
    sweep_leftovers,
)
from hierring.communicator.contact import Contact, Tags
from hierring.communicator.descriptor import Descriptor
from hierring.communicator.engine import Call, Engine
from hierring.communicator.rebuild import drain
from hierring.communicator.requests import Request
from hierring.communicator.split import child_contact, exchange_colors
from hierring.communicator.statistics import Statistics, collect
from hierring.config import Config, parse_seconds
from hierring.environment import check_launcher
from hierring.errors import (
    CollectiveMismatchError,
    CollectiveTimeoutError,
    ConfigurationError,
    HierringError,
)
from hierring.topology import Topology

__all__ = ["Communicator"]

Timeout = float | timedelta | None


class Communicator:
    """Collectives over the ranks of an MPI communicator, grouped by node.

    Making one is collective over all ranks of `mpi_comm`. It duplicates the communicator, so its
    messages never meet the application's. Threads may share it: one at a time is inside. The
    methods that communicate must be called by all its ranks, in the same order.

    Every collective can raise:
        UnsupportedTypeError, ConfigurationError: this rank's arguments can't be used. Clean.
        CollectiveMismatchError: the ranks' calls differ, or another rank refused its arguments.
            Clean:
            every rank raises for this call, no tensor was written, the next call works.
        CollectiveTimeoutError, RankFailedError: broken. Every later call raises the same, until all
            ranks call `rebuild()`. `out` (or `x`, in place) may hold anything where this was
            raised.

    Args:
        mpi_comm: an mpi4py intracommunicator; None is MPI.COMM_WORLD.
        config: settings; None takes them from the environment (HIERRING_*).
    """

    def __init__(self, mpi_comm: Any = None, *, config: Config | None = None) -> None:
        from mpi4py import MPI

        self._config = Config.from_env() if config is None else config
        if mpi_comm is None:
            mpi_comm = MPI.COMM_WORLD
        if mpi_comm == MPI.COMM_WORLD and self._config.check_launcher:
            check_launcher(mpi_comm.Get_size())
        if mpi_comm.Is_inter():
            raise ConfigurationError("an intercommunicator has no common ranks: give its merge")
        sweep_leftovers()
        self._start(first_contact(mpi_comm, self._config))

    def _start(self, contact: Contact) -> None:
        """Connect the ranks of `contact`; collective over them."""
        self._lock = threading.RLock()
        self._inside = False
        self._closed = False
        self._forked = False
        self._completed = 0
        #: The MPI communicator that `init` was given, to recognise a second call with another one.
        self.made_from: Any = None
        self._contact = contact
        self._next: Contact | None = None
        try:
            self._topology, self._named = discover(contact, self._config)
            memory = build_memory(contact, self._topology, self._config, self._named)
        except CollectiveTimeoutError:
            raise  # a rank is missing: freeing the duplicate would be collective
        except HierringError:
            contact.comm.Free()  # all ranks raise, and get here
            raise
        self._engine = Engine(contact, self._topology, memory, self._config)
        exit_hook.watch(self)

    # --- who and where -------------------------------------------------------------------------

    def rank(self) -> int:
        """This process's number among `size()`; never communicates, as all of these."""
        return self._contact.me

    def size(self) -> int:
        """Number of ranks."""
        return self._contact.size

    def local_rank(self) -> int:
        """This rank's index on its node."""
        return self._topology.local_rank

    def local_size(self) -> int:
        """Number of ranks on this node."""
        return self._topology.local_size

    def node_rank(self) -> int:
        """Index of this node."""
        return self._topology.node_rank

    def num_nodes(self) -> int:
        """Number of nodes."""
        return self._topology.num_nodes

    def get_topology(self) -> Topology:
        """Which ranks share a node, and what the nodes are made of."""
        return self._topology

    @property
    def config(self) -> Config:
        """The settings this communicator was made with."""
        return self._config

    @property
    def closed(self) -> bool:
        """Whether it has been given up."""
        return self._closed

    def statistics(self) -> Statistics:
        """Bytes and operations of this rank so far; local."""
        with self._lock:
            return collect(self._engine, self._completed)

    # --- collectives ---------------------------------------------------------------------------

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
            x: NumPy array, torch CPU tensor, DLPack or buffer object, or Python number. Same dtype
                and
                element count on all ranks; elements pair up in logical (C) order, shapes may
                differ.
            op: "sum", "avg", "min", "max", "prod", "band", "bor", "bxor", or torch's or mpi4py's
                constant. out: where the result goes; `x` is then only read. `out is x` is fine,
                partial overlap not. algorithm: "auto", "hierarchical", "ring", "tree", "naive", or
                ranges by size. wire_dtype: type that float data travels in between nodes. scale:
                factor of this rank's contribution (sum and avg); may differ between ranks. timeout:
                seconds or timedelta; default config.timeout_s.

        Returns `out` if given, else `x`; for a Python number the reduced number.
        """
        return self._operate(
            "allreduce",
            timeout,
            lambda engine: requests.allreduce(engine, x, op, out, algorithm, wire_dtype, scale),
        )

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
        of it is written.
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
        return self._operate(
            "reduce_scatter",
            timeout,
            lambda engine: requests.reduce_scatter(engine, x, op, out),
        )

    def allgather(self, x: Any, *, out: Any = None, timeout: Timeout = None) -> Any:
        """Concatenate all ranks' `x` along the first dimension, in rank order.

        Args:
            x: first dimensions may differ between ranks, the others and the dtype not; a 0-d tensor
                or
                a number counts as one row.
            out: a tensor for all rows; default a new one.
        """
        with self._entered("allgather", timeout) as (engine, call, check):
            request, source = self._prepared(
                engine, call, lambda: (check(), requests.allgather_counts(engine, x))[1]
            )
            engine.run(call, request.descriptor, request.transfer)
            rows = request.finish()
            call = engine.enter("allgather", call.deadline - call.started)
            request = self._prepared(
                engine, call, lambda: requests.allgather_data(engine, source, rows, out)
            )
            engine.run(call, request.descriptor, request.transfer)
            self._completed += 1
            return request.finish()

    def broadcast(self, x: Any, root: int = 0, *, out: Any = None, timeout: Timeout = None) -> Any:
        """Copy rank `root`'s `x` to all ranks, in place or into `out`.

        Args:
            x: same dtype and element count on all ranks.
            root: the same on all ranks.
        """
        return self._operate(
            "broadcast", timeout, lambda engine: requests.broadcast(engine, x, root, out)
        )

    def barrier(self, *, timeout: Timeout = None) -> None:
        """Return once all ranks have called it."""
        self._operate("barrier", timeout, lambda engine: requests.plain("barrier"))

    # --- life cycle ------------------------------------------------------------------------------

    def split(
        self, color: int | None, key: int = 0, *, timeout: Timeout = None
    ) -> Communicator | None:
        """A communicator of the ranks with the same `color`, ordered by (key, rank).

        Collective over all ranks, also those with color None, which get None.
        """
        seconds = self._seconds(timeout, self._config.init_timeout_s)
        pairs = self._operate("split", timeout, lambda engine: exchange_colors(engine, color, key))
        with self._lock:
            contact = child_contact(self._contact, pairs, seconds)
        if contact is None:
            return None
        child = Communicator.__new__(Communicator)
        child._config = self._config
        child._start(contact)
        return child

    def rebuild(self, *, timeout: Timeout = None) -> list[int]:
        """Make a broken communicator usable again; collective over all its ranks, broken or not.

        Returns how many operations each rank has completed, in rank order: what the ranks need to
        decide where to go on. Raises CollectiveTimeoutError if not all ranks come in time (a rank
        that has died never will); the communicator stays broken and rebuild may be called again.
        """
        seconds = self._seconds(timeout, self._config.init_timeout_s)
        with self._lock:
            self._check_usable()
            old = self._engine
            if self._next is None:
                tags = Tags(self._contact.tags.generation + 1)
                tags.check()
                self._next = Contact(
                    self._contact.comm, self._contact.members, self._contact.me,
                    self._contact.world, tags, self._contact.counters,
                )  # fmt: skip
            contact = self._next
            counts = contact.allgather((self._completed, old.entered), seconds, "rebuild")
            # From here on all ranks are in this generation, whatever else goes wrong.
            self._contact, self._next = contact, None
            drain(old, contact)
            memory = build_memory(contact, self._topology, self._config, self._named)
            before = max(entered for _, entered in counts)
            self._engine = Engine(contact, self._topology, memory, self._config, before)
            return [completed for completed, _ in counts]

    def close(self, *, timeout: Timeout = None) -> None:
        """Give the communicator up; collective. On a broken one local, and MPI ends with the job.

        Closing twice is fine. The tensors, and MPI itself, stay as they are.
        """
        with self._lock:
            if self._closed or self._forked:
                return
            if self._engine.cause() is None:
                self._operate("close", timeout, lambda engine: requests.plain("close"))
                self._closed = True
                self._engine.memory.close()
                self._contact.comm.Free()
            self._closed = True

    def finalize(self) -> None:
        """The same as `close`, under the name of the module's function."""
        self.close()

    def __enter__(self) -> Communicator:  # noqa: PYI034 - Self is of Python 3.11
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # After an exception the other ranks may be anywhere: a collective close would wait for
        # them.
        if kind is None:
            self.close()
        else:
            self._leave()

    def _leave(self) -> None:
        """Tell the others that this rank takes no part any more; local, never waits long."""
        with self._lock:
            if not self._closed and not self._forked:
                self._closed = True
                exit_hook.say_goodbye(self._engine)

    # --- helpers ---------------------------------------------------------------------------------

    def _operate(self, name: str, timeout: Timeout, prepare: Callable[[Engine], Request]) -> Any:
        """One operation from arguments to result."""
        with self._entered(name, timeout) as (engine, call, check):
            request = self._prepared(engine, call, lambda: (check(), prepare(engine))[1])
            engine.run(call, request.descriptor, request.transfer)
            self._completed += 1
            return request.finish()

    @contextmanager
    def _entered(
        self, name: str, timeout: Timeout
    ) -> Iterator[tuple[Engine, Call, Callable[[], Any]]]:
        """Take the lock and the next sequence number.

        Yields a check of the timeout too: a bad one must be refused like any other argument, after
        entering, so that the other ranks don't wait.
        """
        with self._lock:
            self._check_usable()
            if self._inside:
                raise HierringError(
                    f"{name} was called from inside another collective of the same communicator (a "
                    "signal handler?): set a flag there and call it afterwards"
                )
            self._inside = True
            try:
                seconds, check = self._config.timeout_s, lambda: None
                try:
                    seconds = self._seconds(timeout, seconds)
                except HierringError as error:
                    check = _raiser(error)
                yield self._engine, self._engine.enter(name, seconds), check
            finally:
                self._inside = False

    def _prepared(self, engine: Engine, call: Call, prepare: Callable[[], Any]) -> Any:
        """What `prepare` returns; if it raises, the other ranks are told before this one raises."""
        try:
            return prepare()
        except BaseException as error:
            try:
                engine.run(call, Descriptor.refused(error), None)
            except CollectiveMismatchError:
                raise error from None
            raise AssertionError("a refused operation can't succeed") from error

    def _seconds(self, timeout: Timeout, default: float) -> float:
        if timeout is None:
            return default
        if isinstance(timeout, timedelta):
            timeout = timeout.total_seconds()
        return parse_seconds(timeout, "timeout")

    def _check_usable(self) -> None:
        if self._forked:
            raise HierringError(
                "this communicator belongs to the parent process: a forked child can't use it"
            )
        if self._closed:
            raise HierringError("this communicator is closed: make a new one")

    def __repr__(self) -> str:
        nodes = self._topology.num_nodes
        return f"<hierring.Communicator rank {self.rank()} of {self.size()} on {nodes} node(s)>"


def _raiser(error: Exception) -> Callable[[], Any]:
    def check() -> Any:
        raise error

    return check
