"""The launcher's variables against MPI: what each launcher leaves behind, right and wrong."""

from __future__ import annotations

import os
import warnings

import pytest

from hierring.environment import check_launcher, usable_cpus
from hierring.errors import ConfigurationError

# What a process finds, by how it was started for four ranks.
MPICH = {"PMI_RANK": "2", "PMI_SIZE": "4", "PMI_FD": "9"}
OPENMPI = {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "PMIX_RANK": "2"}
MVAPICH = {"MV2_COMM_WORLD_RANK": "2", "MV2_COMM_WORLD_SIZE": "4"}
STEP = {
    "SLURM_JOB_ID": "7",
    "SLURM_NTASKS": "4",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_PROCID": "2",
}
SRUN_PMI2 = STEP | MPICH
SRUN_PMIX = STEP | {"PMIX_RANK": "2"}
BATCH = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_PROCID": "0"}
SHELL_STEP = STEP | {"SLURM_NTASKS": "1", "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}
TORCHRUN = {"WORLD_SIZE": "4", "RANK": "2", "LOCAL_RANK": "2", "TORCHELASTIC_RUN_ID": "none"}
TORCH_SPAWN = {"WORLD_SIZE": "4", "RANK": "2"}

AGREEING = {
    "alone": (1, {}),
    "mpiexec of MPICH": (4, MPICH),
    "mpiexec of Open MPI": (4, OPENMPI),
    "MVAPICH": (4, MVAPICH),
    "srun with pmi2": (4, SRUN_PMI2),
    "srun with pmix": (4, SRUN_PMIX),
    "srun -n 1": (1, SHELL_STEP),
    "mpiexec in a batch script, fewer ranks than tasks": (2, BATCH | {"PMI_SIZE": "2"}),
    "mpiexec in a batch script, more ranks than tasks": (8, BATCH | {"PMI_SIZE": "8"}),
    "mpirun in a shell that srun started": (4, SHELL_STEP | OPENMPI),
    "an unknown launcher in a shell that srun started": (4, SHELL_STEP),
    "an unknown launcher in a batch script": (3, BATCH),
    "step smaller than its job": (2, STEP | {"SLURM_NTASKS": "8", "SLURM_STEP_NUM_TASKS": "2"}),
    "mpiexec of MPICH called by a rank of Open MPI": (2, OPENMPI | {"PMI_SIZE": "2"}),
    "srun with pmix called by a single rank of Open MPI": (
        4,
        SRUN_PMIX | {"OMPI_COMM_WORLD_SIZE": "1"},
    ),
    "world size of torch and MPI agree": (4, TORCH_SPAWN | MPICH),
    "a notebook's WORLD_SIZE without a rank": (1, {"WORLD_SIZE": "4"}),
    "a pod's WORLD_SIZE under mpiexec": (4, MPICH | {"WORLD_SIZE": "2", "RANK": "0"}),
    "variables that hold no number": (
        1,
        {"PMI_SIZE": "", "OMPI_COMM_WORLD_SIZE": "x", "RANK": "0"},
    ),
    "variables that hold a strange number": (1, {"PMI_SIZE": "-4", "SLURM_NTASKS": "0"}),
}

CONTRADICTING = {
    # srun with a PMI that this MPI does not speak: N worlds of one
    "srun --mpi=none": (1, STEP, "SLURM_NTASKS=4", "srun --mpi=pmi2"),
    "srun --mpi=pmi2, MPI wants pmix": (1, SRUN_PMI2, "PMI_SIZE=4", "srun --mpi=pmix"),
    "srun --mpi=pmix, MPI wants pmi2": (1, SRUN_PMIX, "SLURM_NTASKS=4", "srun --mpi=list"),
    "step that joined in part": (2, STEP, "SLURM_NTASKS=4", "srun --mpi=list"),
    # step variables go before those of the job
    "wrong step of a larger job": (
        1,
        STEP | {"SLURM_NTASKS": "8", "SLURM_STEP_NUM_TASKS": "2"},
        "SLURM_STEP_NUM_TASKS=2",
        "srun --mpi=pmix",
    ),
    "step that counts no tasks": (
        1,
        {"SLURM_NTASKS": "4", "SLURM_STEP_ID": "0"},
        "SLURM_NTASKS=4",
        "srun --mpi=list",
    ),
    # the mpiexec of one MPI, the library of another
    "mpirun on the host, other MPI in the container": (
        1,
        OPENMPI,
        "OMPI_COMM_WORLD_SIZE=4",
        "mpiexec that belongs to that library",
    ),
    "mpiexec of MPICH, library of Open MPI": (1, MPICH, "PMI_SIZE=4", "belongs to that library"),
    "MVAPICH's launcher": (1, MVAPICH, "MV2_COMM_WORLD_SIZE=4", "belongs to that library"),
    "mpirun in a shell that srun started, other MPI": (
        1,
        SHELL_STEP | OPENMPI,
        "OMPI_COMM_WORLD_SIZE=4",
        "belongs to that library",
    ),
    # torch's launchers
    "torchrun": (1, TORCHRUN, "WORLD_SIZE=4", "mpiexec -n 4"),
    "mp.spawn": (1, TORCH_SPAWN, "WORLD_SIZE=4", "mpiexec -n 4"),
    "torchrun under mpiexec": (
        2,
        {"PMI_SIZE": "2"} | TORCHRUN,
        "WORLD_SIZE=4",
        "started by torchrun",
    ),
}


@pytest.mark.parametrize(("world_size", "environ"), AGREEING.values(), ids=AGREEING.keys())
def test_agreement_is_quiet(world_size, environ):
    check_launcher(world_size, environ)


@pytest.mark.parametrize(
    ("world_size", "environ", "claim", "remedy"), CONTRADICTING.values(), ids=CONTRADICTING.keys()
)
def test_contradiction_names_variable_numbers_and_remedy(world_size, environ, claim, remedy):
    with pytest.raises(ConfigurationError) as caught:
        check_launcher(world_size, environ)
    text = str(caught.value)
    assert text.startswith(f"{claim}, but MPI's COMM_WORLD has {world_size} process")
    assert remedy in text
    assert "HIERRING_CHECK_LAUNCHER=0" in text
    assert "\n" not in text


def test_forgotten_srun_is_a_warning():
    """One process alone in an allocation may be meant, so it goes on."""
    with pytest.warns(RuntimeWarning, match="SLURM_NTASKS=4.*`srun`"):
        check_launcher(1, BATCH)


def test_single_task_job_is_quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_launcher(1, {"SLURM_NTASKS": "1"})


def test_environment_of_this_process_is_the_default(monkeypatch):
    for variable in list(os.environ):
        if variable.startswith(("PMI", "OMPI", "MV2", "SLURM", "TORCH")):
            monkeypatch.delenv(variable)
    monkeypatch.setenv("PMI_SIZE", "3")
    check_launcher(3)
    with pytest.raises(ConfigurationError, match="PMI_SIZE=3"):
        check_launcher(1)


@pytest.mark.parametrize(
    ("cpus", "quota", "environ", "count"),
    [
        ({0}, None, {}, 1),
        (range(8), None, {}, 8),
        (range(8), 2.0, {}, 2),
        (range(8), 1.5, {}, 2),
        (range(8), 0.1, {}, 1),
        (range(8), None, {"SLURM_CPUS_PER_TASK": "3"}, 3),
        ({5}, None, {"SLURM_CPUS_PER_TASK": "3"}, 1),
        (range(8), 4.0, {"SLURM_CPUS_PER_TASK": "nonsense"}, 4),
        ((), None, {}, 1),
    ],
)
def test_usable_cpus_is_the_smallest_limit(cpus, quota, environ, count):
    assert usable_cpus(list(cpus), quota, environ) == count


def test_usable_cpus_follow_this_process_affinity():
    before = os.sched_getaffinity(0)
    assert usable_cpus(environ={}) == len(before)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert usable_cpus(environ={}) == 1
    finally:
        os.sched_setaffinity(0, before)
