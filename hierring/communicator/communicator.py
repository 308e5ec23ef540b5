"""The public communicator: collectives as methods, and the life cycle."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from hierring.communicator import exit_hook, requests
from hierring.communicator.collectives import Collectives
from hierring.communicator.connect import (
    build_memory,
    discover,
    first_contact,
    sweep_leftovers,
)
from hierring.communicator.contact import Contact, Tags
from hierring.communicator.engine import Engine
from hierring.communicator.operating import Timeout
from hierring.communicator.rebuild import drain
from hierring.communicator.split import child_contact, exchange_colors
from hierring.communicator.statistics import Statistics, collect
from hierring.config import Config
from hierring.environment import check_launcher, check_running
from hierring.errors import (
    CollectiveTimeoutError,
    ConfigurationError,
    HierringError,
)
from hierring.topology import Topology

__all__ = ["Communicator"]


class Communicator(Collectives):
    """Collectives over the ranks of an MPI communicator, grouped by node.

    Making one is collective over all ranks of `mpi_comm`. It duplicates the communicator, so its
    messages never meet the application's. Threads may share it: one at a time is inside. The
    methods that communicate must be called by all its ranks, in the same order.

    Every collective can raise:
        UnsupportedTypeError, ConfigurationError: this rank's arguments can't be used. Clean.
        CollectiveMismatchError: the ranks' calls differ, or another rank refused its arguments.
            Clean: every rank raises for this call, no tensor was written, the next call works.
        CollectiveTimeoutError, RankFailedError: broken. Every later call raises the same, until all
            ranks call `rebuild()`. `out` (or `x`, in place) may hold anything where this was
            raised.

    Args:
        mpi_comm: an mpi4py intracommunicator; None is MPI.COMM_WORLD.
        config: settings; None takes them from the environment (HIERRING_*).
    """

    #: The MPI communicator it was made of: recognises an `init` with another one. Splits have none.
    made_from: Any = None

    def __init__(self, mpi_comm: Any = None, *, config: Config | None = None) -> None:
        from mpi4py import MPI

        exit_hook.install()
        check_running()
        if config is not None and not isinstance(config, Config):
            raise ConfigurationError(f"config is a hierring.Config, not {config!r}")
        super().__init__(Config.from_env() if config is None else config)
        if mpi_comm is None:
            mpi_comm = MPI.COMM_WORLD
        if not isinstance(mpi_comm, MPI.Comm) or mpi_comm == MPI.COMM_NULL:
            given = "MPI.COMM_NULL" if isinstance(mpi_comm, MPI.Comm) else repr(mpi_comm)
            raise ConfigurationError(f"give an mpi4py communicator, not {given}")
        if mpi_comm.Is_inter():
            raise ConfigurationError("an intercommunicator has no common ranks: give its merge")
        if mpi_comm == MPI.COMM_WORLD and self._config.check_launcher:
            check_launcher(mpi_comm.Get_size())
        sweep_leftovers()
        self._start(first_contact(mpi_comm, self._config))
        self.made_from = mpi_comm

    def _start(self, contact: Contact) -> None:
        """Connect the ranks of `contact`; collective over them."""
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
        self._connect_whole_calls()
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
        """What this rank has done so far: operations, bytes, time; local."""
        with self._lock:
            return collect(self._engine, self._completed_in_all())

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
        Collectives.__init__(child, self._config)
        child._start(contact)
        return child

    def rebuild(self, *, timeout: Timeout = None) -> list[int]:
        """Make a broken communicator usable again; collective over all its ranks, broken or not.

        Returns how many operations each rank has completed, in rank order: what the ranks need to
        decide where to go on. Raises CollectiveTimeoutError if not all ranks come in time (a rank
        that has died never will); the communicator stays broken and rebuild may be called again.
        """
        seconds = self._seconds(timeout, self._config.init_timeout_s)
        with self._turn():
            self._check_usable("rebuild")
            old = self._engine
            if self._next is None:
                tags = Tags(self._contact.tags.generation + 1)
                tags.check()
                self._next = Contact(
                    self._contact.comm, self._contact.members, self._contact.me,
                    self._contact.world, tags, self._contact.counters,
                )  # fmt: skip
            contact = self._next
            counts = contact.allgather((self._completed_in_all(), old.entered), seconds, "rebuild")
            # From here on all ranks are in this generation, whatever else goes wrong.
            self._contact, self._next = contact, None
            drain(old, contact)
            memory = build_memory(contact, self._topology, self._config, self._named)
            before = max(entered for _, entered in counts)
            engine = Engine(contact, self._topology, memory, self._config, before, old.tally)
            old.tally.end_generation(old)
            self._completed, self._engine = self._completed_in_all(), engine
            self._connect_whole_calls()
            return [completed for completed, _ in counts]

    def close(self, *, timeout: Timeout = None) -> None:
        """Give the communicator up; collective. On a broken one local, and MPI ends with the job.

        Closing twice is fine. The tensors, and MPI itself, stay as they are.
        """
        if self._closed or self._forked:
            return
        whole = self._engine.cause() is None
        if whole:
            self._operate("close", timeout, lambda engine: requests.plain("close"))
        with self._turn():
            if whole and not self._closed:
                # A slower rank, still in its close, must not take the freed lock for a death.
                self._engine.channel.leave()
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
                exit_hook.say_goodbye([self._engine])

    def __repr__(self) -> str:
        nodes = self._topology.num_nodes
        return f"<hierring.Communicator rank {self.rank()} of {self.size()} on {nodes} node(s)>"
