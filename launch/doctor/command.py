"""The arguments of `hierring doctor`, and the process that the user sees; it never starts MPI."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hierring.launch.doctor.findings import Finding
    from hierring.launch.doctor.supervise import Attempt

__all__ = ["add_arguments", "run"]

DEFAULT_SECONDS = 30.0
MOST_SECONDS = 86400
HOLD_S = 3.0
_LOST_REMEDY = (
    "Look at what else MPI and the other ranks have printed, at firewalls between the nodes, and "
    "at hostnames that are equal up to the first dot: some MPI libraries take such nodes for one."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=DEFAULT_SECONDS,
        metavar="SECONDS",
        help="how long to wait for MPI and for other ranks, in each step (default %(default)g)",
    )


def _seconds(text: str) -> float:
    """A time that can be waited for."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= MOST_SECONDS:
        raise argparse.ArgumentTypeError(
            f"give seconds, above 0 and at most {MOST_SECONDS}, not {text}"
        )
    return seconds


def run(arguments: argparse.Namespace) -> int:
    """Examine, and let one process of the job print; 1 if something will break, else 0."""
    import psutil

    from hierring.launch.doctor import launchers, processes
    from hierring.launch.doctor.supervise import attempt

    claim = launchers.claimed_rank()
    # Asked before and after: others of the launch may come later than this one, or end sooner.
    spokesman = claim and processes.lower_sibling(*claim)
    options = ["--json"] if arguments.json else []
    found = attempt(options, arguments.timeout, os.environ, _speak_for_all)
    if "text" in found.answer and found.answer["size"] > 1:
        return _conclude(found)
    # The launcher meant these processes to be one job, or there is one alone, or MPI broke down.
    spokesman = spokesman or (claim and processes.lower_sibling(*claim))
    if spokesman:
        # One for each machine is enough. Launchers end the others when the first one ends.
        with contextlib.suppress(psutil.Error):
            spokesman.wait(2 * arguments.timeout + 3 * HOLD_S)
        return 1
    if "text" not in found.answer:
        found.answer |= _without_mpi(found, arguments)
    if claim and claim[1] > 0 and processes.starter(processes.ancestors()):
        # Rank 0 is on another machine and tells all; this one has its own errors to add.
        for what in found.answer["errors"]:
            _complain(claim[1], f"{os.uname().nodename}: {what}")
        time.sleep(HOLD_S)  # let rank 0 be the first to end
    else:
        print(found.answer["text"], flush=True)
    return _conclude(found) if "rank" in found.answer else 1


def _speak_for_all(answer: dict[str, Any]) -> None:
    """Print what a rank among several says: rank 0 all of it, another only that it lost them.

    At once, and not when its child has ended: where a rank is lost, MPI may end the job any moment.
    """
    if "text" not in answer or answer["size"] == 1:
        return
    if answer["rank"] == 0:
        print(answer["text"], flush=True)
    elif answer["lost"]:
        _complain(answer["rank"], answer["lost"])


def _conclude(found: Attempt) -> int:
    """After the report: what MPI had to say for itself, and the exit status."""
    rank = found.answer["rank"]
    if found.trouble:
        _complain(rank, found.cause)
        return 1
    if rank == 0:
        sys.stderr.write(found.output)
    return int(found.answer["exit_code"])


def _complain(rank: int, text: str) -> None:
    print(f"hierring doctor: rank {rank}: {text}", file=sys.stderr, flush=True)


def _without_mpi(found: Attempt, arguments: argparse.Namespace) -> dict[str, Any]:
    """The answer of this process in place of a child's that MPI has ended."""
    from hierring.launch.doctor.examine import report
    from hierring.launch.doctor.look import look
    from hierring.launch.doctor.view import Job

    job = Job((look(0, None, thorough=True),))
    seen = report(job, [_explain(found, arguments.timeout)])
    return {
        "text": json.dumps(seen.to_dict(), indent=2) if arguments.json else seen.describe(),
        "errors": seen.errors,
    }


def _explain(found: Attempt, seconds: float) -> Finding:
    """Why MPI did not start: the library, or only this launch?"""
    from hierring.launch.doctor.findings import Finding
    from hierring.launch.doctor.launchers import without_launcher
    from hierring.launch.doctor.supervise import attempt

    cause = found.cause
    if "mpi4py" in found.trouble and "No module" in found.trouble:
        remedy = "pip install mpi4py, and an MPI library: the site's module, or 'hierring[mpich]'."
        return Finding("error", "mpi", f"mpi4py is not installed ({cause})", remedy=remedy)
    if "failed" in found.answer:
        remedy = (
            "Load the module of your site's MPI, or pip install 'hierring[mpich]'; MPI4PY_LIBMPI "
            "names a library in an unusual place."
        )
        return Finding("error", "mpi", f"MPI cannot be started: {cause}", remedy=remedy)
    if "size" in found.answer:
        return Finding(
            "error",
            "mpi",
            f"MPI came up with {found.answer['size']} ranks, and broke down: {cause}",
            "What follows is what can be seen without it.",
            _LOST_REMEDY,
        )
    if "SIGBUS" in found.trouble:
        return Finding(
            "error",
            "mpi",
            f"MPI cannot be started: {cause}",
            "So a process ends that writes to shared memory for which there is no room: the MPI "
            "library itself needs some MiB of /dev/shm on each node.",
            "Enlarge /dev/shm (in containers: --shm-size), or remove what lies there.",
        )
    if found.timed_out:
        return Finding(
            "error",
            "mpi",
            f"MPI does not come up: {cause}",
            "It waits for every rank that the launcher counts, and for their nodes to answer.",
            "See that all ranks of the job run this command, and that firewalls and interfaces let "
            "the nodes reach each other.",
        )
    alone = without_launcher(os.environ)
    if alone != dict(os.environ) and "started" in attempt(["--only-start"], seconds, alone).answer:
        return Finding(
            "error",
            "mpi",
            f"MPI starts alone, but not under this launcher: {cause}",
            "The launcher and the MPI library that Python loads do not fit.",
            "Use the mpiexec of that library; under SLURM srun --mpi=pmi2 (MPICH, Intel MPI) or "
            "--mpi=pmix (Open MPI).",
        )
    return Finding(
        "error",
        "mpi",
        f"MPI cannot be started: {cause}",
        remedy="Run python -c 'from mpi4py import MPI' to see all that MPI says about it.",
    )
