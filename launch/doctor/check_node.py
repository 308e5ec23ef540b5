"""Judgements on the nodes: the memory they share, their names, the CPUs of their ranks. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from hierring.launch.doctor.findings import Finding
from hierring.launch.doctor.view import Job, View
from hierring.topology.sysfs import format_ranges, parse_ranges

__all__ = ["CHECKS"]

_SIGNS = {
    "cpus": (
        "binding",
        "Ranks that share a CPU wait for each other's turns; a collective is as slow as the last.",
        "Start fewer ranks, or bind them apart (mpiexec --bind-to core, srun --cpu-bind=cores).",
    ),
    "quota": (
        "binding",
        "The kernel stops ranks that have used up the group's time.",
        "Start fewer ranks, or raise the container's CPU limit.",
    ),
    "no-memory": (
        "shared memory",
        "Such ranks exchange by MPI even inside their node, which is slower.",
        "Mount a tmpfs that this user may write to on /dev/shm.",
    ),
    "one-machine": (
        "nodes",
        "Their ranks exchange by MPI what shared memory would carry faster.",
        "Unless that is wanted, give containers of one machine one /dev/shm (--ipc=host).",
    ),
    "mpi-split": (
        "nodes",
        "Code that groups ranks by MPI.COMM_TYPE_SHARED would group them differently.",
        "Take groups of ranks from hierring.get_topology(), which has tried.",
    ),
}


def signs(job: Job) -> Iterator[Finding]:
    """What hierring itself warns of at init, with a remedy."""
    if job.topology is None:
        return
    for sign in job.topology.signs:
        if sign.kind in _SIGNS:  # hostnames are judged below, more closely
            topic, why, remedy = _SIGNS[sign.kind]
            yield Finding("warning", topic, sign.text, why, remedy)
    if job.split_late:
        yield Finding(
            "warning",
            "nodes",
            "MPI's own split by shared memory did not return in time",
            "It is collective: some rank hangs in it.",
            "Avoid MPI.COMM_TYPE_SHARED with this MPI; hierring does not use it.",
            job.split_late,
        )


def shared_memory(job: Job) -> Iterator[Finding]:
    """/dev/shm is there, writable, a tmpfs, and large enough."""
    for views in job.node_views():
        view = min(views, key=lambda one: one.facts.shm_free_nbytes)
        ranks = tuple(one.facts.rank for one in views)
        seen, facts = view.shared_memory, view.facts
        what = f"/dev/shm has {_mib(facts.shm_nbytes)}, {_mib(facts.shm_free_nbytes)} free"
        if (facts.shm_device < 0 or not seen.writable) and job.topology is not None:
            continue  # the topology's own sign says it, with the system's reason
        if facts.shm_device < 0 or not seen.writable:
            fault = "there is no /dev/shm" if facts.shm_device < 0 else _forbidden(view)
            yield Finding("warning", "shared memory", fault, *_SIGNS["no-memory"][1:], ranks)
        elif len(views) > 1 and facts.shm_free_nbytes < job.least_nbytes:
            yield Finding(
                "error",
                "shared memory",
                f"{what}, and the node needs at least {_mib(job.least_nbytes)}",
                "An init ends with SharedMemoryError.",
                "Enlarge /dev/shm (in containers: --shm-size), or remove what lies there.",
                ranks,
            )
        elif len(views) > 1 and facts.shm_free_nbytes < job.needed_nbytes:
            yield Finding(
                "warning",
                "shared memory",
                f"{what}, and the node needs {_mib(job.needed_nbytes)} for full speed",
                "hierring goes on with smaller cells, which costs speed.",
                "Enlarge /dev/shm (in containers: --shm-size), or remove what lies there.",
                ranks,
            )
        else:
            need = f"; this node takes {_mib(job.needed_nbytes)}" if len(views) > 1 else ""
            yield Finding("ok", "shared memory", what + need, ranks=ranks)
        if seen.filesystem not in ("", "tmpfs", "ramfs") and seen.writable:
            yield Finding(
                "warning",
                "shared memory",
                f"/dev/shm is a {seen.filesystem}, not a tmpfs",
                "Shared memory there may go through a disk or a network.",
                "Mount a tmpfs on /dev/shm.",
                ranks,
            )


def leftovers(job: Job) -> Iterator[Finding]:
    """Memory that killed jobs have left taken, told once for each node."""
    for views in job.node_views():
        found = views[0].leftovers
        if found.nbytes:
            names = " ".join(f"/dev/shm/{prefix}*" for prefix in found.prefixes)
            yield Finding(
                "note",
                "shared memory",
                f"files of killed jobs take {_mib(found.nbytes)} of /dev/shm: no process in sight "
                f"has mapped them ({names})",
                "They take memory until the machine is started anew.",
                f"If no job of yours runs there, in containers either: rm {names}",
                tuple(view.facts.rank for view in views),
            )


def _forbidden(view: View) -> str:
    mode = view.shared_memory.mode
    return f"user {view.facts.uid} may not write to /dev/shm, whose mode is {mode:04o}"


def _mib(nbytes: int) -> str:
    if nbytes >= 1 << 30:
        return f"{nbytes / (1 << 30):.1f} GiB"
    return f"{nbytes / (1 << 20):.1f} MiB" if nbytes >= 1 << 20 else f"{nbytes / (1 << 10):.0f} KiB"


def hostnames(job: Job) -> Iterator[Finding]:
    """Names that tell several machines apart, also for those who cut them at a dot."""
    by_name: dict[str, list[int]] = {}
    places = job.network_views()
    for number, views in enumerate(places):
        by_name.setdefault(views[0].facts.hostname, []).append(number)
    for name, numbers in by_name.items():
        if len(numbers) > 1:
            yield Finding(
                "warning",
                "hostnames",
                f"{len(numbers)} machines or containers have one hostname, {name}",
                "hierring tells them apart by what they share; launchers, NCCL and others may take "
                "them for one.",
                "Give each machine a name of its own (hostnamectl), each container another "
                "--hostname.",
                tuple(view.facts.rank for number in numbers for view in places[number]),
            )
        if name.partition(".")[0] in ("localhost", ""):
            yield Finding(
                "warning" if len(places) > 1 else "note",
                "hostnames",
                f"a machine is called {name or 'nothing'}",
                "Others that look the name up find themselves.",
                "Give the machine a name of its own (hostnamectl).",
            )
    yield from _names_alike(list(by_name))
    yield from _loopback_names(job)


def _names_alike(names: list[str]) -> Iterator[Finding]:
    by_start: dict[str, list[str]] = {}
    for name in names:
        by_start.setdefault(name.partition(".")[0], []).append(name)
    for start, alike in by_start.items():
        if len(alike) > 1:
            yield Finding(
                "warning",
                "hostnames",
                f"these names differ only after the first dot: {', '.join(alike)}",
                f"hierring keeps them apart; software that cuts names at the dot sees one {start}.",
                "Give the machines names that differ before the dot.",
            )


def _loopback_names(job: Job) -> Iterator[Finding]:
    """With several nodes: names must not stand for 127.0.0.1, as Debian's installer has it."""
    if len(job.network_views()) == 1:
        return
    for rank, view in enumerate(job.views):
        loopback = [a for a in view.resolves or () if a == "::1" or a.startswith("127.")]
        if loopback:
            yield Finding(
                "warning",
                "hostnames",
                f"the own hostname stands for {', '.join(loopback)}",
                "An MPI that publishes this address can't be reached from other nodes.",
                "Let /etc/hosts or DNS give the address of the network between the nodes.",
                (rank,),
            )


