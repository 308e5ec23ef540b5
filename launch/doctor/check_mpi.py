"""Judgements on MPI: the library, who started it, and what it lets hierring do. Pure."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

from hierring.environment import check_launcher
from hierring.errors import ConfigurationError
from hierring.launch.doctor.findings import Finding
from hierring.launch.doctor.view import Job, Mpi, View
from hierring.launch.mpi import VENDORS
from hierring.launch.slurm import read_allocation
from hierring.launch.slurm.pmi import choose_plugin, plugin_family

__all__ = ["CHECKS"]

#: Libraries that read each other's launch protocol (PMI).
_RELATED = frozenset({"mpich", "impi", "mvapich"})


def vendor_name(vendor: str) -> str:
    """A vendor as it calls itself."""
    return VENDORS.get(vendor, vendor or "an unknown MPI")


def related(vendor: str, other: str) -> bool:
    """Whether the launcher of one starts the ranks of the other; true where either is unknown."""
    return not vendor or not other or vendor == other or {vendor, other} <= _RELATED


def _with_mpi(job: Job) -> Iterator[tuple[int, View, Mpi]]:
    for rank, view in enumerate(job.views):
        if view.mpi is not None:
            yield rank, view, view.mpi


def library(job: Job) -> Iterator[Finding]:
    """Which library it is; one for all ranks, and one in each process."""
    descriptions = set()
    for rank, _, mpi in _with_mpi(job):
        file = mpi.files[0] if mpi.files else "a file that /proc does not show"
        descriptions.add(mpi.description)
        yield Finding(
            "ok",
            "mpi library",
            f"MPI library: {mpi.description} (MPI {mpi.standard}), {file}",
            ranks=(rank,),
        )
        if len(mpi.files) > 1:
            yield Finding(
                "warning",
                "mpi library",
                f"one process holds several MPI library files: {', '.join(mpi.files)}",
                "If they are of two installations, calls may reach one that was never started.",
                "Leave one MPI in LD_LIBRARY_PATH and in the environment (conda, module, pip).",
                (rank,),
            )
    if len(descriptions) > 1:
        yield Finding(
            "error",
            "mpi library",
            f"the ranks run different MPI libraries: {', '.join(sorted(descriptions))}",
            "They may not understand each other's messages.",
            "Load the same module, or activate the same environment, on all nodes.",
        )


def packages(job: Job) -> Iterator[Finding]:
    """Versions of hierring and mpi4py."""
    for rank, view, _ in _with_mpi(job):
        mpi4py = view.packages.get("mpi4py", "of unknown version")
        text = f"hierring {view.version}, mpi4py {mpi4py}"
        yield Finding("ok", "versions", text, ranks=(rank,))


def launch(job: Job) -> Iterator[Finding]:
    """The number of ranks by the launcher's variables against that of MPI."""
    agreed: list[int] = []
    size = 0
    for rank, view, mpi in _with_mpi(job):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                check_launcher(mpi.size, view.environ)
            except ConfigurationError as error:
                # The sentence brings its remedy with it; the way round is none for a doctor.
                text = str(error).removesuffix(" HIERRING_CHECK_LAUNCHER=0 starts all the same.")
                what, _, remedy = text.partition(". ")
                yield Finding(
                    "error",
                    "launch",
                    what,
                    "Every process would do the whole work by itself, and none would notice.",
                    remedy,
                    (rank,),
                )
                continue
        for warning in caught:
            yield Finding("warning", "launch", str(warning.message), ranks=(rank,))
        if not caught:
            agreed.append(rank)
            size = mpi.size  # the others may be out of reach
    if agreed:
        by = job.views[agreed[0]].started_by or "no launcher"
        what = f"{size} rank{'s' if size > 1 else ''} by MPI's count; started by {by}"
        yield Finding("ok", "launch", what, ranks=tuple(agreed))


def _launcher_vendor(view: View) -> tuple[str, str]:
    """(whose launcher started a rank, and in words), as its variables and ancestors tell."""
    if "OMPI_COMM_WORLD_SIZE" in view.environ:
        return "openmpi", "the launcher of Open MPI (OMPI_COMM_WORLD_SIZE is set)"
    if view.started_by in ("prted", "prterun", "orted"):
        return "openmpi", f"the launcher of Open MPI ({view.started_by})"
    if view.started_by.startswith("hydra_"):
        return "mpich", f"Hydra, the launcher of MPICH and Intel MPI ({view.started_by})"
    return "", ""


def launcher_match(job: Job) -> Iterator[Finding]:
    """The launcher around the ranks belongs to the library that they load."""
    for rank, view, mpi in _with_mpi(job):
        vendor, starter = _launcher_vendor(view)
        if not vendor:
            continue
        fits = related(vendor, mpi.vendor)
        if fits:
            yield Finding("ok", "launcher", f"{starter} fits {mpi.description}", ranks=(rank,))
            continue
        # A contradiction in numbers is told by `launch`; with one rank there is none.
        yield Finding(
            "error",
            "launcher",
            f"{starter} has started a program that loads {mpi.description}",
            "That library does not know of the launcher: each process becomes a world of its own.",
            f"Call the mpiexec of {vendor_name(mpi.vendor)}{_suggestion(job, mpi)}.",
            (rank,),
        )


