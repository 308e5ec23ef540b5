"""Which MPI library mpi4py loads, which mpiexec starts its jobs, and with which options.

Nothing here starts MPI in this process: a command that starts jobs must be no job itself, or the
launcher's variables would reach its children.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hierring.environment import usable_cpus
from hierring.errors import HierringError

__all__ = ["VENDORS", "Launcher", "MpiLibrary", "loaded_library"]

VENDORS = {"mpich": "MPICH", "openmpi": "Open MPI", "impi": "Intel MPI"}
# What MPI_Get_library_version and `mpiexec --version` say, by vendor; the first that occurs counts.
_SIGNS = (
    ("impi", ("Intel(R) MPI",)),
    ("openmpi", ("Open MPI", "OpenRTE", "PRRTE")),
    ("mvapich", ("MVAPICH",)),
    ("mpich", ("MPICH", "HYDRA")),
)
_ASK_S = 60.0
_VERSION = """
import mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
print(MPI.Get_library_version())
"""


def vendor_of(text: str) -> str:
    """Recognise a vendor by a version text; empty if it is none that is known."""
    for vendor, signs in _SIGNS:
        if any(sign.lower() in text.lower() for sign in signs):
            return vendor
    return ""


@dataclass(frozen=True)
class MpiLibrary:
    """The library that mpi4py loads; `vendor` is a key of VENDORS, or another or empty name."""

    vendor: str
    version: str


def loaded_library(python: str | Path = sys.executable) -> MpiLibrary:
    """Ask a Python which library its mpi4py loads, in a process that does not start MPI.

    Raises:
        HierringError: mpi4py is missing, or finds no library; with its own words.
    """
    try:
        done = subprocess.run(
            [str(python), "-c", _VERSION], capture_output=True, text=True, timeout=_ASK_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HierringError(f"{python} cannot be asked for its MPI library: {error}") from error
    if done.returncode != 0:
        cause = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise HierringError(
            f"mpi4py loads no MPI library: {cause}; install one, for example "
            "`pip install 'hierring[mpich]'`, or load your site's module"
        )
    text = " ".join(done.stdout.split())
    return MpiLibrary(vendor_of(text), text)


@dataclass(frozen=True)
class Launcher:
    """An mpiexec, the vendor whose jobs it starts, and how it is asked for a job here."""

    vendor: str
    mpiexec: Path
    version: str = ""

    @classmethod
    def beside(cls, python: str | Path = sys.executable, vendor: str = "") -> Launcher:
        """Find the mpiexec in the environment of a Python, else on PATH.

        Args:
            python: not resolved, for a virtual environment's Python is a link out of it.
            vendor: what to take it for, if it does not say so itself.

        Raises:
            HierringError: there is none, or none of a known vendor.
        """
        own = Path(python).parent / "mpiexec"
        found = str(own) if os.access(own, os.X_OK) else shutil.which("mpiexec")
        if found is None:
            raise HierringError(
                f"no mpiexec beside {python} or on PATH: install an MPI library, for example "
                "`pip install 'hierring[mpich]'`, or load your site's module"
            )
        try:
            done = subprocess.run(
                [found, "--version"], capture_output=True, text=True, timeout=_ASK_S
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise HierringError(f"{found} --version: {error}") from error
        version = " ".join((done.stdout or done.stderr).split())
        vendor = vendor or vendor_of(version)
        if vendor not in VENDORS:
            raise HierringError(
                f"{found} is the mpiexec of an MPI that hierring cannot start jobs with "
                f"({version[:60] or 'it has no version'}): use one of {', '.join(VENDORS.values())}"
            )
        return cls(vendor, Path(found), version)

    def check_library(self, library: MpiLibrary) -> None:
        """Refuse a library that this mpiexec's jobs would not know each other with.

        Raises:
            HierringError: vendors differ. MPICH and Intel MPI start each other's jobs.
        """
        kin = {"mpich": {"mpich", "impi", "mvapich"}, "impi": {"mpich", "impi", "mvapich"}}
        if library.vendor and library.vendor not in kin.get(self.vendor, {self.vendor}):
            raise HierringError(
                f"{self.mpiexec} starts jobs of {VENDORS[self.vendor]}, but mpi4py loads "
                f"{library.version[:60]}: every rank would be alone; use that library's mpiexec"
            )

    def options(self, oversubscribed: bool = True) -> list[str]:
        """Options for a job on this machine, with more ranks than cores if need be."""
        if self.vendor != "openmpi":
            return []
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        return root + (["--oversubscribe", *self.unbound_options()] if oversubscribed else [])

    def unbound_options(self) -> list[str]:
        """Options that keep ranks from taking a core for themselves, where they share cores."""
        if self.vendor != "openmpi":
            return []
        return ["--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]

    def settings(self, oversubscribed: bool = True) -> dict[str, str]:
        """Environment variables that mean the same as `options`; the user's own go before them."""
        if self.vendor != "impi" or not oversubscribed:
            return {}
        wanted = {"I_MPI_PIN": "0", "I_MPI_THREAD_YIELD": "3"}
        return {name: value for name, value in wanted.items() if name not in os.environ}

    def command(self, ranks: int, argv: Sequence[str | Path]) -> list[str]:
        """The command that runs so many ranks of a program on this machine."""
        crowded = ranks > usable_cpus()
        settings = [f"{name}={value}" for name, value in self.settings(crowded).items()]
        return [
            *(["env", *settings] if settings else []),
            *(str(self.mpiexec), *self.options(crowded), "-n", str(ranks), *map(str, argv)),
        ]