def binding(job: Job) -> Iterator[Finding]:
    """Where the ranks may run: NUMA nodes, threads, and other jobs on the same CPUs."""
    for rank, view in enumerate(job.views):
        facts = view.facts
        yield Finding(
            "ok",
            "binding",
            f"{facts.usable_cpus} usable CPU{'s' if facts.usable_cpus != 1 else ''} a rank",
            ranks=(rank,),
        )
        numa = [
            node.number
            for node in facts.hardware.numa_nodes
            if set(parse_ranges(node.cpus)) & set(facts.cpus)
        ]
        if len(numa) > 1:
            yield Finding(
                "note",
                "binding",
                f"ranks may move between NUMA nodes {format_ranges(numa)}",
                "Memory stays where it was first touched, so a rank that moves reads it from afar.",
                "Bind them: mpiexec --bind-to numa, srun --cpu-bind=ldoms.",
                (rank,),
            )
        yield from _threads(rank, view)
    yield from _strangers(job)


def _threads(rank: int, view: View) -> Iterator[Finding]:
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        text = view.environ.get(variable, "")
        if text.isdigit() and int(text) > view.facts.usable_cpus:
            yield Finding(
                "warning",
                "binding",
                f"{variable}={text}, and a rank has {view.facts.usable_cpus} usable CPUs",
                "Threads beyond the CPUs slow down all of them.",
                f"export {variable}={view.facts.usable_cpus}",
                (rank,),
            )


def _strangers(job: Job) -> Iterator[Finding]:
    """Other jobs bound to our CPUs, one finding for each machine."""
    machines: dict[tuple[str, int], list[View]] = {}
    for view in job.views:
        machines.setdefault((view.facts.boot_id, view.facts.pid_namespace), []).append(view)
    for views in machines.values():
        ours = {pid for view in views for pid in view.ancestors}
        others = {s.pid: s for view in views for s in view.strangers if s.pid not in ours}
        if not others:
            continue
        cpus = {cpu for view in views for cpu in view.facts.cpus}
        shared = cpus & {cpu for stranger in others.values() for cpu in stranger.cpus}
        if not shared:
            continue
        listed = [f"{one.name} (pid {one.pid})" for one in list(others.values())[:3]]
        more = f" and {len(others) - 3} more" if len(others) > 3 else ""
        yield Finding(
            "warning",
            "binding",
            f"other processes are bound to CPU{'s' if len(shared) > 1 else ''} "
            f"{format_ranges(shared)} of ours, and work: {', '.join(listed)}{more}",
            "Two jobs on the same CPUs halve each other's speed, though others may be free.",
            "Bind one of them elsewhere: mpiexec --cpu-set, srun --exclusive, taskset.",
            tuple(view.facts.rank for view in views if shared & set(view.facts.cpus)),
        )


CHECKS = (signs, shared_memory, leftovers, hostnames, binding)
