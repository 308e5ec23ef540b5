"""What one rank sees of itself, its MPI and its machine; local, and never raises for a gap."""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import re
import resource
import shutil
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from hierring import _core
from hierring._version import __version__
from hierring.config import Config
from hierring.errors import ConfigurationError
from hierring.launch.doctor import launchers, processes
from hierring.launch.doctor.leftovers import find_leftovers
from hierring.launch.doctor.view import Mpi, SharedMemory, View
from hierring.launch.mpi import vendor_of
from hierring.launch.slurm.pmi import available_plugins
from hierring.topology import local_facts
from hierring.topology.sysfs import parse_ranges, read_int, read_text

__all__ = ["look", "running_mpi", "within"]

T = TypeVar("T")

#: The variables that judgements are made of. Not all: some of a job's carry secrets.
VARIABLES = (
    *("PMI_SIZE", "PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE"),
    *("SLURM_JOB_ID", "SLURM_NTASKS", "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS"),
    *("SLURM_JOB_NODELIST", "SLURM_STEP_NODELIST", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    *("SLURM_STEP_NUM_NODES", "SLURM_TASKS_PER_NODE", "SLURM_STEP_TASKS_PER_NODE"),
    *("SLURM_CPUS_PER_TASK", "SLURM_PROCID", "SLURM_NPROCS", "SLURM_NODELIST"),
    *("WORLD_SIZE", "RANK", "TORCHELASTIC_RUN_ID"),
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"),
    *("OMPI_MCA_btl_tcp_if_include", "FI_TCP_IFACE", "FI_SOCKETS_IFACE", "UCX_NET_DEVICES"),
    *("RDMAV_FORK_SAFE", "IBV_FORK_SAFE"),
)
PACKAGES = ("mpi4py", "numpy", "torch")
_NCCL = re.compile(r"nvidia-nccl-cu\d+")
#: What the kernels of the compiled core ask of a CPU.
FEATURES = (
    *("avx2", "f16c", "fma"),
    *("avx512f", "avx512bw", "avx512dq", "avx512vl"),
)

RESOLVE_S = 3.0
SRUN_S = 10.0


def look(rank: int, mpi: Mpi | None, *, thorough: bool) -> View:
    """See what there is to see here.

    Args:
        rank: what to call this rank.
        mpi: from `running_mpi`; None where MPI does not run.
        thorough: also run the programs that one rank may as well run for all.
    """
    line = processes.ancestors()
    pids = [pid for pid, _ in line] or [os.getpid()]
    facts = local_facts(rank)
    online = parse_ranges(facts.hardware.cpus)
    return View(
        facts=facts,
        network=_network(),
        version=__version__,
        environ={name: os.environ[name] for name in VARIABLES if name in os.environ},
        settings_error=_settings_error(),
        mpi=mpi,
        packages=_packages(),
        shared_memory=_shared_memory(),
        leftovers=find_leftovers(),
        ancestors=tuple(pids),
        started_by=processes.starter(line),
        strangers=processes.strangers(facts.cpus, online, pids),
        resolves=within(RESOLVE_S, lambda: _resolve(facts.hostname)),
        cpu_features=_cpu_features(),
        simd_levels=tuple(_core.simd_levels()),
        memlock_nbytes=_memlock(),
        ptrace_scope=read_int("/proc/sys/kernel/yama/ptrace_scope"),
        mpiexecs=launchers.mpiexecs() if thorough else (),
        pmi_plugins=_pmi_plugins() if thorough else None,
    )


def running_mpi() -> Mpi:
    """Start MPI if it is not, and ask it about itself; nothing collective beyond the start."""
    from mpi4py import MPI

    name, version = MPI.get_vendor()
    files = _library_files()
    levels = {
        MPI.THREAD_SINGLE: "single",
        MPI.THREAD_FUNNELED: "funneled",
        MPI.THREAD_SERIALIZED: "serialized",
        MPI.THREAD_MULTIPLE: "multiple",
    }
    return Mpi(
        vendor=vendor_of(MPI.Get_library_version()) or name.lower().replace("unknown", ""),
        description=f"{name} {'.'.join(map(str, version))}",
        standard=".".join(map(str, MPI.Get_version())),
        files=files,
        thread_level=levels[MPI.Query_thread()],
        cuda=_cuda(files),
        size=MPI.COMM_WORLD.Get_size(),
        rank=MPI.COMM_WORLD.Get_rank(),
    )


def within(seconds: float, call: Callable[[], T]) -> T | None:
    """What a call returns that may block for ever; None if it takes longer, or raises.

    The thread that waits in it is left behind: it does not keep the process from ending.
    """
    result: list[T] = []

    def run() -> None:
        try:
            result.append(call())
        except Exception:
            return

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    return result[0] if result else None


def _library_files() -> tuple[str, ...]:
    """The MPI libraries mapped into this process (libmpi.so.12, libmpi.so.40, libmpich.so...)."""
    maps = Path("/proc/self/maps")
    try:
        lines = maps.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ()
    paths = {line.split(None, 5)[5] for line in lines if line.count(" ") >= 5 and "/" in line}
    return tuple(sorted(p for p in paths if re.match(r"libmpi(ch|_abi)?[.\-]", Path(p).name)))


def _cuda(files: tuple[str, ...]) -> bool | None:
    """What the library itself says; MPI knows no such question, some libraries do."""
    for file in files:
        try:
            query: Any = ctypes.CDLL(file).MPIX_Query_cuda_support
        except (OSError, AttributeError):
            continue
        return bool(query())
    return None


def _pmi_plugins() -> tuple[str, ...] | None:
    """What srun can start ranks by; None where there is no srun, or no answer from it."""
    return within(SRUN_S, available_plugins) if shutil.which("srun") else None


def _network() -> int:
    """The number of this process's network namespace; 0 where it is hidden."""
    try:
        return Path("/proc/self/ns/net").stat().st_ino
    except OSError:
        return 0


def _settings_error() -> str:
    try:
        Config.from_env()
    except ConfigurationError as error:
        return str(error)
    return ""


def _packages() -> dict[str, str]:
    """Versions of what is installed; nothing is imported, torch alone would take seconds."""
    found: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        name = (distribution.metadata["Name"] or "").lower()
        if name in PACKAGES or _NCCL.fullmatch(name):
            found.setdefault(name, distribution.version)
    return found


def _shared_memory() -> SharedMemory:
    directory = Path("/dev/shm")
    try:
        mode = directory.stat().st_mode & 0o7777
    except OSError:
        return SharedMemory("", 0, False)
    return SharedMemory(_filesystem(str(directory)), mode, os.access(directory, os.W_OK | os.X_OK))


def _filesystem(directory: str) -> str:
    """The type of the last mount on this very directory; "" where there is none."""
    kinds = [
        fields[2]
        for fields in (line.split() for line in read_text("/proc/self/mounts").splitlines())
        if len(fields) > 2 and fields[1] == directory
    ]
    return kinds[-1] if kinds else ""


def _resolve(hostname: str) -> tuple[str, ...]:
    """The addresses of the own name; empty where it has none."""
    try:
        answers = socket.getaddrinfo(hostname, None, type=socket.SOCK_STREAM)
    except OSError:
        return ()
    return tuple(sorted({str(address[0]) for *_, address in answers}))


def _cpu_features() -> frozenset[str]:
    for line in read_text("/proc/cpuinfo").splitlines():
        name, _, rest = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return frozenset(rest.split()) & frozenset(FEATURES)
    return frozenset()


def _memlock() -> int | None:
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return None if soft == resource.RLIM_INFINITY else soft
