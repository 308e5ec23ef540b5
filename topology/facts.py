"""What each rank knows about itself before the ranks have spoken: hints and hardware."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hierring.environment import usable_cpus
from hierring.topology.hardware import Hardware, local_hardware
from hierring.topology.sysfs import read_text

__all__ = ["Facts", "local_facts"]


@dataclass(frozen=True)
class Facts:
    """One rank's own view; picklable and small, all-gathered at init.

    None of it decides who shares a node: it says whom to probe, and what to report.

    Attributes:
        rank: the rank in the communicator the facts were gathered for.
        hostname: full, as the kernel has it; never cut at a dot.
        boot_id: of the kernel; equal for containers on one machine, which may share no memory.
        shm_device: device number of /dev/shm, or -1 where there is none.
        shm_nbytes, shm_free_nbytes: its size and what was free when the rank looked.
        pid_namespace: inode of the pid namespace, 0 where it is hidden.
        cpus: the CPUs this rank may run on, ascending.
        usable_cpus: how many of them are worth a thread, see `usable_cpus` in hierring.environment.
        mpi_node: the lowest rank that MPI's own shared-memory split put on this rank's node, or
            None where nobody asked MPI.
    """

    rank: int
    pid: int
    hostname: str
    boot_id: str
    shm_device: int
    shm_nbytes: int
    shm_free_nbytes: int
    pid_namespace: int
    uid: int
    cpus: tuple[int, ...]
    usable_cpus: int
    hardware: Hardware
    mpi_node: int | None = None


def local_facts(
    rank: int,
    root: str | Path = "/",
    environ: Mapping[str, str] = os.environ,
    mpi_node: int | None = None,
) -> Facts:
    """Looks around; local, a matter of milliseconds, never raises for anything it cannot see.

    Args:
        rank: what to call this rank.
        root: where /proc, /sys and /dev are; a test points it at a recorded tree.
        environ: where SLURM's variables are looked for.
        mpi_node: passed through, see Facts.
    """
    root = Path(root)
    hardware = _hardware(root, environ)
    cpus = tuple(sorted(os.sched_getaffinity(0)))
    shm_device, shm_nbytes, shm_free_nbytes = _shared_memory(root / "dev/shm")
    return Facts(
        rank=rank,
        pid=os.getpid(),
        hostname=socket.gethostname(),
        boot_id=read_text(root / "proc/sys/kernel/random/boot_id"),
        shm_device=shm_device,
        shm_nbytes=shm_nbytes,
        shm_free_nbytes=shm_free_nbytes,
        pid_namespace=_inode(root / "proc/self/ns/pid"),
        uid=os.geteuid(),
        cpus=cpus,
        usable_cpus=usable_cpus(cpus, hardware.cpu_quota, environ),
        hardware=hardware,
        mpi_node=mpi_node,
    )


def _shared_memory(directory: Path) -> tuple[int, int, int]:
    """(device, size, free bytes) of the directory's filesystem; (-1, 0, 0) where there is none."""
    try:
        usage = os.statvfs(directory)
        device = directory.stat().st_dev
    except OSError:
        return -1, 0, 0
    return device, usage.f_blocks * usage.f_frsize, usage.f_bavail * usage.f_frsize


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0


def _hardware(root: Path, environ: Mapping[str, str]) -> Hardware:
    """This machine's hardware is read once per process: dozens of files, for each communicator."""
    if root == Path("/") and environ is os.environ:
        return _this_machine()
    return local_hardware(root, environ)


@cache
def _this_machine() -> Hardware:
    return local_hardware(Path("/"), os.environ)
