"""What a user should know about this launch: crowded CPUs, and signs that disagree with the probe.

Each finding is one sentence about a machine, not one a rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from hierring.topology.facts import Facts
from hierring.topology.sysfs import format_ranges

__all__ = ["Sign", "find_signs", "oversubscribed_ranks"]


class Sign(NamedTuple):
    """One finding: what sort it is, for those who know a remedy, and the sentence."""

    kind: Literal["cpus", "quota", "no-memory", "one-machine", "one-hostname", "mpi-split"]
    text: str


def find_signs(
    facts: Sequence[Facts],
    groups: Sequence[Sequence[int]],
    errors: Sequence[str],
    *,
    probed: bool,
) -> tuple[Sign, ...]:
    """All findings, equal on all ranks.

    Args:
        facts: of all ranks.
        groups: the ranks of each node.
        errors: for each rank why it could make no probe file, or "".
        probed: the nodes are as the probe found them; simulated ones may well contradict the signs.
    """
    found = [*_crowded_cpus(facts), *_scarce_quota(facts)]
    if probed:
        found += [*_errors(facts, errors), *_split_machines(facts, groups)]
        found += [*_shared_hostnames(facts, groups), *_mpi_split(facts, groups)]
    return tuple(found)


def oversubscribed_ranks(facts: Sequence[Facts]) -> frozenset[int]:
    """The ranks that have less than a CPU each, by affinity or by the cgroup's quota."""
    crowds = [ranks for machine in _machines(facts) for ranks, _ in _crowds(facts, machine)]
    return frozenset(rank for ranks in (*crowds, *_short_of_time(facts)) for rank in ranks)


def _names(noun: str, numbers: Iterable[int]) -> str:
    """A noun with its numbers: "rank 3", "ranks 0-2,5"."""
    listed = sorted(set(numbers))
    return f"{noun}{'s' if len(listed) > 1 else ''} {format_ranges(listed)}"


def _machines(facts: Sequence[Facts]) -> list[list[int]]:
    """The ranks under each kernel: they share its CPUs, whether or not they share memory."""
    machines: dict[str, list[int]] = {}
    for rank, fact in enumerate(facts):
        machines.setdefault(fact.boot_id or fact.hostname, []).append(rank)
    return list(machines.values())


def _crowds(
    facts: Sequence[Facts], machine: Sequence[int]
) -> Iterator[tuple[list[int], list[int]]]:
    """(ranks, CPUs) where more ranks are confined to a set of CPUs than it has, smallest set first.

    A wider set is one more crowd only if it stays too small after the ranks and CPUs of the crowds
    inside it are taken away.
    """
    taken_ranks: set[int] = set()
    taken_cpus: set[int] = set()
    confined = {facts[rank].cpus for rank in machine}
    confined.add(
        tuple(sorted(set().union(*confined)))
    )  # overlapping sets may be too small together
    for cpus in sorted(confined, key=lambda cpus: (len(cpus), cpus)):
        ranks = [r for r in machine if r not in taken_ranks and set(facts[r].cpus) <= set(cpus)]
        left = sorted(set(cpus) - taken_cpus)
        if ranks and len(ranks) > len(left):
            yield ranks, left or sorted(cpus)
            taken_ranks.update(ranks)
            taken_cpus.update(cpus)


def _crowded_cpus(facts: Sequence[Facts]) -> Iterator[Sign]:
    for machine in _machines(facts):
        for ranks, cpus in _crowds(facts, machine):
            yield Sign(
                "cpus",
                f"oversubscribed: {_names('rank', ranks)} on {facts[ranks[0]].hostname} share "
                f"{_names('CPU', cpus)}; give each rank a CPU of its own for full speed",
            )


def _short_of_time(facts: Sequence[Facts]) -> Iterator[list[int]]:
    """Ranks of one container (as far as signs tell) whose CPU quota is below their number."""
    containers: dict[tuple[str, str, int], list[int]] = {}
    for rank, fact in enumerate(facts):
        if fact.hardware.cpu_quota is not None:
            key = (fact.boot_id, fact.hostname, fact.pid_namespace)
            containers.setdefault(key, []).append(rank)
    for ranks in containers.values():
        if min(facts[rank].hardware.cpu_quota or 0.0 for rank in ranks) < len(ranks):
            yield ranks


