"""The machine that a page of figures comes from, and what else it did meanwhile."""

from __future__ import annotations

import os
import platform
import re
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from hierring.environment import usable_cpus

__all__ = ["Machine", "Watch"]


@dataclass(frozen=True)
class Machine:
    """What matters of it; no names that only its owner knows.

    Attributes:
        cores: that this process may use. memory: bytes. load: of the last minute.
    """

    cpu: str
    cores: int
    memory: int
    kernel: str
    load: float

    @classmethod
    def here(cls, cpuinfo: Path = Path("/proc/cpuinfo")) -> Machine:
        """This one, now."""
        return cls(
            _cpu(cpuinfo),
            usable_cpus(),
            psutil.virtual_memory().total,
            f"{platform.system()} {platform.release()}",
            os.getloadavg()[0],
        )


def _cpu(cpuinfo: Path) -> str:
    """The model, where the kernel knows it; some architectures' does not."""
    try:
        text = cpuinfo.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return " ".join(found[1].split()) if found else platform.machine()


class Watch:
    """Counts, from its making on, the cores' time that went to others than this process's children.

    Handling of interrupts is nobody's: on virtual nodes it is the network, and so the job's own.
    """

    def __init__(self) -> None:
        self._began = self._now()

    @staticmethod
    def _now() -> tuple[float, float, float, float]:
        """Seconds: passed; of all programs; of this process and children that ended; stolen."""
        cpu, own = psutil.cpu_times(), os.times()
        return (
            time.monotonic(),
            cpu.user + cpu.nice + cpu.system,
            own.user + own.system + own.children_user + own.children_system,
            cpu.steal,
        )

    def others(self) -> tuple[float, float]:
        """Cores that other programs kept busy on average, and that the hypervisor took away."""
        passed, every, own, stolen = (
            now - then for now, then in zip(self._now(), self._began, strict=True)
        )
        passed = max(passed, 1e-9)
        return max(every - own, 0.0) / passed, max(stolen, 0.0) / passed
