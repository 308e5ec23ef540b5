"""The processes around this one: ancestors, strangers on its CPUs, memory it may read."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import time
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from hierring.launch.doctor.view import Stranger

__all__ = ["ancestors", "can_read_memory", "lower_sibling", "starter", "strangers"]

_KTHREADD = 2
#: A process that sleeps, and has had less of its time on a CPU, is no competitor.
BUSY_SHARE = 0.1

#: Names of processes that start ranks, as the kernel shows them (15 characters at most).
LAUNCHERS = (
    *("hydra_pmi_proxy", "hydra_bstrap_pr", "prted", "prterun", "orted", "slurmstepd", "srun"),
    *("mpiexec", "mpiexec.hydra", "mpirun", "torchrun", "palsd", "apinit"),
)


def ancestors() -> list[tuple[int, str]]:
    """(pid, name) of this process and those above it, the nearest first; without pid 1."""
    import psutil

    found: list[tuple[int, str]] = []
    # One of them ended, or is hidden; where all of /proc is, psutil knows no error of its own.
    with contextlib.suppress(psutil.Error, OSError, LookupError):
        process: Any = psutil.Process()
        while process is not None and process.pid > 1:
            found.append((process.pid, process.name()))
            process = process.parent()
    return found


def starter(line: Sequence[tuple[int, str]]) -> str:
    """The closest of the ancestors that is a launcher, or ""."""
    return next((name for _, name in line if name in LAUNCHERS), "")


def strangers(
    mine: Collection[int], online: Collection[int], line: Sequence[int]
) -> tuple[Stranger, ...]:
    """Processes bound to some of the CPUs `mine`, that work, and that this job did not start.

    One that may run anywhere is no finding: the kernel moves it out of the way. What was bound
    together with this process (its ancestors with the same CPUs, and all they started) is its own.

    Args:
        mine: the CPUs of this process.
        online: all CPUs of the machine.
        line: pids of this process and its ancestors, the nearest first.
    """
    import psutil

    wanted, everywhere = set(mine), set(online)
    family = _family(line, everywhere)
    found = []
    for process in _visible():
        if process.pid in family or _KTHREADD in (process.pid, process.info["ppid"]):
            continue
        with contextlib.suppress(psutil.Error, OSError):
            cpus = set(process.cpu_affinity())
            if cpus < everywhere and cpus & wanted and _busy(process):
                found.append(Stranger(process.pid, process.info["name"], tuple(sorted(cpus))))
    return tuple(found)


def _visible() -> list[Any]:
    """All processes; none where /proc is hidden, of which psutil makes an IndexError."""
    import psutil

    with contextlib.suppress(psutil.Error, OSError, LookupError):
        return list(psutil.process_iter(["pid", "ppid", "name"]))
    return []


def _family(line: Sequence[int], everywhere: set[int]) -> set[int]:
    """This process, its ancestors, and all below the highest one that is bound as narrowly."""
    import psutil

    family = set(line)
    top = line[0]
    with contextlib.suppress(psutil.Error, OSError, LookupError):
        own = psutil.Process(line[0]).cpu_affinity()
        if set(own) < everywhere:
            for pid in line[1:]:
                if psutil.Process(pid).cpu_affinity() != own:
                    break
                top = pid
        family.update(child.pid for child in psutil.Process(top).children(recursive=True))
    return family


def _busy(process: Any) -> bool:
    """Whether it runs, or waits for its turn, or has had much of its time."""
    if process.status() == "running":
        return True
    times = process.cpu_times()
    age = max(time.time() - process.create_time(), 1e-3)
    return bool((times.user + times.system) / age >= BUSY_SHARE)


def lower_sibling(variable: str, rank: int) -> Any:
    """The process with the lowest rank that the same launcher has started beside this one.

    None if there is none with a lower rank than this one's. Where MPI does not join the ranks, this
    is how one of them gets to speak for its machine. What such a process has started itself has its
    variables too, and may be found in its place.

    Args:
        variable: where the launcher tells each process its rank.
        rank: what it tells this one.
    """
    import psutil

    lowest, found = rank, None
    with contextlib.suppress(psutil.Error, OSError, LookupError):
        for sibling in _siblings(psutil.Process()):
            with contextlib.suppress(psutil.Error, ValueError, KeyError):
                number = int(sibling.environ()[variable])
                if number < lowest:
                    lowest, found = number, sibling
    return found


def _siblings(process: Any) -> Iterator[Any]:
    """What this process's parent has started, whatever stands between (a shell, a wrapper)."""
    parent = process.parent()
    if parent is None or parent.pid <= 1:
        return
    yield from (child for child in parent.children(recursive=True) if child.pid != process.pid)


def can_read_memory(pid: int) -> bool | None:
    """Whether the kernel would let this process read memory of another; None if it can't tell.

    The address is no address: a kernel that permits the call finds fault with that, one that does
    not never looks at it. So nothing is read.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "process_vm_readv"):
        return None
    target = ctypes.create_string_buffer(1)
    here = (ctypes.c_void_p * 2)(ctypes.addressof(target), 1)
    there = (ctypes.c_void_p * 2)(8, 1)
    libc.process_vm_readv.restype = ctypes.c_ssize_t
    done = libc.process_vm_readv(
        ctypes.c_int(pid),
        here,
        ctypes.c_ulong(1),
        there,
        ctypes.c_ulong(1),
        ctypes.c_ulong(0),
    )
    if done >= 0 or ctypes.get_errno() == errno.EFAULT:
        return True
    return False if ctypes.get_errno() == errno.EPERM else None
