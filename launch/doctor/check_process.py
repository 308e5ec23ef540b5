"""Judgements on what a process has at hand: settings, kernels, torch, rights. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from hierring.launch.doctor.findings import Finding
from hierring.launch.doctor.view import Job

__all__ = ["CHECKS"]

_AVX2 = frozenset({"avx2", "f16c", "fma"})
_AVX512 = _AVX2 | {"avx512f", "avx512bw", "avx512dq", "avx512vl"}


def settings(job: Job) -> Iterator[Finding]:
    """HIERRING_* variables that an init would refuse."""
    for rank, view in enumerate(job.views):
        if view.settings_error:
            yield Finding(
                "error",
                "settings",
                view.settings_error,
                "An init refuses that.",
                "Correct the variable on all ranks; docs/settings.md lists them.",
                (rank,),
            )


def simd(job: Job) -> Iterator[Finding]:
    """The kernels in use are the best that the CPU can run, and the same everywhere."""
    used = set()
    for rank, view in enumerate(job.views):
        level = view.simd_levels[-1]
        used.add(level)
        best = _best(view.cpu_features)
        if best in ("scalar", *view.simd_levels):
            yield Finding("ok", "kernels", f"arithmetic kernels: {level}", ranks=(rank,))
        else:
            yield Finding(
                "warning",
                "kernels",
                f"the CPU can run {best} kernels, and this build has {', '.join(view.simd_levels)}",
                "Additions take longer than they need.",
                "Install a wheel for this CPU's architecture, or build with a newer compiler.",
                (rank,),
            )
    if len(used) > 1:
        yield Finding(
            "note",
            "kernels",
            f"the ranks' CPUs differ: kernels are {', '.join(sorted(used))}",
            "The slowest CPU sets the pace. The results are the same bits.",
        )


def _best(features: frozenset[str]) -> str:
    if features >= _AVX512:
        return "avx512"
    return "avx2" if features >= _AVX2 else "scalar"


def torch(job: Job) -> Iterator[Finding]:
    """torch and NCCL: there or not, alike on all ranks, and fit for the GPUs."""
    versions = set()
    for rank, view in enumerate(job.views):
        version = view.packages.get("torch")
        versions.add(version)
        nccl = [f"{n} {v}" for n, v in sorted(view.packages.items()) if n.startswith("nvidia-nccl")]
        if version is None:
            yield Finding("ok", "torch", "torch is not installed, nor needed", ranks=(rank,))
            continue
        text = f"torch {version}, {nccl[0] if nccl else 'no NCCL package'}"
        gpus = [gpu for gpu in view.facts.hardware.gpus if gpu.vendor == "NVIDIA"]
        many = f"{len(gpus)} NVIDIA GPU{'' if len(gpus) == 1 else 's'}"
        if gpus and version.endswith("+cpu"):
            yield Finding(
                "warning",
                "torch",
                f"{many}, and torch {version} can't use {'it' if len(gpus) == 1 else 'them'}",
                "Training would run on the CPU.",
                "Install a build of torch with CUDA.",
                (rank,),
            )
        else:
            yield Finding("ok", "torch", text, ranks=(rank,))
    if len(versions) > 1:
        listed = ", ".join(sorted(version or "none" for version in versions))
        yield Finding(
            "warning",
            "torch",
            f"the ranks have different versions of torch: {listed}",
            "Their arithmetic, and so their models, may drift apart.",
            "Install one version on all nodes.",
        )


def memory_of_peers(job: Job) -> Iterator[Finding]:
    """Whether the kernel lets ranks read each other's memory, as MPI likes to do."""
    for rank, (view, readable) in enumerate(zip(job.views, job.readable, strict=False)):
        if readable:
            text = "ranks may read each other's memory (process_vm_readv)"
            yield Finding("ok", "process memory", text, ranks=(rank,))
        if readable is not False:
            continue
        scope = f" (Yama's ptrace_scope is {view.ptrace_scope})" if view.ptrace_scope > 0 else ""
        yield Finding(
            "note",
            "process memory",
            f"the kernel refuses ranks each other's memory{scope}",
            "hierring does not need it. MPI's own messages inside a node are slower without it, "
            "and Open MPI may print errors of process_vm_readv.",
            "export OMPI_MCA_btl_sm_single_copy_mechanism=none (Open MPI), "
            "MPIR_CVAR_CH4_CMA_ENABLE=0 (MPICH), UCX_TLS=^cma (UCX); or in containers "
            "--cap-add=SYS_PTRACE.",
            (rank,),
        )


CHECKS = (settings, simd, torch, memory_of_peers)