def _scarce_quota(facts: Sequence[Facts]) -> Iterator[Sign]:
    for ranks in _short_of_time(facts):
        quota = facts[ranks[0]].hardware.cpu_quota
        yield Sign(
            "quota",
            f"oversubscribed: the cgroup of {_names('rank', ranks)} on {facts[ranks[0]].hostname} "
            f"grants the time of {quota:g} CPUs",
        )


def _errors(facts: Sequence[Facts], errors: Sequence[str]) -> Iterator[Sign]:
    """Ranks that could leave nothing in /dev/shm, by reason and host."""
    reasons: dict[tuple[str, str], list[int]] = {}
    for rank, error in enumerate(errors):
        if error:
            reasons.setdefault((facts[rank].hostname, error), []).append(rank)
    for (hostname, error), ranks in reasons.items():
        yield Sign(
            "no-memory", f"{_names('rank', ranks)} on {hostname} cannot share memory ({error})"
        )


def _split_machines(facts: Sequence[Facts], groups: Sequence[Sequence[int]]) -> Iterator[Sign]:
    """Nodes under one kernel that should have been one node, with the likeliest reason."""
    by_kernel: dict[str, list[int]] = {}
    for number, ranks in enumerate(groups):
        if facts[ranks[0]].boot_id:
            by_kernel.setdefault(facts[ranks[0]].boot_id, []).append(number)
    for numbers in by_kernel.values():
        if len(numbers) > 1:
            ranks = [rank for number in numbers for rank in groups[number]]
            yield Sign(
                "one-machine",
                f"{_names('node', numbers)} are one machine ({facts[ranks[0]].hostname}) but share "
                f"no memory: {_reason([facts[rank] for rank in ranks])}",
            )


def _reason(members: Sequence[Facts]) -> str:
    if len({fact.shm_device for fact in members}) > 1:
        return "their ranks see different /dev/shm, as in separate containers"
    if len({fact.uid for fact in members}) > 1:
        return "their ranks belong to different users"
    return "the kernel refuses one rank the files of another"


def _shared_hostnames(facts: Sequence[Facts], groups: Sequence[Sequence[int]]) -> Iterator[Sign]:
    """One name for several machines; nodes of one kernel are told by `_split_machines`."""
    by_name: dict[str, dict[str, list[int]]] = {}
    for number, ranks in enumerate(groups):
        fact = facts[ranks[0]]
        kernels = by_name.setdefault(fact.hostname, {})
        kernels.setdefault(fact.boot_id or str(number), []).append(number)
    for hostname, kernels in by_name.items():
        if len(kernels) > 1:
            numbers = [number for nodes in kernels.values() for number in nodes]
            yield Sign(
                "one-hostname",
                f"{_names('node', numbers)} have one hostname, {hostname}; they were told apart by "
                "what they share, but other tools may take them for one",
            )


def _mpi_split(facts: Sequence[Facts], groups: Sequence[Sequence[int]]) -> Iterator[Sign]:
    """MPI's own shared-memory split against the probe, with one pair of ranks as an example."""
    if any(fact.mpi_node is None for fact in facts):
        return
    by_probe = {rank: number for number, ranks in enumerate(groups) for rank in ranks}
    num_mpi_nodes = len({fact.mpi_node for fact in facts})
    for example, together in _disagreement(facts, by_probe):
        apart = "on one node, which they are not" if not together else "apart, and they are not"
        yield Sign(
            "mpi-split",
            f"number of nodes by MPI's own split: {num_mpi_nodes}, by the probe: {len(groups)}. "
            f"MPI has {_names('rank', example)} {apart}; the probe counts",
        )


def _disagreement(
    facts: Sequence[Facts], by_probe: dict[int, int]
) -> Iterator[tuple[tuple[int, int], bool]]:
    """At most one ((rank, rank), whether the probe has them together).

    Comparing each rank with the first of its group, in both groupings, finds a difference if there
    is one: if no rank is parted from its first, each group of either lies inside one of the other.
    """
    first_by_probe: dict[int, int] = {}
    first_by_mpi: dict[int | None, int] = {}
    for rank, fact in enumerate(facts):
        probe_first = first_by_probe.setdefault(by_probe[rank], rank)
        mpi_first = first_by_mpi.setdefault(fact.mpi_node, rank)
        if facts[probe_first].mpi_node != fact.mpi_node:
            yield (probe_first, rank), True
            return
        if by_probe[mpi_first] != by_probe[rank]:
            yield (mpi_first, rank), False
            return
