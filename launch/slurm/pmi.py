"""Which of srun's PMI plugins fits an MPI library.

`srun` starts the processes; through the PMI they learn that they belong together. With the wrong
plugin each of them is, silently, a world of its own.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Collection

from hierring.errors import ConfigurationError, HierringError

__all__ = ["available_plugins", "choose_plugin", "parse_list", "plugin_family"]

# PMIx is what Open MPI speaks. MPICH and its kin speak PMI-2; their builds from pip no PMIx at all.
_FAMILIES = {"openmpi": "pmix", "mpich": "pmi2", "impi": "pmi2", "mvapich": "pmi2"}
_LIST_S = 30


def plugin_family(vendor: str) -> str | None:
    """Return `pmi2` or `pmix`; None for an MPI library that we know nothing of."""
    return _FAMILIES.get(vendor)


def available_plugins(srun: str = "srun") -> tuple[str, ...]:
    """Ask `srun --mpi=list` which plugins this cluster has.

    Raises:
        HierringError: srun does not answer; quotes it.
    """
    try:
        answer = subprocess.run(
            [srun, "--mpi=list"], capture_output=True, text=True, timeout=_LIST_S, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        said = " ".join((getattr(error, "stderr", None) or str(error)).split())
        raise HierringError(
            f"`{srun} --mpi=list` failed: {said}; is this machine part of a SLURM cluster? On this "
            "machine alone, mpiexec starts the ranks"
        ) from error
    return parse_list(answer.stdout + answer.stderr)  # releases differ in where they print it


def parse_list(text: str) -> tuple[str, ...]:
    """Find the names in what `srun --mpi=list` prints, which differs from release to release."""
    names: dict[str, None] = {}
    for line in text.splitlines():
        line = re.sub(r"^\s*srun:", "", line).strip()
        head, _, tail = line.partition(":")
        if "versions available" in head:  # specific pmix plugin versions available: pmix_v3,pmix_v4
            names.update(dict.fromkeys(re.findall(r"\w+", tail)))
        elif re.fullmatch(r"\w+", line):
            names[line] = None
    return tuple(names)


def choose_plugin(vendor: str, available: Collection[str]) -> str | None:
    """Choose the value of `srun --mpi=`; None leaves an unknown MPI library to srun's default.

    Raises:
        ConfigurationError: the cluster has no plugin for it; names those it has, and the way out.
    """
    family = plugin_family(vendor)
    if family is None or family in available:
        return family
    versions = [name for name in available if re.fullmatch(rf"{family}_v\d+", name)]
    if versions:
        return max(versions, key=lambda name: int(name.rpartition("v")[2]))
    raise ConfigurationError(
        f"the installed MPI library ({vendor}) needs srun's PMI plugin {family}, and this cluster "
        f"has {', '.join(available) or 'none'} (`srun --mpi=list`): start the ranks with the "
        "library's own mpiexec inside the allocation, or install an MPI library that fits"
    )