def _suggestion(job: Job, mpi: Mpi) -> str:
    """Where the right mpiexec is, if one was seen."""
    for candidate in job.views[0].mpiexecs:
        if candidate.vendor and related(candidate.vendor, mpi.vendor):
            return f", for example {candidate.path}"
    return ""


def mpiexec(job: Job) -> Iterator[Finding]:
    """The mpiexec that a shell finds is one that starts this library's ranks."""
    view = job.views[0]
    if view.mpi is None:
        return
    if not view.mpiexecs:
        if view.pmi_plugins is None:
            yield Finding(
                "note",
                "mpiexec",
                "no mpiexec in PATH and none beside this Python",
                "Without it, or srun, a job has one rank.",
                "Load the module of your MPI, or pip install 'hierring[mpich]'.",
            )
        return
    first, *_ = view.mpiexecs
    named = f"{first.path} ({vendor_name(first.vendor)} {first.version})".replace(" )", ")")
    if related(first.vendor, view.mpi.vendor):
        yield Finding("ok", "mpiexec", f"mpiexec: {named}")
        return
    yield Finding(
        "error",
        "mpiexec",
        f"the mpiexec that a shell finds, {named}, is not of {view.mpi.description}, which Python "
        "loads",
        "It would start processes that are a world of their own each.",
        f"Call the one of {vendor_name(view.mpi.vendor)}{_suggestion(job, view.mpi)}; or mend PATH "
        "or LD_LIBRARY_PATH, so that both come from one installation.",
    )


def slurm(job: Job) -> Iterator[Finding]:
    """srun has the PMI plugin that the library speaks."""
    view = job.views[0]
    if view.pmi_plugins is None or view.mpi is None:
        return
    listed = ", ".join(view.pmi_plugins) or "none"
    try:
        plugin = choose_plugin(view.mpi.vendor, view.pmi_plugins)
    except ConfigurationError:
        wanted = plugin_family(view.mpi.vendor)
        yield Finding(
            "error" if "SLURM_JOB_ID" in view.environ else "warning",
            "pmi plugin",
            f"srun has no plugin {wanted}, which {view.mpi.description} needs; it has {listed}",
            "Ranks started by srun would be a world of their own each.",
            "Start them by mpiexec in the batch script, or ask the site for the plugin.",
        )
        return
    if plugin is None:
        text = f"srun can start ranks by {listed}; which of them this MPI speaks is not known"
        yield Finding("note", "pmi plugin", text)
    else:
        yield Finding("ok", "pmi plugin", f"srun --mpi={plugin} starts {view.mpi.description}")


def allocation(job: Job) -> Iterator[Finding]:
    """SLURM's variables agree among themselves; MPI's count goes before all of them."""
    for rank, view in enumerate(job.views):
        try:
            found = read_allocation(view.environ)
            conflicts = found.conflicts if found is not None else ()
        except ConfigurationError as error:
            conflicts = (str(error),)
        for conflict in conflicts:
            yield Finding(
                "warning",
                "slurm variables",
                conflict,
                "Programs that size themselves by these variables will differ.",
                "Look for what sets them: a job script, a module, an outer allocation.",
                (rank,),
            )


def threads(job: Job) -> Iterator[Finding]:
    """Communication from other threads than the main one needs at least "serialized"."""
    for rank, _, mpi in _with_mpi(job):
        text = f"MPI's thread level is {mpi.thread_level}"
        if mpi.thread_level in ("serialized", "multiple"):
            yield Finding("ok", "threads", text, ranks=(rank,))
        else:
            yield Finding(
                "warning",
                "threads",
                text,
                "A collective from any thread but the first, as under a training loop with threads "
                "of its own, may crash.",
                "Leave mpi4py.rc.thread_level at its default, or load an MPI built with threads.",
                (rank,),
            )


def cuda(job: Job) -> Iterator[Finding]:
    """Where there are GPUs: whether MPI takes their memory."""
    for rank, view, mpi in _with_mpi(job):
        if not view.facts.hardware.gpus:
            continue
        if mpi.cuda:
            yield Finding("ok", "cuda", "MPI takes pointers to GPU memory", ranks=(rank,))
            continue
        says = "does not say whether it takes" if mpi.cuda is None else "does not take"
        yield Finding(
            "note",
            "cuda",
            f"there are GPUs, and MPI {says} pointers to their memory",
            "hierring hands MPI the host's memory only; your own MPI calls on GPU tensors may "
            "crash.",
            "Copy to the host before such calls, or load an MPI built with CUDA.",
            (rank,),
        )


CHECKS = (library, packages, launch, launcher_match, mpiexec, slurm, allocation, threads, cuda)
