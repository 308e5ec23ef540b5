"""The arguments of `hierring doctor`, and the process that the user sees; it never starts MPI."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hierring.launch.doctor.findings import Finding
    from hierring.launch.doctor.supervise import Attempt

__all__ = ["add_arguments", "run"]

DEFAULT_SECONDS = 30.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.add_argument(
        "--timeout",
        type=float,
        default=DEFAULT_SECONDS,
        metavar="SECONDS",
        help="how long to wait for MPI and for other ranks, in each step (default %(default)g)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Examine, and let one process of the job print; 1 if something will break, else 0."""
    from hierring.launch.doctor import launchers, processes
    from hierring.launch.doctor.supervise import attempt

    claim = launchers.claimed_rank()
    # Asked before and after: others of the launch may come later than this one, or end sooner.
    spoken_for = claim is not None and processes.lower_sibling(*claim)
    found = attempt(["--json"] if arguments.json else [], arguments.timeout)
    if found.output and not found.trouble:
        sys.stderr.write(found.output)
    if int(found.answer.get("size", 0)) > 1:
        return _speak(found)
    if spoken_for or (claim is not None and processes.lower_sibling(*claim)):
        # The launcher meant them to be one job, and they are not: one for each machine is enough.
        # It also has the exit status; a launcher would end the others because of this one.
        return 0
    if "text" in found.answer:
        return _speak(found)
    return _without_mpi(found, arguments)


def _speak(found: Attempt) -> int:
    """Print what the rank has to say: rank 0 all of it, another only that it lost the others."""
    answer = found.answer
    if answer["rank"] == 0:
        print(answer["text"], flush=True)
    elif answer["lost"]:
        print(f"hierring doctor: rank {answer['rank']}: {answer['lost']}", file=sys.stderr)
    if found.trouble:
        print(f"hierring doctor: rank {answer['rank']}: {found.cause}", file=sys.stderr)
    return 1 if found.trouble else int(answer["exit_code"])


def _without_mpi(found: Attempt, arguments: argparse.Namespace) -> int:
    """Report what can be seen where MPI can't be started; that is an error in any case."""
    from hierring.launch.doctor.examine import report
    from hierring.launch.doctor.look import look
    from hierring.launch.doctor.view import Job

    job = Job((look(0, None, thorough=True),))
    seen = report(job, [_explain(found, arguments.timeout)])
    print(json.dumps(seen.to_dict(), indent=2) if arguments.json else seen.describe(), flush=True)
    return seen.exit_code


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
