"""What MPI libraries have left in /dev/shm: ranks that were killed never took it away."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from hierring.launch.doctor.view import Leftovers

__all__ = ["find_leftovers"]

#: How the shared-memory files of MPICH, Open MPI, UCX, PSM2, Intel MPI and hierring begin.
PREFIXES = (
    *("mpich_shm_", "sm_segment.", "vader_segment.", "ucx_shm_posix_", "psm2_shm."),
    *("Intel_MPI_", "hierring-"),
)
#: A job that is coming up has files that not all its processes have mapped yet.
OLD_S = 600.0
#: Less does not make /dev/shm short, and is not worth reading the maps of all processes.
MANY_NBYTES = 64 << 20


def find_leftovers(directory: str = "/dev/shm", many_nbytes: int = MANY_NBYTES) -> Leftovers:
    """This user's old files of MPI libraries that no process in sight has mapped.

    Args:
        directory: where they are.
        many_nbytes: if all of them have less, they are not looked into, and none are reported.
    """
    files = dict(_old_files(Path(directory)))
    if sum(files.values()) < many_nbytes:
        return Leftovers((), 0)
    for name in _mapped(directory):
        files.pop(name, None)
    kinds = sorted({next(p for p in PREFIXES if name.startswith(p)) for name in files})
    return Leftovers(tuple(kinds), sum(files.values()))


def _old_files(directory: Path) -> Iterator[tuple[str, int]]:
    """(name, bytes of memory) of files that look like an MPI library's, are ours, and old."""
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if not entry.name.startswith(PREFIXES):
                continue
            with contextlib.suppress(OSError):  # it has just gone
                status = entry.stat(follow_symlinks=False)
                if status.st_uid == os.geteuid() and time.time() - status.st_mtime > OLD_S:
                    yield entry.name, status.st_blocks * 512


def _mapped(directory: str) -> set[str]:
    """Names in the directory that some process of this user has mapped."""
    names = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            for line in maps.read_text(encoding="utf-8", errors="replace").splitlines():
                _, found, name = line.partition(f" {directory}/")
                if found:
                    names.add(name)
    return names
