"""One rank of the examination: it starts MPI, meets the others, and judges with them.

Its parent, the process that the launcher knows, is told of each stage through a pipe and prints
what comes out. So whatever MPI does to this process, somebody is left to say so. All waits for
other ranks end by themselves; MPI's own start and end, which no deadline reaches, the parent ends.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from hierring._version import __version__
from hierring.communicator import Communicator
from hierring.communicator.connect import discover, first_contact
from hierring.communicator.contact import Contact
from hierring.config import Config
from hierring.errors import ConfigurationError, HierringError
from hierring.intranode import NodeMemory, plan_layout
from hierring.launch.doctor.examine import report
from hierring.launch.doctor.findings import Finding
from hierring.launch.doctor.look import look, running_mpi, within
from hierring.launch.doctor.processes import can_read_memory
from hierring.launch.doctor.view import Job, Mpi
from hierring.topology import Topology

__all__ = ["main"]

WHAT = "hierring doctor"
_PR_SET_PDEATHSIG = 1
SMALLEST_CELL_BYTES = 4096
TRIAL_NBYTES = 1 << 20
HOLD_S = 3.0


class Meeting:
    """The ranks' common part, step by step; what is learnt stays, should a later step fail."""

    def __init__(self, mpi: Mpi, seconds: float, stage: Callable[[str], object]) -> None:
        self.mpi = mpi
        self.seconds = seconds
        self.stage = stage
        self.troubles: list[Finding] = []
        self.job = Job((look(mpi.rank, mpi, thorough=mpi.rank == 0),))

    def run(self) -> None:
        """Do all steps; collective over the ranks of COMM_WORLD, and always ends.

        Raises:
            HierringError: ranks did not answer in time, or can't work together.
        """
        from mpi4py import MPI

        own = self.job.views[0]
        limits = {"init_timeout_s": self.seconds, "timeout_s": self.seconds}
        quiet: dict[str, Any] = {**limits, "check_launcher": False, "on_failure": "raise"}
        config = Config(**quiet) if own.settings_error else Config.from_env(**quiet)
        self.stage("meeting the other ranks")
        contact = first_contact(MPI.COMM_WORLD, config)
        versions = contact.allgather(__version__, self.seconds, WHAT)
        if len(set(versions)) > 1:
            listed = ", ".join(sorted(set(versions)))
            raise HierringError(f"the ranks run different versions of hierring: {listed}")
        self.job = Job(tuple(contact.allgather(own, self.seconds, WHAT)))
        if any(view.settings_error for view in self.job.views):
            return  # on all ranks: nothing further can be tried with such settings
        self._group(contact, config)
        self._try(contact, config)

    def _group(self, contact: Contact, config: Config) -> None:
        """Find the nodes, once as MPI has them and once by trying."""
        self.stage("finding out which ranks share a node")
        mpi_node = self._ask_mpi()
        mpi_nodes = contact.allgather(mpi_node, self.seconds, WHAT)
        topology, _ = discover(contact, config, mpi_node)
        readable = contact.allgather(_reads_peer(topology), self.seconds, WHAT)
        needed, least = _segment_nbytes(topology, config)
        able = self.mpi.thread_level in ("serialized", "multiple")
        self.job = Job(
            self.job.views,
            topology,
            tuple(readable),
            needed,
            least,
            tuple(rank for rank, node in enumerate(mpi_nodes) if able and node is None),
        )

    def _ask_mpi(self) -> int | None:
        """The lowest rank on this node by MPI's own split, which blocks: so on a thread of its own.

        None where it did not return, or may not be called from there.
        """
        from mpi4py import MPI

        def split() -> int:
            part = MPI.COMM_WORLD.Split_type(MPI.COMM_TYPE_SHARED)
            world = MPI.COMM_WORLD.Get_group()
            return int(MPI.Group.Translate_ranks(part.Get_group(), [0], world)[0])

        if self.mpi.thread_level not in ("serialized", "multiple"):
            return None
        return within(self.seconds, split)

    def _try(self, contact: Contact, config: Config) -> None:
        """Do what a job does: make a communicator, and all-reduce twice."""
        self.stage("trying an all-reduce")
        took, trouble = 0.0, ""
        try:
            took = _allreduce(config)
        except HierringError as error:
            trouble = f"{type(error).__name__}: {error}"
        results = contact.allgather((took, trouble), self.seconds, WHAT)
        slowest = max(seconds for seconds, _ in results)
        for rank, (_, text) in enumerate(results):
            if text:
                what = f"an all-reduce over all ranks failed: {text}"
                self.troubles.append(Finding("error", "all-reduce", what, ranks=(rank,)))
        if not self.troubles:
            over = "over all ranks" if len(results) > 1 else "in this process alone"
            what = f"an all-reduce of {TRIAL_NBYTES >> 20} MiB {over} gives the right sums"
            self.troubles.append(
                Finding("ok", "all-reduce", f"{what}, in {slowest * 1e3:.1f} ms the second time")
            )


