"""Reading the kernel's small text files under a root that a test can point at a recorded tree.

Every reader answers a default where a file is missing, refused or strange: containers hide parts of
/sys and /proc, and a report with a gap serves better than no start.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

__all__ = ["format_ranges", "listdir", "parse_ranges", "read_int", "read_text"]

_MAX_NBYTES = 65536  # the longest file read here is a cpulist; sysfs itself ends at one page


def read_text(path: str | Path, default: str = "") -> str:
    """The stripped content of a small file, or `default`."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return default
    try:
        return os.read(descriptor, _MAX_NBYTES).decode("utf-8", "replace").strip()
    except OSError:  # e.g. EINVAL: the speed of a link that is down
        return default
    finally:
        os.close(descriptor)


def read_int(path: str | Path, default: int = -1) -> int:
    """The content of a small file as a decimal number, or `default`."""
    try:
        return int(read_text(path))
    except ValueError:
        return default


def listdir(path: str | Path) -> list[str]:
    """The sorted names in a directory; empty where it cannot be read."""
    try:
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries)
    except OSError:
        return []


def parse_ranges(text: str) -> tuple[int, ...]:
    """The numbers of a kernel cpulist such as "0-3,8", ascending; malformed parts are left out."""
    found: set[int] = set()
    for part in text.replace("\n", "").split(","):
        first, _, last = part.partition("-")
        try:
            low = int(first)
            high = int(last) if last else low
        except ValueError:
            continue
        if 0 <= low <= high < 1 << 20:
            found.update(range(low, high + 1))
    return tuple(sorted(found))


def format_ranges(numbers: Iterable[int]) -> str:
    """A set of numbers in the kernel's manner: "0-3,8"."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)
