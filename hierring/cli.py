"""The `hierring` command.

Each subcommand is a function that adds its parser, listed at the end of the file, and a function
that runs it. What a command needs is imported when it runs, so that `--help` starts neither MPI nor
torch.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from hierring._version import __version__
from hierring.errors import ConfigurationError, HierringError

if TYPE_CHECKING:
    # What argparse calls this has a leading underscore, but no other name.
    Subparsers: TypeAlias = argparse._SubParsersAction[argparse.ArgumentParser]

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand.

    Returns:
        The exit status: 0 for work done, 2 for wrong usage or settings, 1 for any other refusal.
    """
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except HierringError as error:
        print(f"hierring: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigurationError) else 1
    except BrokenPipeError:
        # The reader, such as `head`, has seen enough. Python flushes stdout once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hierring",
        description="All-reduce for training on many hosts.",
    )
    parser.add_argument("--version", action="version", version=f"hierring {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for add in _COMMANDS:
        add(subparsers)
    return parser


def _add_topology(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "topology",
        help="show which ranks share a node, and the hardware around them",
        description="Show which ranks share a node, and the hardware around them. Start it like "
        "the job: alone, under mpiexec or under srun; rank 0 prints.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a tree")
    parser.add_argument(
        "--probe",
        action="store_true",
        help="measure the links between all nodes and the memory inside them",
    )
    parser.set_defaults(run=_run_topology)


def _run_topology(arguments: argparse.Namespace) -> int:
    _require_mpi()
    import hierring

    comm = hierring.init()
    topology = hierring.get_topology()
    found, text = topology.to_dict(), topology.describe()
    if arguments.probe:
        from hierring.communicator import probe_links

        links = probe_links(comm)
        found["probe"], text = links.to_dict(), f"{text}\n{links.describe()}"
    if topology.rank == 0:
        print(json.dumps(found, allow_nan=False, indent=2) if arguments.json else text, flush=True)
    return 0


def _add_demo(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "demo",
        help="train on handwritten digits with all ranks, and check the result",
        description="Train a small network on handwritten digits, data-parallel, and check its "
        "accuracy, the bytes between nodes, and the weights against those of one process and of "
        "the other ranks. Start it like the job, for example on two pretended nodes: "
        "HIERRING_SIMULATE_NODES=2x2 mpiexec -n 4 hierring demo",
    )
    parser.set_defaults(run=_run_demo)


def _run_demo(arguments: argparse.Namespace) -> int:
    _require_mpi()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        # One thread a rank: more get into each other's way. BLAS asks when NumPy is first imported.
        os.environ.setdefault(name, "1")
    from hierring.launch import demo

    return demo.run()


def _add_doctor(subparsers: Subparsers) -> None:
    from hierring.launch.doctor import command

    parser = subparsers.add_parser(
        "doctor",
        help="look for what stands in the way of a job here, and say what to do about it",
        description="Look for what stands in the way of a job here, and say what to do about it. "
        "Start it like the job: alone, under mpiexec or under srun; all ranks look, one prints. "
        "The exit status is 1 if something will break.",
    )
    command.add_arguments(parser)
    parser.set_defaults(run=command.run)


def _add_cluster(subparsers: Subparsers) -> None:
    from hierring.launch.cluster import command

    command.add_parser(subparsers)


def _add_launch(subparsers: Subparsers) -> None:
    from hierring.launch.job import add_parser

    add_parser(subparsers)


def _add_bench(subparsers: Subparsers) -> None:
    from hierring.benchmarks.options import add_arguments

    parser = subparsers.add_parser(
        "bench",
        help="measure collectives by size, check every result, and say what bounds them",
        description="Measure collectives by size, check every result, and say what bounds them. "
        "Start it like the job: alone, under mpiexec or under srun; rank 0 prints. Lists are "
        "written with commas, sizes as 8, 64K, 16M. The exit status is 1 if an element was wrong.",
    )
    add_arguments(parser)
    parser.set_defaults(run=_run_bench)


def _run_bench(arguments: argparse.Namespace) -> int:
    _require_mpi()
    from hierring.benchmarks import command

    return command.run(arguments)


def _add_report(subparsers: Subparsers) -> None:
    from hierring.benchmarks.report import command

    parser = subparsers.add_parser(
        "report",
        help="turn what hierring bench measured into Markdown and a page",
        description="Turn what hierring bench measured into Markdown for a log and one "
        "self-contained HTML page for people. Of several files, each is compared with the first.",
    )
    command.add_arguments(parser)
    parser.set_defaults(run=command.run)


def _add_model(subparsers: Subparsers) -> None:
    from hierring.benchmarks.model import command

    parser = subparsers.add_parser(
        "model",
        help="predict times for other clusters from what hierring bench measured",
        description="Calibrate a model of each algorithm with what `hierring bench` measured, and "
        "predict time, bandwidth and the fastest algorithm for other numbers of nodes and ranks. "
        "Lists are written with commas. What lies beyond the calibration is marked.",
    )
    command.add_arguments(parser)
    parser.set_defaults(run=command.run)


def _require_mpi() -> None:
    """Say in one line that MPI is missing, where the import would end in a traceback."""
    try:
        from mpi4py import MPI  # noqa: F401  (starts MPI, which is what may fail)
    except (ImportError, RuntimeError) as error:  # RuntimeError: mpi4py finds no MPI library
        cause = " ".join(str(error).split())
        raise HierringError(f"MPI cannot be started: {cause}") from error


_COMMANDS: tuple[Callable[[Subparsers], None], ...] = (
    _add_topology,
    _add_demo,
    _add_launch,
    _add_doctor,
    _add_cluster,
    _add_bench,
    _add_report,
    _add_model,
)
