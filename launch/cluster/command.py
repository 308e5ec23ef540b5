"""`hierring cluster run`: rehearse a job of several nodes on this machine."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeAlias

from hierring.config import parse_size
from hierring.launch.cluster.placement import PLACEMENTS, parse_ranks
from hierring.launch.cluster.spec import PRIVATE, current_directory
from hierring.launch.cluster.virtual import VirtualCluster
from hierring.launch.mpi import VENDORS, Launcher

if TYPE_CHECKING:
    # What argparse calls this has a leading underscore, but no other name.
    Subparsers: TypeAlias = argparse._SubParsersAction[argparse.ArgumentParser]

__all__ = ["add_parser"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# What a job gets to end by itself after a signal; a second signal ends it at once.
_GRACE_S = 10.0

_EXAMPLE = "hierring cluster run --nodes 2 --ranks-per-node 4 --rate 1gbit -- python train.py"


def add_parser(subparsers: Subparsers) -> None:
    """Add `cluster` with its one subcommand."""
    parser = subparsers.add_parser(
        "cluster",
        help="rehearse a job of several nodes on this machine",
        description="Virtual nodes on this machine, made of Linux namespaces: each has its own "
        "hostname, network address, processes, /dev/shm and /tmp. They share the cores, so times "
        "say little, except where the links are the slowest part (--rate).",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    run = commands.add_parser(
        "run",
        help="make nodes, run an MPI job on them, and remove them",
        description=f"Make nodes, run an MPI job on them, and remove them. Example: {_EXAMPLE}",
    )
    run.add_argument("--nodes", type=int, help="how many nodes (2, or as many as ranks are given)")
    run.add_argument(
        "--ranks-per-node", default="1", metavar="N", help="4 on every node, or 3,1 by node (1)"
    )
    run.add_argument("--placement", choices=PLACEMENTS, default="block", help="order of ranks")
    run.add_argument("--rate", help="of every link, each way: 100mbit, 1gbit (no limit)")
    run.add_argument(
        "--shm", metavar="SIZE", help="/dev/shm of each node: 64m, 1g (half of memory)"
    )
    run.add_argument(
        "--share",
        action="append",
        default=[],
        metavar="PATH",
        help="what all nodes shall see of /tmp or /dev/shm; the current directory and the paths in "
        "the command they see anyhow",
    )
    run.add_argument(
        "--mpi", choices=("auto", *VENDORS), default="auto", help="whose mpiexec it is"
    )
    run.add_argument("command", nargs="+", metavar="COMMAND", help="the program of every rank")
    run.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    with _signals_raise() as trap:
        try:
            return _rehearse(arguments, trap)
        except _Signalled as early:  # before the job was there
            return 128 + early.number


def _rehearse(arguments: argparse.Namespace, trap: _Trap) -> int:
    counts = parse_ranks(arguments.ranks_per_node, arguments.nodes)
    launcher = Launcher.beside(vendor="" if arguments.mpi == "auto" else arguments.mpi)
    command = _program(arguments.command)
    with VirtualCluster(
        len(counts),
        rate=arguments.rate,
        shm_nbytes=None if arguments.shm is None else parse_size(arguments.shm, "--shm"),
        share=[*arguments.share, *_paths_in(command)],
    ) as cluster:
        print(_made(cluster, counts, arguments.rate), file=sys.stderr, flush=True)
        line = cluster.mpiexec(launcher, counts, arguments.placement, command)
        return _attend(cluster, line, trap)


def _program(command: Sequence[str]) -> list[str]:
    """A Python file runs with this Python."""
    return [sys.executable, *command] if command[0].endswith(".py") else list(command)


def _paths_in(command: Sequence[str]) -> list[str]:
    """What the command names of directories that each node has to itself."""
    below = tuple(f"{directory}/" for directory in PRIVATE)
    here = current_directory()
    found = [os.path.normpath(os.path.join(here, word)) for word in command]
    return [path for path in found if path.startswith(below) and os.path.exists(path)]


def _made(cluster: VirtualCluster, counts: Sequence[int], rate: str | None) -> str:
    first, last = cluster.nodes[0], cluster.nodes[-1]
    names = first.name if first is last else f"{first.name} to {last.name}"
    addresses = first.address if first is last else f"{first.address} to {last.address}"
    ranks = ", ".join(map(str, counts)) if len(set(counts)) > 1 else f"{counts[0]} each"
    links = "links without a limit" if rate is None else f"links of {rate}"
    return (
        f"hierring: virtual nodes {names} ({addresses}), ranks {ranks}, {links}; "
        f"they share {len(os.sched_getaffinity(0))} cores"
    )


class _Signalled(Exception):
    """A signal has come in."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class _Trap:
    """Raises _Signalled at one signal, then at no other unless it is armed again.

    What follows a signal, or the job's end, is short, and must not be cut off half-way.
    """

    def __init__(self) -> None:
        self.armed = True

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.armed:
            self.armed = False
            raise _Signalled(number)


@contextlib.contextmanager
def _signals_raise() -> Iterator[_Trap]:
    trap = _Trap()
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # by nohup
    heard = [number for number in _SIGNALS if not (ignored and number == signal.SIGHUP)]
    before = {number: signal.signal(number, trap) for number in heard}
    try:
        yield trap
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _attend(cluster: VirtualCluster, command: Sequence[str], trap: _Trap) -> int:
    """Run the job in the head, hand signals on, and return its exit status.

    In a session of its own, because a terminal's Ctrl-C would reach the launcher a second time,
    and that means "at once" to some.
    """
    # A program that asks a terminal would be stopped for it: the job is not in its foreground.
    stdin = subprocess.DEVNULL if os.isatty(0) else None
    search = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    process = cluster.popen(
        command, stdin=stdin, start_new_session=True, env={**os.environ, "PATH": search}
    )
    try:
        code = process.wait()
        trap.armed = False
    except _Signalled as first:
        return _stop(cluster, process, first.number, trap)
    return code if code >= 0 else 128 - code


def _stop(cluster: VirtualCluster, process: subprocess.Popen[Any], number: int, trap: _Trap) -> int:
    """Hand a signal on and wait; a job that takes too long goes with the cluster.

    A job that saves its work and ends well has succeeded; what launchers make of other ends
    differs, so those count as the signal's.
    """
    cluster.send_signal(process, number)
    try:
        trap.armed = True
        code = process.wait(timeout=_GRACE_S)
        trap.armed = False
    except (_Signalled, subprocess.TimeoutExpired):
        trap.armed = False
        cluster.send_signal(process, signal.SIGKILL)
        code = process.wait()
    return 0 if code == 0 else 128 + number