def _reads_peer(topology: Topology) -> bool | None:
    """Whether this rank may read the next local rank's memory, or, alone, its parent's."""
    node = topology.node
    peer = node.facts[(topology.local_rank + 1) % node.local_size]
    return can_read_memory(peer.pid if node.local_size > 1 else os.getppid())


def _segment_nbytes(topology: Topology, config: Config) -> tuple[int, int]:
    """Bytes in /dev/shm of the largest node: as set, and with the smallest cells; 0 if it has one.

    A rank alone on its node takes none.
    """
    sizes = [node.local_size for node in topology.nodes]
    largest, ring_schedule = max(sizes), config.intra_schedule == "ring"

    def nbytes(cell_bytes: int) -> int:
        layout = plan_layout(
            min(sizes), len(sizes), cell_bytes, config.slice_bytes, config.small_bytes
        )
        return NodeMemory(layout, 0, largest, ring_schedule).nbytes

    if largest == 1:
        return 0, 0
    return nbytes(config.cell_bytes), nbytes(min(config.cell_bytes, SMALLEST_CELL_BYTES))


def _allreduce(config: Config) -> float:
    """Seconds that the second of two all-reduces took; collective.

    Raises:
        HierringError: it failed, or the sum was wrong.
    """
    import numpy as np

    communicator = Communicator(config=config)
    size, count = communicator.size(), TRIAL_NBYTES // 4
    started = 0.0
    for _ in range(2):
        x = np.arange(count, dtype=np.float32) % 64 + communicator.rank()
        started = time.monotonic()
        communicator.allreduce(x)
    took = time.monotonic() - started
    right = np.arange(count, dtype=np.float32) % 64 * size + size * (size - 1) / 2
    if not np.array_equal(x, right):
        wrong = int(np.flatnonzero(x != right)[0])
        raise HierringError(f"element {wrong} is {x[wrong]}, and {right[wrong]} would be right")
    communicator.close()
    return took


def main(argv: Sequence[str]) -> int:
    """The process's main function: argv from `supervise`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tell", type=int, required=True, help="descriptor of the pipe")
    parser.add_argument("--parent", type=int, required=True, help="whose end is this one's, too")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only-start", action="store_true", help="see whether MPI starts, no more")
    options = parser.parse_args(argv)
    _die_with(options.parent)
    os.set_inheritable(options.tell, False)

    def tell(**values: object) -> None:
        os.write(options.tell, (json.dumps(values) + "\n").encode())

    tell(stage="starting MPI")
    # mpi4py's own suspicion, which `check_mpi.launch` goes into.
    warnings.filterwarnings("ignore", "suspicious MPI execution environment", RuntimeWarning)
    try:
        mpi = running_mpi()
    except (ImportError, RuntimeError) as error:  # RuntimeError: mpi4py finds no MPI library
        tell(failed=" ".join(f"{type(error).__name__}: {error}".split()))
        return 1
    if options.only_start:
        tell(stage="ending MPI", started=True)
        return 0
    tell(stage="looking around", rank=mpi.rank, size=mpi.size)
    return _examine(mpi, options, tell)


def _examine(mpi: Mpi, options: argparse.Namespace, tell: Callable[..., None]) -> int:
    """Meet, judge and tell the parent; the exit status."""
    from mpi4py import MPI

    meeting = Meeting(mpi, options.seconds, lambda text: tell(stage=text))
    lost = ""
    try:
        meeting.run()
    except (HierringError, MPI.Exception) as error:
        lost = str(error).replace("hierring.init", WHAT)
        lost = lost.replace("HIERRING_INIT_TIMEOUT_S sets", "--timeout sets")
        refused = isinstance(error, ConfigurationError)
        meeting.troubles.append(_unreachable(meeting.job, lost, refused))
    found = report(meeting.job, meeting.troubles)
    text = json.dumps(found.to_dict(), indent=2) if options.json else found.describe()
    tell(
        stage="ending MPI",
        text=text if mpi.rank == 0 or lost else "",
        lost=lost,
        errors=found.errors,
        exit_code=found.exit_code,
    )
    if lost:
        # MPI_Finalize would wait for those that did not come; and when a process goes without it,
        # some launchers end the job, of which a rank that is a little behind has yet to print.
        time.sleep(HOLD_S)
        os._exit(1)
    return found.exit_code


def _unreachable(job: Job, lost: str, refused: bool) -> Finding:
    """The finding that explains why there are no further ones."""
    who = f"rank {job.views[0].facts.rank}" if len(job.views) == 1 else "they"
    remedy = (
        "Correct that on all ranks; docs/settings.md lists the settings."
        if refused
        else "Look at the output of the ranks that are missing; at the network between the nodes, "
        "its firewalls, and interfaces that MPI can't use; and at hostnames that are equal up to "
        "the first dot, since some MPI libraries take such nodes for one."
    )
    what = f"the ranks could not work together: {lost}"
    return Finding("error", "ranks", what, f"What follows is what {who} saw.", remedy)


def _die_with(parent: int) -> None:
    """Let the kernel end this process with its parent, whose end nobody else would tell it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
