"""What the launcher's variables say, held against what MPI and the kernel say.

Under SLURM with the wrong PMI, under the `mpiexec` of another MPI, or under torchrun, N processes
start and each of them is a world of one: N jobs do the same work and nobody says so.
`check_launcher` does.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from hierring.errors import ConfigurationError, HierringError

__all__ = ["INTERFACE_SETTINGS", "check_launcher", "check_running", "usable_cpus"]

#: How each MPI is told which network interface to use: it goes into errors and findings.
INTERFACE_SETTINGS = (
    "OMPI_MCA_btl_tcp_if_include=eth0 (Open MPI), FI_TCP_IFACE=eth0 and mpiexec -iface eth0 "
    "(MPICH, Intel MPI), UCX_NET_DEVICES=eth0 (UCX)"
)

# Set by those who start MPI ranks themselves, so as close to the truth as variables get.
_MPI_LAUNCHERS = {
    "OMPI_COMM_WORLD_SIZE": "Open MPI's mpiexec",
    "PMI_SIZE": "a PMI launcher (the mpiexec of MPICH or Intel MPI, or srun --mpi=pmi2)",
    "MV2_COMM_WORLD_SIZE": "MVAPICH's launcher",
}
_OVERRIDE = "HIERRING_CHECK_LAUNCHER=0 starts all the same."


class _Claim(NamedTuple):
    """What one variable says the number of ranks is."""

    variable: str
    size: int


def check_launcher(world_size: int, environ: Mapping[str, str] = os.environ) -> None:
    """Compare the launcher's variables with the size of COMM_WORLD; local, and quiet if they agree.

    A variable of an MPI launcher that agrees settles it, whatever an outer SLURM job or an outer
    launcher has left in the environment; so does a SLURM step of several tasks that agrees. SLURM's
    step variables go before those of the job, and never count against a world larger than they say:
    that is a launcher of its own inside the allocation.

    Args:
        world_size: of MPI's COMM_WORLD, not of a smaller communicator.
        environ: the variables.

    Raises:
        ConfigurationError: they contradict MPI; names the variable, both numbers and the remedy.

    Warns:
        RuntimeWarning: one process alone in an allocation for several tasks, as when `srun` was
            forgotten in a batch script. It may be wanted, so it is no error.
    """
    by_mpi = list(_claims(environ, _MPI_LAUNCHERS))
    step = _step_tasks(environ)
    # A step of one task proves nothing: it may be a shell that the real launcher was called from.
    agreed = world_size in [claim.size for claim in by_mpi] or 1 < world_size == step
    _check_torchrun(world_size, environ, agreed)
    if agreed:
        return
    if by_mpi:
        _refuse_mpi_launcher(by_mpi[0], world_size, environ)
    _check_slurm(world_size, environ)


def usable_cpus(
    cpus: Collection[int] | None = None,
    cpu_quota: float | None = None,
    environ: Mapping[str, str] = os.environ,
) -> int:
    """How many threads this process can keep busy: never the machine's count, at least 1.

    Args:
        cpus: the affinity set; this process's own if None.
        cpu_quota: CPUs' worth of time the cgroup grants, None for no limit.
        environ: where SLURM_CPUS_PER_TASK is looked for.
    """
    count = len(os.sched_getaffinity(0) if cpus is None else cpus)
    if cpu_quota is not None:
        count = min(count, math.ceil(cpu_quota))
    per_task = _number(environ, "SLURM_CPUS_PER_TASK")
    if per_task is not None:
        count = min(count, per_task)
    return max(1, count)


def _number(environ: Mapping[str, str], variable: str) -> int | None:
    """A variable as a positive number; None where it is absent or says something else."""
    text = environ.get(variable, "").strip()
    return int(text) if text.isascii() and text.isdigit() and int(text) > 0 else None


def _claims(environ: Mapping[str, str], variables: Collection[str]) -> Iterator[_Claim]:
    for variable in variables:
        size = _number(environ, variable)
        if size is not None:
            yield _Claim(variable, size)


def _contradiction(claim: _Claim, world_size: int, remedy: str) -> ConfigurationError:
    started = "process" if world_size == 1 else "processes"
    return ConfigurationError(
        f"{claim.variable}={claim.size}, but MPI's COMM_WORLD has {world_size} {started}. "
        f"{remedy} {_OVERRIDE}"
    )


def _refuse_mpi_launcher(claim: _Claim, world_size: int, environ: Mapping[str, str]) -> None:
    """The launcher started MPI ranks, and the MPI that mpi4py loads does not know of it."""
    remedy = (
        f"The ranks were started by {_MPI_LAUNCHERS[claim.variable]}, but mpi4py loads another MPI "
        "library: use the mpiexec that belongs to that library (in a container, its own)."
    )
    if _step_tasks(environ) is not None:
        remedy = f"{remedy} {_SRUN_REMEDY}"
    raise _contradiction(claim, world_size, remedy)


_SRUN_REMEDY = (
    "Start with the PMI that your MPI was built for: `srun --mpi=pmi2` (MPICH, Intel MPI) or "
    "`srun --mpi=pmix` (Open MPI); `srun --mpi=list` shows what this cluster has."
)


def _step_tasks(environ: Mapping[str, str]) -> int | None:
    """Tasks of the job step that this process was started by; None outside a step."""
    return _number(environ, "SLURM_STEP_NUM_TASKS")


def _check_slurm(world_size: int, environ: Mapping[str, str]) -> None:
    step = _step_tasks(environ)
    if step is not None:
        if world_size < step:
            # srun says the same in SLURM_NTASKS, which is the name that people know.
            known = _number(environ, "SLURM_NTASKS") == step
            claim = _Claim("SLURM_NTASKS" if known else "SLURM_STEP_NUM_TASKS", step)
            raise _contradiction(claim, world_size, _SRUN_REMEDY)
        return
    job = _number(environ, "SLURM_NTASKS")
    if job is None or world_size >= job:
        return
    if "SLURM_STEP_ID" in environ:  # a task of a step, from a SLURM that does not count them
        raise _contradiction(_Claim("SLURM_NTASKS", job), world_size, _SRUN_REMEDY)
    if world_size == 1:
        warnings.warn(
            f"SLURM_NTASKS={job}, but this is one process alone: was `srun` (or mpiexec) forgotten "
            "in the batch script?",
            RuntimeWarning,
            stacklevel=3,
        )


def _check_torchrun(world_size: int, environ: Mapping[str, str], agreed: bool) -> None:
    """WORLD_SIZE counts with torchrun's run id, or with a RANK while no MPI launcher agrees.

    Otherwise it is too common a name: a notebook or a pod may carry it for another purpose.
    """
    size = _number(environ, "WORLD_SIZE")
    by_torchrun = "TORCHELASTIC_RUN_ID" in environ
    counts = by_torchrun or ("RANK" in environ and not agreed)
    if size is None or size == world_size or not counts:
        return
    starter = "torchrun" if by_torchrun else "a torch launcher or your own code"
    raise _contradiction(
        _Claim("WORLD_SIZE", size),
        world_size,
        f"The processes were started by {starter}, not by MPI: use `mpiexec -n {size}` or `srun` "
        "(torch.distributed can take its ranks from MPI, not the other way round).",
    )


def check_running() -> None:
    """Refuse to go on where MPI is not up, since every call to it would end the process.

    Raises:
        HierringError: MPI was never started (mpi4py.rc.initialize is off), or has ended.
    """
    from mpi4py import MPI

    if MPI.Is_finalized():
        raise HierringError("MPI has been finalised: hierring can only be used before that")
    if not MPI.Is_initialized():
        raise HierringError(
            "MPI is not started (mpi4py.rc.initialize is off): call MPI.Init_thread() first"
        )
