"""Judgements on MPI: the library, who started it, and what it lets hierring do."""

from __future__ import annotations

import pytest

from hierring._testing.examinations import fake_job, fake_view, healthy_job
from hierring.launch.doctor import check_mpi
from hierring.launch.doctor.findings import gather
from hierring.launch.doctor.view import Mpiexec
from hierring.topology import Gpu

OPENMPI = {"vendor": "openmpi", "description": "Open MPI 5.0.11"}
OPENMPI_STARTED = {"started_by": "prted", "environ": {"OMPI_COMM_WORLD_SIZE": "4"}}
GPU = (Gpu("0000:01:00.0", "NVIDIA", "H200", None),)


def bad(check, job):
    """The one finding of a check that is not "ok"."""
    (finding,) = [found for found in gather(check(job)) if found.level != "ok"]
    return finding


def alone(**changes):
    return fake_job([fake_view(**changes)])


@pytest.mark.parametrize("check", check_mpi.CHECKS)
def test_a_healthy_job_is_well(check):
    assert [found for found in check(healthy_job()) if found.level != "ok"] == []


@pytest.mark.parametrize("check", check_mpi.CHECKS)
def test_nothing_is_claimed_of_an_mpi_that_does_not_run(check):
    assert list(check(alone(mpi=None))) == []


def test_library_is_named_with_its_file():
    (found,) = check_mpi.library(alone())
    assert "MPICH 5.0.2 (MPI 5.0), /opt/mpich/lib/libmpi.so.12" in found.what


def test_two_libraries_in_one_process():
    found = bad(check_mpi.library, alone(files=("/conda/libmpi.so.40", "/usr/libmpi.so.12")))
    assert found.level == "warning"
    assert "/conda/libmpi.so.40, /usr/libmpi.so.12" in found.what


def test_ranks_with_different_libraries():
    views = [fake_view(0, size=2), fake_view(1, size=2, **OPENMPI)]
    found = bad(check_mpi.library, fake_job(views))
    assert found.level == "error"
    assert "MPICH 5.0.2, Open MPI 5.0.11" in found.what


LAUNCHES = {
    "another launcher": {"environ": {"OMPI_COMM_WORLD_SIZE": "4"}},
    "torchrun": {"environ": {"WORLD_SIZE": "4", "RANK": "2"}},
    "srun without PMI": {"environ": {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4"}},
}


@pytest.mark.parametrize("changes", LAUNCHES.values(), ids=LAUNCHES)
def test_launcher_that_counts_more_ranks_than_mpi(changes):
    found = bad(check_mpi.launch, alone(**changes))
    assert found.level == "error"
    assert "=4, but MPI's COMM_WORLD has 1 process" in found.what
    assert found.remedy
    assert "HIERRING_CHECK_LAUNCHER" not in found.remedy


def test_one_process_in_an_allocation_for_four():
    found = bad(check_mpi.launch, alone(environ={"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4"}))
    assert found.level == "warning"
    assert "forgotten" in found.what


def test_ranks_are_counted_though_some_are_out_of_reach():
    (found,) = check_mpi.launch(fake_job([fake_view(size=8)]))
    assert found.what == "8 ranks by MPI's count; started by hydra_pmi_proxy"


def test_launcher_of_another_mpi():
    right = Mpiexec("/opt/mpich/bin/mpiexec", "mpich", "5.0.2")
    wrong = Mpiexec("/usr/bin/mpiexec", "openmpi", "4.1")
    found = bad(check_mpi.launcher_match, alone(mpiexecs=(wrong, right), **OPENMPI_STARTED))
    assert found.level == "error"
    assert "the launcher of Open MPI" in found.what
    assert "the mpiexec of MPICH, for example /opt/mpich/bin/mpiexec" in found.remedy


@pytest.mark.parametrize("vendor", ["mpich", "impi", "mvapich", ""])
def test_hydra_starts_mpich_and_its_kin(vendor):
    job = alone(started_by="hydra_pmi_proxy", vendor=vendor)
    assert [found.level for found in check_mpi.launcher_match(job)] == ["ok"]


def test_hydra_does_not_start_open_mpi():
    job = alone(started_by="hydra_pmi_proxy", **OPENMPI)
    assert bad(check_mpi.launcher_match, job).level == "error"


def test_mpiexec_on_path_of_another_mpi():
    others = (Mpiexec("/conda/bin/mpiexec", "openmpi", "4.1"),)
    found = bad(check_mpi.mpiexec, alone(mpiexecs=others))
    assert found.level == "error"
    assert "/conda/bin/mpiexec (Open MPI 4.1), is not of MPICH 5.0.2" in found.what


def test_no_mpiexec_at_all():
    assert bad(check_mpi.mpiexec, alone(mpiexecs=())).level == "note"
    assert list(check_mpi.mpiexec(alone(mpiexecs=(), pmi_plugins=("pmi2",)))) == []


PLUGINS = {
    "mpich": ("mpich", ("none", "pmi2"), "--mpi=pmi2"),
    "impi": ("impi", ("pmi2", "pmix"), "--mpi=pmi2"),
    "openmpi": ("openmpi", ("none", "pmix_v4"), "--mpi=pmix_v4"),
}


@pytest.mark.parametrize(("vendor", "plugins", "option"), PLUGINS.values(), ids=PLUGINS)
def test_plugin_of_srun(vendor, plugins, option):
    (found,) = check_mpi.slurm(alone(vendor=vendor, pmi_plugins=plugins))
    assert found.level == "ok"
    assert option in found.what


@pytest.mark.parametrize(("environ", "level"), [({}, "warning"), ({"SLURM_JOB_ID": "7"}, "error")])
def test_srun_without_the_plugin(environ, level):
    job = alone(pmi_plugins=("none", "pmix"), environ=environ)
    found = bad(check_mpi.slurm, job)
    assert found.level == level
    assert "no plugin pmi2, which MPICH 5.0.2 needs; it has none, pmix" in found.what


def test_unknown_mpi_under_srun():
    assert bad(check_mpi.slurm, alone(vendor="", pmi_plugins=("pmi2",))).level == "note"


def test_contradicting_slurm_variables():
    environ = {"SLURM_JOB_ID": "7", "SLURM_TASKS_PER_NODE": "2(x2)", "SLURM_NTASKS": "8"}
    found = bad(check_mpi.allocation, alone(environ=environ))
    assert "SLURM_NTASKS=8" in found.what
    environ = {"SLURM_JOB_ID": "7", "SLURM_TASKS_PER_NODE": "many"}
    assert "'many'" in bad(check_mpi.allocation, alone(environ=environ)).what


@pytest.mark.parametrize("level", ["single", "funneled"])
def test_low_thread_level(level):
    found = bad(check_mpi.threads, alone(thread_level=level))
    assert found.level == "warning"
    assert level in found.what


@pytest.mark.parametrize(("cuda", "word"), [(False, "does not take"), (None, "does not say")])
def test_gpus_and_an_mpi_without_cuda(cuda, word):
    found = bad(check_mpi.cuda, alone(cuda=cuda, gpus=GPU))
    assert found.level == "note"
    assert word in found.what


def test_gpus_and_an_mpi_with_cuda():
    assert [found.level for found in check_mpi.cuda(alone(cuda=True, gpus=GPU))] == ["ok"]
    assert list(check_mpi.cuda(alone(cuda=True))) == []
