"""All judgements, in the order in which they print."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hierring.launch.doctor import check_mpi, check_network, check_node, check_process
from hierring.launch.doctor.findings import Finding, Report, gather
from hierring.launch.doctor.view import Job, View

__all__ = ["examine", "report"]

CHECKS = (
    *check_mpi.CHECKS,
    *check_node.CHECKS,
    *check_network.CHECKS,
    *check_process.CHECKS,
)


def examine(job: Job) -> list[Finding]:
    """Every finding about a job, equal on all ranks that hold the same one."""
    return [finding for check in CHECKS for finding in check(job)]


def report(job: Job, troubles: Iterable[Finding] = ()) -> Report:
    """The judgements, after what stood in the way of looking."""
    return Report(
        headline=_headline(job),
        hostnames=tuple(view.facts.hostname for view in job.views),
        findings=tuple(gather([*troubles, *examine(job)])),
    )


def _headline(job: Job) -> str:
    mpi = job.views[0].mpi
    if mpi is None:
        return f"one process on {job.views[0].facts.hostname}, without MPI"
    size = mpi.size  # the others may be out of reach
    ranks = f"{size} rank{'' if size == 1 else 's'}"
    nodes = [f"{_name(views)}: {len(views)}" for views in job.node_views()]
    pretended = "pretended " if job.simulated else ""
    kinds = f"{len(nodes)} {pretended}node{'' if len(nodes) == 1 else 's'}"
    if job.topology is None:
        return f"{ranks}, whose nodes could not be found"
    return f"{ranks} on {kinds} ({', '.join(nodes) if len(nodes) <= 8 else '...'})"


def _name(views: Sequence[View]) -> str:
    return views[0].facts.hostname
