"""What one machine is made of: CPUs, NUMA nodes, caches and the limits its cgroup sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hierring.topology.devices import Gpu, Nic, gpus, nics
from hierring.topology.sysfs import format_ranges, listdir, parse_ranges, read_int, read_text

__all__ = ["Cache", "Hardware", "NumaNode", "local_hardware", "switch_path"]

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}

# A cgroup v1 that sets no memory limit shows the largest page-aligned 63-bit number.
_UNLIMITED = 1 << 60


@dataclass(frozen=True)
class NumaNode:
    """One NUMA node; `cpus` is a cpulist, `distances` are to all nodes in order of their number."""

    number: int
    cpus: str
    memory_nbytes: int
    distances: tuple[int, ...]


@dataclass(frozen=True)
class Cache:
    """All caches of one level, kind and size; each of `groups` is the cpulist that shares one."""

    level: int
    kind: str
    nbytes: int
    line_nbytes: int
    groups: tuple[str, ...]


@dataclass(frozen=True)
class Hardware:
    """The hardware a rank sees; unknown numbers are 0, unknown limits are None.

    Attributes:
        cpus: the online CPUs, a cpulist.
        num_cores, num_sockets: physical cores and packages behind them.
        memory_nbytes: physical memory.
        cpu_quota: CPUs' worth of time the cgroup grants, or None.
        memory_limit_nbytes: what the cgroup grants, or None.
        switch_path: names from the top switch to the leaf switch as SLURM tells, or empty.
    """

    cpus: str
    num_cores: int
    num_sockets: int
    memory_nbytes: int
    cpu_quota: float | None
    memory_limit_nbytes: int | None
    numa_nodes: tuple[NumaNode, ...]
    caches: tuple[Cache, ...]
    nics: tuple[Nic, ...]
    gpus: tuple[Gpu, ...]
    switch_path: tuple[str, ...]


def local_hardware(root: Path, environ: Mapping[str, str]) -> Hardware:
    """Looks at this machine, or at the tree recorded under `root`."""
    cpus = _online_cpus(root)
    num_cores, num_sockets = _cores_and_sockets(root, cpus)
    return Hardware(
        cpus=format_ranges(cpus),
        num_cores=num_cores,
        num_sockets=num_sockets,
        memory_nbytes=_meminfo(root / "proc/meminfo"),
        cpu_quota=_cpu_quota(root),
        memory_limit_nbytes=_memory_limit(root),
        numa_nodes=_numa_nodes(root),
        caches=_caches(root, cpus),
        nics=nics(root),
        gpus=gpus(root),
        switch_path=switch_path(environ),
    )


def switch_path(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The switches above this host, top first, from SLURM_TOPOLOGY_ADDR.

    The address ends with the host's own name, which may itself hold dots; the pattern beside it
    ("switch.switch.node") tells how many names stand before it. Without a topology plugin there
    are none.
    """
    address = environ.get("SLURM_TOPOLOGY_ADDR", "")
    pattern = environ.get("SLURM_TOPOLOGY_ADDR_PATTERN", "")
    names = address.split(".")
    above = [kind for kind in pattern.split(".") if kind != "node"] if pattern else names[:-1]
    return tuple(names[: len(above)]) if len(names) > len(above) else ()


def _online_cpus(root: Path) -> tuple[int, ...]:
    system = root / "sys/devices/system/cpu"
    online = parse_ranges(read_text(system / "online"))
    return online or tuple(
        sorted(int(n[3:]) for n in listdir(system) if n[:3] == "cpu" and n[3:].isdigit())
    )


def _cores_and_sockets(root: Path, cpus: tuple[int, ...]) -> tuple[int, int]:
    """Counts distinct sibling sets and packages; 0 for what is hidden."""
    num_cores = 0
    seen: set[int] = set()
    sockets: set[int] = set()
    for cpu in cpus:
        directory = f"{root}/sys/devices/system/cpu/cpu{cpu}/topology"
        sockets.add(read_int(f"{directory}/physical_package_id"))
        if cpu in seen:
            continue
        siblings = parse_ranges(read_text(f"{directory}/thread_siblings_list"))
        if siblings:
            num_cores += 1
            seen.update(siblings)
    return num_cores, len(sockets - {-1})


