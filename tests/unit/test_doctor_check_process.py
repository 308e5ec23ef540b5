"""Judgements on what a process has at hand: settings, kernels, torch, rights."""

from __future__ import annotations

import pytest

from hierring._testing.examinations import fake_job, fake_view, healthy_job
from hierring.launch.doctor import check_process
from hierring.launch.doctor.findings import gather
from hierring.topology import Gpu

AVX512 = frozenset(
    {"avx2", "f16c", "fma", "avx512f", "avx512bw", "avx512dq", "avx512vl"},
)
GPU = (Gpu("0000:01:00.0", "NVIDIA", "H200", None),)


def bad(check, job):
    """The one finding of a check that is not "ok"."""
    (finding,) = [found for found in gather(check(job)) if found.level != "ok"]
    return finding


def pair(first, second):
    """Two ranks with these changes."""
    return fake_job([fake_view(0, size=2, **first), fake_view(1, size=2, **second)])


def alone(**changes):
    return fake_job([fake_view(**changes)])


@pytest.mark.parametrize("check", check_process.CHECKS)
def test_a_healthy_job_is_well(check):
    assert [found for found in check(healthy_job()) if found.level != "ok"] == []


def test_settings_that_an_init_would_refuse():
    found = bad(check_process.settings, pair({}, {"settings_error": "unknown variable HIERRING_X"}))
    assert (found.level, found.ranks) == ("error", (1,))
    assert found.what == "unknown variable HIERRING_X"


def test_build_without_the_kernels_of_the_cpu():
    found = bad(check_process.simd, alone(cpu_features=AVX512))
    assert "can run avx512 kernels, and this build has scalar, avx2" in found.what
    plain = alone(simd_levels=("scalar",))
    assert "can run avx2 kernels" in bad(check_process.simd, plain).what


def test_cpu_that_lacks_one_feature_of_a_level():
    job = alone(cpu_features=AVX512 - {"avx512dq"})
    assert [found.level for found in check_process.simd(job)] == ["ok"]


def test_cpus_of_different_make():
    first = {"cpu_features": AVX512, "simd_levels": ("scalar", "avx2", "avx512")}
    assert "avx2, avx512" in bad(check_process.simd, pair(first, {})).what


def test_torch_is_named_with_nccl():
    packages = {"torch": "2.13.0", "nvidia-nccl-cu13": "2.28"}
    (found,) = check_process.torch(alone(packages=packages, gpus=GPU))
    assert (found.level, found.what) == ("ok", "torch 2.13.0, nvidia-nccl-cu13 2.28")


def test_torch_that_cannot_use_the_gpus():
    found = bad(check_process.torch, alone(packages={"torch": "2.13.0+cpu"}, gpus=GPU))
    assert "1 NVIDIA GPU, and torch 2.13.0+cpu can't use it" in found.what


@pytest.mark.parametrize(
    ("other", "listed"), [({}, "2.13.0, none"), ({"torch": "3.0"}, "2.13.0, 3.0")]
)
def test_ranks_with_different_torch(other, listed):
    found = bad(check_process.torch, pair({"packages": {"torch": "2.13.0"}}, {"packages": other}))
    assert listed in found.what


def test_kernel_that_refuses_the_memory_of_peers():
    views = [fake_view(rank, size=2, ptrace_scope=1) for rank in range(2)]
    found = bad(check_process.memory_of_peers, fake_job(views, readable=(False, None)))
    assert (found.level, found.ranks) == ("note", (0,))
    assert "Yama's ptrace_scope is 1" in found.what
    assert "MPIR_CVAR_CH4_CMA_ENABLE=0" in found.remedy
