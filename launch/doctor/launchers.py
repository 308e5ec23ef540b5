"""Which launcher started this process, and which ones a user would call."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from hierring.launch.doctor.view import Mpiexec
from hierring.launch.mpi import vendor_of

__all__ = ["claimed_rank", "mpiexecs", "without_launcher"]

#: Where launchers tell a process its rank; the closest to MPI first.
RANK_VARIABLES = (
    *("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "MV2_COMM_WORLD_RANK"),
    *("SLURM_PROCID", "RANK"),
)
#: A process that has none of these is started by no launcher, as far as MPI can see.
_LAUNCHER_PREFIXES = (
    *("OMPI_", "PMI_", "PMIX_", "PRTE_", "MV2_", "HYDI_", "HYDRA_", "SLURM_", "PALS_", "FLUX_"),
)

QUESTION_S = 10.0


def claimed_rank(environ: Mapping[str, str] = os.environ) -> tuple[str, int] | None:
    """The variable in which a launcher tells this process its rank, and the rank."""
    for variable in RANK_VARIABLES:
        text = environ.get(variable, "")
        if text.isascii() and text.isdigit():
            return variable, int(text)
    return None


def without_launcher(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process that is to be an MPI world of its own.

    Settings of Open MPI are OMPI_MCA_*: what the user wants of the library stays.
    """
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith(_LAUNCHER_PREFIXES) or name.startswith("OMPI_MCA_")
    }


def mpiexecs(environ: Mapping[str, str] = os.environ) -> tuple[Mpiexec, ...]:
    """The mpiexec that a shell would find, then the one beside this Python if it is another."""
    candidates = []
    found = shutil.which("mpiexec", path=environ.get("PATH"))
    if found is not None:
        candidates.append(found)
    beside = Path(sys.executable).with_name("mpiexec")
    if beside.is_file() and not any(os.path.samefile(beside, other) for other in candidates):
        candidates.append(str(beside))
    return tuple(_ask(path) for path in candidates)


def _ask(path: str) -> Mpiexec:
    text = _answer([path, "--version"])
    number = re.search(r"\d+(?:\.\d+)+\w*", text)
    return Mpiexec(path, vendor_of(text), number.group() if number else "")


def _answer(command: list[str]) -> str:
    """All that a program prints; "" if it can't be run or does not end."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=QUESTION_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout
