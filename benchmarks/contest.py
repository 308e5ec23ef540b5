"""Runs the same benchmark beside every MPI library in turn: what `peers` and `wire` share.

Two MPI libraries can't be in one process, so each has jobs of its own. Inside a job hierring and
the peers take turns, call by call; the jobs take turns in rounds. So what a machine does meanwhile
hits all alike, and only ratios inside a job are ever compared.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hierring.benchmarks.environments import (
    TORCH,
    MpiEnvironment,
    available,
    build,
    default_folder,
)
from hierring.benchmarks.figures import Case
from hierring.benchmarks.jobs import Layout, bench_on_nodes
from hierring.benchmarks.options import PEERS
from hierring.benchmarks.result import Result, save
from hierring.environment import usable_cpus
from hierring.errors import ConfigurationError, HierringError

__all__ = ["Job", "Outcome", "Task", "add_arguments", "compete", "environments_of", "peer_settings"]

Say = Callable[[str], None]
#: Nodes' interface in a virtual cluster.
_NIC = "eth0"


@dataclass(frozen=True)
class Job:
    """One finished job.

    Attributes:
        turn: in which round, from 0. settings: environment variables it was given.
    """

    environment: MpiEnvironment
    layout: Layout
    turn: int
    settings: Mapping[str, str]
    result: Result

    def who(self, case: Case) -> str:
        """A contender's name beside those of other jobs: MPI's is the library's."""
        return self.environment.title if case.library == "mpi" else case.name


@dataclass(frozen=True)
class Outcome:
    """All jobs that came to a good end, and what the others said."""

    jobs: tuple[Job, ...]
    failures: tuple[str, ...]


@dataclass(frozen=True)
class Task:
    """What to measure in each environment.

    Attributes:
        options: of `hierring bench`, but for peers.
        peers: of "mpi" and "gloo".
        rate: of links between virtual nodes; None for no limit.
        rounds: how often all jobs run. pause_s: between two rounds.
        keep: directory for the JSON of each job; None for nowhere.
    """

    layouts: tuple[Layout, ...]
    options: tuple[str, ...]
    peers: tuple[str, ...]
    rate: str | None = None
    rounds: int = 1
    pause_s: float = 0.0
    keep: str | None = None


def add_arguments(
    parser: argparse.ArgumentParser, *, sizes: str, factor: int, calls: int, rounds: int
) -> None:
    """Add what both commands take."""
    add = parser.add_argument
    add(
        "--python",
        action="append",
        metavar="FILE",
        help="of an environment that has hierring and an MPI library, may be repeated; without it "
        "environments are made of wheels from PyPI",
    )
    add(
        "--environments",
        metavar="DIR",
        help=f"where those are kept for the next time ({default_folder()})",
    )
    add(
        "--mpi",
        default=",".join(available()),
        metavar="NAMES",
        help="which of them to make (%(default)s)",
    )
    add(
        "--torch",
        default=TORCH,
        metavar="WHAT",
        help="what pip is to install first, in the first of them, for gloo: a version, a file, or "
        "empty for none (%(default)s)",
    )
    add("--peers", default=",".join(PEERS), help="of mpi,gloo (%(default)s)")
    add("--sizes", default=sizes, help="-b and -e of bench (%(default)s)")
    add("--factor", default=str(factor), metavar="N", help="-f of bench (%(default)s)")
    add("--calls", default=str(calls), metavar="N", help="-n of bench (%(default)s)")
    add("--warmup", default="2", metavar="N", help="-w of bench (%(default)s)")
    add("--rounds", default=rounds, type=int, metavar="N", help="of all jobs (%(default)s)")
    add("--pause", default=0.0, type=float, metavar="SECONDS", help="between rounds (%(default)g)")
    add("--keep", metavar="DIR", help="write the JSON of each job, for `hierring report`")


