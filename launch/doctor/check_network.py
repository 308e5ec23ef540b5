"""Judgements on the way between the nodes: interfaces, their speed and what hides them. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence

from hierring.environment import INTERFACE_SETTINGS
from hierring.launch.doctor.findings import Finding
from hierring.launch.doctor.view import Job, View
from hierring.topology import Nic

__all__ = ["CHECKS"]

#: Variables in which a user names the interfaces to use.
CHOICES = ("OMPI_MCA_btl_tcp_if_include", "FI_TCP_IFACE", "FI_SOCKETS_IFACE", "UCX_NET_DEVICES")
_ANY = frozenset({"", "all", "any"})
HOW = f"Name the right one: export {INTERFACE_SETTINGS}."
#: InfiniBand pins what it sends; a distribution's default limit is far below any tensor.
ENOUGH_LOCKED = 1 << 30


def reaching(nics: Sequence[Nic]) -> list[Nic]:
    """The interfaces that can reach another machine: up, and a port or with a routable address."""
    return [
        nic
        for nic in nics
        if nic.up and nic.kind != "loopback" and (nic.kind == "infiniband" or _routable(nic))
    ]


def _routable(nic: Nic) -> list[str]:
    found = []
    for text in nic.addresses:
        address = ipaddress.ip_address(text)
        if not (address.is_loopback or address.is_link_local):
            found.append(text)
    return found


def interfaces(job: Job) -> Iterator[Finding]:
    """What there is, on each node; the slowest sets the pace of a ring."""
    best: dict[int, list[int]] = {}
    places = job.network_views()
    for views in places:
        ranks = tuple(view.facts.rank for view in views)
        nics = reaching(views[0].facts.hardware.nics)
        if not nics:
            if len(places) > 1:
                yield Finding(
                    "warning",
                    "network",
                    "no interface is up that could reach another node",
                    "MPI has found a way all the same, or this machine hides its interfaces.",
                    "Look at `ip address` on that node.",
                    ranks,
                )
            continue
        text = "; ".join(map(_describe, nics))
        yield Finding("ok", "network", f"interfaces to other machines: {text}", ranks=ranks)
        speeds = [nic.speed_bits_per_s for nic in nics if nic.speed_bits_per_s is not None]
        if speeds and len(speeds) == len(nics):
            best.setdefault(max(speeds), []).extend(ranks)
            yield from _mixed(job, nics, ranks)
    if len(best) > 1:
        slowest = min(best)
        yield Finding(
            "warning",
            "network",
            f"the fastest interface there has {_speed(slowest)}, other nodes have up to "
            f"{_speed(max(best))}",
            "A ring is as fast as its slowest link.",
            "Leave these nodes out, or look why the link came up slowly (ethtool).",
            tuple(best[slowest]),
        )


def _mixed(job: Job, nics: Sequence[Nic], ranks: tuple[int, ...]) -> Iterator[Finding]:
    """Several interfaces of different speed, and none is chosen."""
    speeds = {nic.speed_bits_per_s or 0 for nic in nics}
    chosen = any(job.views[ranks[0]].environ.get(variable) for variable in CHOICES)
    if len(job.network_views()) == 1 or len(speeds) == 1 or chosen:
        return
    slow = [nic.name for nic in nics if nic.speed_bits_per_s == min(speeds)]
    yield Finding(
        "note",
        "network",
        f"interfaces differ in speed, and MPI may also take {', '.join(slow)} with "
        f"{_speed(min(speeds))}",
        "Open MPI spreads messages over all of them, others take the first that works.",
        HOW,
        ranks,
    )


def choices(job: Job) -> Iterator[Finding]:
    """An interface that a variable names is there, and up."""
    for rank, view in enumerate(job.views):
        for variable in CHOICES:
            for wanted in view.environ.get(variable, "").split(","):
                if wanted in _ANY or wanted.startswith("^"):
                    continue
                matching = [nic for nic in view.facts.hardware.nics if _means(wanted, nic)]
                if not any(nic.up for nic in matching):
                    state = "is down" if matching else "is not on this machine"
                    yield Finding(
                        "warning",
                        "network",
                        f"{variable} names {wanted}, which {state}",
                        "MPI then finds no way to the other nodes, or silently takes another.",
                        f"It has: {', '.join(_names(view)) or 'none'}.",
                        (rank,),
                    )
                elif len(matching) == 1:
                    text = f"{variable} chooses {_describe(matching[0])}"
                    yield Finding("ok", "network", text, ranks=(rank,))


def _means(wanted: str, nic: Nic) -> bool:
    """Whether a name, a port of UCX ("mlx5_0:1") or a subnet stands for an interface."""
    if "/" in wanted and wanted[0].isdigit():
        try:
            network = ipaddress.ip_network(wanted, strict=False)
        except ValueError:
            return False
        return any(ipaddress.ip_address(address) in network for address in nic.addresses)
    return nic.name in (wanted, wanted.replace(":", "/")) or nic.name.startswith(f"{wanted}/")


def _names(view: View) -> list[str]:
    return [nic.name for nic in reaching(view.facts.hardware.nics)]


def equal_addresses(job: Job) -> Iterator[Finding]:
    """Bridges of containers and virtual machines: the same address on several nodes."""
    owners: dict[tuple[str, str], list[tuple[str, tuple[int, ...]]]] = {}
    for views in job.network_views():
        ranks = tuple(view.facts.rank for view in views)
        for nic in views[0].facts.hardware.nics:
            if _kept_off(views[0], nic):
                continue
            for address in _routable(nic) if nic.kind != "loopback" else []:
                owners.setdefault((nic.name, address), []).append((nic.name, ranks))
    for (name, address), places in owners.items():
        if len(places) > 1:
            yield Finding(
                "warning",
                "network",
                f"interface {name} has the address {address} on {len(places)} nodes",
                "A rank that is told to reach another there reaches itself, and waits.",
                f"Keep MPI off {name}. {HOW}",
                tuple(rank for _, ranks in places for rank in ranks),
            )


def _kept_off(view: View, nic: Nic) -> bool:
    """Whether a variable has MPI use other interfaces than this one."""
    values = [view.environ[variable] for variable in CHOICES if view.environ.get(variable)]
    wanted = [word for value in values for word in value.split(",")]
    return bool(wanted) and not any(
        word in _ANY or word.startswith("^") or _means(word, nic) for word in wanted
    )


def infiniband(job: Job) -> Iterator[Finding]:
    """What InfiniBand asks of a process: memory it may lock, and care when it forks."""
    for rank, view in enumerate(job.views):
        if not any(nic.kind == "infiniband" and nic.up for nic in view.facts.hardware.nics):
            continue
        if view.memlock_nbytes is not None and view.memlock_nbytes < ENOUGH_LOCKED:
            yield Finding(
                "warning",
                "infiniband",
                f"a process may lock {view.memlock_nbytes >> 10} KiB of memory, and there is "
                "InfiniBand",
                "Messages that can't be pinned fail, or take the slow way.",
                "ulimit -l unlimited, in the batch system's limits (SLURM: PropagateResourceLimits)"
                " or /etc/security/limits.conf.",
                (rank,),
            )
        if not ({"RDMAV_FORK_SAFE", "IBV_FORK_SAFE"} & set(view.environ)):
            yield Finding(
                "note",
                "infiniband",
                "there is InfiniBand, and fork safety is not asked for",
                "A process that forks, as for data loader workers, may corrupt messages on kernels "
                "before 5.12.",
                "export RDMAV_FORK_SAFE=1, or let workers start by spawn.",
                (rank,),
            )


def _describe(nic: Nic) -> str:
    speed = "speed unknown" if nic.speed_bits_per_s is None else _speed(nic.speed_bits_per_s)
    return ", ".join([nic.name, nic.kind, speed, *_routable(nic)])


def _speed(bits_per_s: int) -> str:
    return f"{bits_per_s / 1e9:g} Gbit/s"


CHECKS = (interfaces, choices, equal_addresses, infiniband)