def _numa_nodes(root: Path) -> tuple[NumaNode, ...]:
    system = root / "sys/devices/system/node"
    numbers = sorted(int(n[4:]) for n in listdir(system) if n[:4] == "node" and n[4:].isdigit())
    return tuple(
        NumaNode(
            number,
            format_ranges(parse_ranges(read_text(system / f"node{number}/cpulist"))),
            _meminfo(system / f"node{number}/meminfo"),
            _distances(system / f"node{number}/distance"),
        )
        for number in numbers
    )


def _distances(path: Path) -> tuple[int, ...]:
    return tuple(int(word) for word in read_text(path).split() if word.isdigit())


def _meminfo(path: Path) -> int:
    """The MemTotal line in bytes; the per-NUMA-node form puts "Node 0" before it."""
    for line in read_text(path).splitlines():
        _, found, rest = line.partition("MemTotal:")
        fields = rest.split()
        if found and fields and fields[0].isdigit():
            return int(fields[0]) << 10
    return 0


def _caches(root: Path, cpus: tuple[int, ...]) -> tuple[Cache, ...]:
    """Visits each cache once: CPUs already covered by a cache of the same index are skipped.

    Hundreds of CPUs make thousands of files, so their paths are plain text: Path costs as much as
    the reading.
    """
    groups: dict[tuple[int, str, int, int], list[tuple[int, ...]]] = {}
    covered: dict[str, set[int]] = {}
    for cpu in cpus:
        directory = f"{root}/sys/devices/system/cpu/cpu{cpu}/cache"
        for index in listdir(directory):
            if not index.startswith("index") or cpu in covered.setdefault(index, set()):
                continue
            entry = f"{directory}/{index}"
            shared = parse_ranges(read_text(f"{entry}/shared_cpu_list")) or (cpu,)
            covered[index].update(shared)
            key = (
                read_int(f"{entry}/level", 0),
                read_text(f"{entry}/type").lower(),
                _cache_nbytes(read_text(f"{entry}/size")),
                read_int(f"{entry}/coherency_line_size", 0),
            )
            groups.setdefault(key, []).append(shared)
    return tuple(
        Cache(*key, groups=tuple(format_ranges(shared) for shared in sorted(groups[key])))
        for key in sorted(groups)
    )


def _cache_nbytes(text: str) -> int:
    """Bytes of a size such as "32K" (the kernel's K is 1024)."""
    number, unit = (text[:-1], text[-1].upper()) if text[-1:].isalpha() else (text, "")
    return int(number) * _UNITS[unit] if number.isdigit() and unit in _UNITS else 0


def _cgroup_directories(root: Path, controller: str) -> list[Path]:
    """The directories whose limits bind this process, its own cgroup first, then those above it.

    A container often sees its own cgroup mounted as the root of /sys/fs/cgroup while
    /proc/self/cgroup still tells the path outside, so the mount itself always counts. An empty
    `controller` means version 2.
    """
    mount = root / "sys/fs/cgroup"
    for line in read_text(root / "proc/self/cgroup").splitlines():
        fields = line.split(":", 2)
        if len(fields) == 3 and controller in fields[1].split(","):
            inside = [part for part in fields[2].split("/") if part not in ("", "..")]
            top = mount / fields[1] if controller else mount
            top = top if top.is_dir() else mount / controller
            return [top.joinpath(*inside[:end]) for end in range(len(inside), -1, -1)]
    return []


def _cpu_quota(root: Path) -> float | None:
    """The smallest CPU quota on the way up, in CPUs; None where there is none."""
    quotas = []
    for directory in _cgroup_directories(root, ""):
        fields = read_text(directory / "cpu.max").split()
        if len(fields) == 2 and all(f.isdigit() for f in fields) and int(fields[1]) > 0:
            quotas.append(int(fields[0]) / int(fields[1]))
    for directory in _cgroup_directories(root, "cpu"):
        quota = read_int(directory / "cpu.cfs_quota_us")
        period = read_int(directory / "cpu.cfs_period_us")
        if quota > 0 and period > 0:
            quotas.append(quota / period)
    return min(quotas, default=None)


def _memory_limit(root: Path) -> int | None:
    """The smallest memory limit on the way up, in bytes; None where there is none."""
    limits = [read_int(d / "memory.max") for d in _cgroup_directories(root, "")]
    limits += [read_int(d / "memory.limit_in_bytes") for d in _cgroup_directories(root, "memory")]
    return min((limit for limit in limits if 0 <= limit < _UNLIMITED), default=None)
