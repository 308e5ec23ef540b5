"""What a virtual cluster could leave behind, looked at from outside."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Collection, Iterator
from pathlib import Path

__all__ = ["held", "namespaces", "outside", "started", "still_used"]

KINDS = ("net", "mnt", "pid")


@contextlib.contextmanager
def started(command: list[str]) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process and the first line it printed; it is killed in the end, if it still runs."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline()
        finally:
            process.kill()


def namespaces(pid: int) -> set[str]:
    """The namespaces that a process is in and this one is not."""
    inside = {os.readlink(f"/proc/{pid}/ns/{kind}") for kind in KINDS}
    return inside - {os.readlink(f"/proc/self/ns/{kind}") for kind in KINDS}


def held(pids: Collection[int], until: contextlib.ExitStack) -> set[str]:
    """The namespaces of these processes, kept open: else others would soon get their numbers."""
    for pid in pids:
        for kind in KINDS:
            until.callback(os.close, os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY))
    return set[str]().union(*map(namespaces, pids))


def still_used(names: set[str]) -> set[str]:
    """Those of the namespaces that any process of this machine is in."""
    used = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for kind in KINDS:
            try:
                used.add(os.readlink(f"/proc/{pid}/ns/{kind}"))
            except OSError:  # it has ended, or belongs to somebody else
                continue
    return used & names


def outside() -> tuple[set[str], list[str]]:
    """What of this machine a cluster could have changed: mounts and network devices."""
    mounts = {
        line.split(" ", 1)[1] for line in Path("/proc/self/mountinfo").read_text().splitlines()
    }
    return mounts, sorted(os.listdir("/sys/class/net"))