def task_of(
    arguments: argparse.Namespace,
    layouts: Sequence[Layout],
    options: Sequence[str] = (),
    rate: str | None = None,
) -> Task:
    """What the arguments ask for.

    Raises:
        ConfigurationError: a value that makes no sense.
    """
    begin, _, end = arguments.sizes.partition(",")
    bench = ("-b", begin, "-e", end or begin, "-f", arguments.factor, "-n", arguments.calls)
    peers = tuple(name for name in arguments.peers.split(",") if name)
    if not set(peers) <= set(PEERS):
        raise ConfigurationError(f"--peers {arguments.peers!r}: give names of {', '.join(PEERS)}")
    if arguments.rounds < 1:
        raise ConfigurationError(f"--rounds {arguments.rounds}: 1 or more")
    if arguments.keep:
        Path(arguments.keep).mkdir(parents=True, exist_ok=True)
    return Task(
        tuple(layouts), (*bench, "-w", arguments.warmup, *options), peers, rate,
        arguments.rounds, arguments.pause, arguments.keep,
    )  # fmt: skip


def say_on_stderr(line: str) -> None:
    """Progress, apart from the tables."""
    print(f"hierring: {line}", file=sys.stderr, flush=True)


def environments_of(arguments: argparse.Namespace, say: Say) -> list[MpiEnvironment]:
    """Those that were given, or else one of each MPI library, made if need be."""
    if arguments.python:
        return [MpiEnvironment.of(python) for python in arguments.python]
    names = [name for name in arguments.mpi.split(",") if name]
    folder = Path(arguments.environments) if arguments.environments else default_folder()
    return build(names, folder, arguments.torch, say)


def compete(task: Task, environments: Sequence[MpiEnvironment], say: Say) -> Outcome:
    """Run all jobs, round by round; one that fails does not keep the others from running."""
    jobs: list[Job] = []
    failures: list[str] = []
    # gloo knows no MPI: one job of each kind is enough for it.
    with_gloo = next((one for one in environments if one.has_torch), None)
    for turn in range(task.rounds):
        if turn:
            time.sleep(task.pause_s)
        for layout, environment in itertools.product(task.layouts, environments):
            peers = [name for name in task.peers if name != "gloo" or environment is with_gloo]
            settings = peer_settings(environment.vendor, layout, usable_cpus())
            options = [*task.options, *(["--peers", ",".join(peers)] if peers else [])]
            say(f"round {turn + 1} of {task.rounds}: {layout}, {environment.title}")
            try:
                result = bench_on_nodes(
                    layout, options, python=environment.python, rate=task.rate, settings=settings
                )
            except HierringError as error:
                say(str(error))
                failures.append(f"{layout}, {environment.title}: {str(error).splitlines()[-1]}")
                continue
            jobs.append(Job(environment, layout, turn, settings, result))
            if task.keep:
                name = f"{layout}-{environment.vendor}-{turn + 1}.json".replace(":", "-")
                save(result, Path(task.keep) / name)
    return Outcome(tuple(jobs), tuple(failures))


def peer_settings(vendor: str, layout: Layout, cores: int) -> dict[str, str]:
    """What makes an MPI library and gloo fast here.

    Binding where each rank has a core, giving way where ranks outnumber cores (who spins then keeps
    the others from working), shared memory inside a node, and the one interface that there is.
    """
    crowded = layout.size > cores
    one_node = layout.nodes == 1
    settings = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo" if one_node else _NIC}
    if vendor == "mpich":
        settings |= {"HYDRA_BINDING": "none" if crowded else "core"}
        settings |= {} if one_node else {"UCX_NET_DEVICES": _NIC}
        # Its threads give way by themselves; MPIR_CVAR_ENABLE_HEAVY_YIELD made small calls slower.
    elif vendor == "openmpi":
        # Where there is more than one node, `hierring cluster run` names the network to it.
        settings |= {"PRTE_MCA_hwloc_default_binding_policy": "none" if crowded else "core"}
        settings |= {"OMPI_MCA_mpi_yield_when_idle": "1"} if crowded else {}
    elif vendor == "impi":
        settings |= {"I_MPI_PIN": "0" if crowded else "1"}
        if one_node:
            settings |= {"I_MPI_FABRICS": "shm"}
        else:
            settings |= {"FI_PROVIDER": "tcp", "FI_TCP_IFACE": _NIC}
        settings |= {"I_MPI_THREAD_YIELD": "3"} if crowded else {}
    return settings
