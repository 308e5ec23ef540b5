"""Where a run takes place: what a reader needs to judge its figures, or to repeat it."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import hierring
from hierring.benchmarks.metrics import DEFINITIONS
from hierring.benchmarks.result import Environment, Method

if TYPE_CHECKING:
    from hierring.config import Config

__all__ = ["environment_of", "launcher_of", "method_of", "settings_dict"]

_GIT_S = 10.0


def environment_of(started: datetime.datetime, load: float, *, full: bool) -> Environment:
    """Describe this process and machine; MPI must be up. The run's length is left open.

    Args:
        started: UTC. load: of the machine before the run.
        full: ask git as well, which is one process too many if all ranks of a large job do.
    """
    from mpi4py import MPI

    from hierring import _core

    torch: Any = sys.modules.get("torch")
    return Environment(
        hostname=platform.node(),
        date=started.isoformat(timespec="seconds"),
        seconds=0.0,
        hierring=hierring.__version__,
        commit=_commit() if full else None,
        python=platform.python_version(),
        numpy=np.__version__,
        torch=None if torch is None else str(torch.__version__),
        # Open MPI's ends in a NUL.
        mpi=" ".join(MPI.Get_library_version().replace("\0", "").split("\n")[0].split()),
        launcher=launcher_of(os.environ),
        kernel=f"{platform.system()} {platform.release()}",
        simd_level=_core.simd_level(),
        load=load,
    )


def launcher_of(environ: Mapping[str, str]) -> str:
    """Who started the ranks, as far as the variables tell."""
    pmi = {"PMI_SIZE", "PMI_RANK"} & environ.keys()
    if "SLURM_STEP_ID" in environ and (pmi or "PMIX_RANK" in environ):
        return "srun"
    if "OMPI_COMM_WORLD_SIZE" in environ:
        return "mpiexec (Open MPI)"
    return "mpiexec (PMI)" if pmi else "none"


def _commit() -> str | None:
    """The commit of the checkout that runs; None for an installed package, or without git."""
    package = Path(hierring.__file__).resolve().parent
    if not (package.parent / ".git").exists():
        return None
    commit = _git(package, "rev-parse", "HEAD")
    if not commit:
        return None
    return commit + ("+" if _git(package, "status", "--porcelain", "--", "..") else "")


def _git(folder: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True, text=True, timeout=_GIT_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def settings_dict(config: Config) -> dict[str, Any]:
    """Every setting by name."""
    return {name: getattr(config, name) for name in config.__dataclass_fields__}


def method_of() -> Method:
    """How figures come about here."""
    return Method(
        timed_region="the call alone, between two readings of each rank's own monotonic clock; the "
        "ranks leave a barrier just before, on another communicator",
        time="of a call: the maximum over ranks; of a case: median, minimum, maximum, p99 and mean "
        "over its timed calls",
        buffers="one input and one output a rank, used by all contenders and written before every "
        "call, so that both are as much in cache as data that was just computed",
        in_place="the result replaces the input; out of place, it goes to the output, which held "
        "NaN or all bits set, and the input must stay as it was",
        check="after every call, untimed ones included, every element is compared with a result "
        "that each rank computes alone; wrong counts those that differ by more than the tolerance",
        order="turn by turn: each contender makes one call, beginning with another one each turn; "
        "ratios compare calls of one turn",
        definitions=dict(DEFINITIONS),
    )
