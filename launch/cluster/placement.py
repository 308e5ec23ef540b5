"""Which rank runs on which node, and how each launcher is told.

mpiexec runs in the head and reaches the nodes through the stand-in for ssh. That keeps the
environment, so all variables of the caller reach the ranks.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from hierring.errors import ConfigurationError
from hierring.launch.cluster.spec import MAX_NODES, NETWORK
from hierring.launch.mpi import Launcher

__all__ = ["PLACEMENTS", "mpiexec_command", "parse_ranks", "place"]

PLACEMENTS = ("block", "cyclic")
_MAX_RANKS = 4096  # in all: they run on this machine


def parse_ranks(text: str, nodes: int | None = None) -> list[int]:
    """Read ranks per node: `4` for every node, or `3,1` for one node each.

    Args:
        text: what the user wrote.
        nodes: the number of nodes; None for as many as `text` lists, or 2.

    Raises:
        ConfigurationError: no such list, or one of another length.
    """
    if nodes is not None and not 1 <= nodes <= MAX_NODES:
        raise ConfigurationError(f"a virtual cluster has 1 to {MAX_NODES} nodes, not {nodes}")
    items = [item.strip() for item in text.split(",")]
    if not all(re.fullmatch("0*[1-9][0-9]{0,9}", item) for item in items):
        raise ConfigurationError(
            f"{text!r} is no number of ranks per node: write 4, or 3,1 for one number a node"
        )
    counts = [int(item) for item in items]
    if len(counts) == 1:
        counts *= 2 if nodes is None else nodes
    if sum(counts) > _MAX_RANKS:
        raise ConfigurationError(
            f"{sum(counts)} ranks are too many for this machine: at most {_MAX_RANKS} are started"
        )
    if nodes not in (None, len(counts)):
        raise ConfigurationError(f"{text!r} is for {len(counts)} nodes, but there are {nodes}")
    return counts


def place(counts: Sequence[int], placement: str = "block") -> list[int]:
    """The node of every rank: node by node, or dealt out in turn to the nodes that have room."""
    if placement == "block":
        return [node for node, count in enumerate(counts) for _ in range(count)]
    if placement != "cyclic":
        raise ConfigurationError(f"placement {placement!r} is not one of {', '.join(PLACEMENTS)}")
    return [
        node for turn in range(max(counts)) for node, count in enumerate(counts) if turn < count
    ]


def mpiexec_command(
    launcher: Launcher,
    names: Sequence[str],
    counts: Sequence[int],
    placement: str,
    argv: Sequence[str | Path],
    shell: str,
) -> list[str]:
    """The command that runs a job on the nodes, for the head.

    Args:
        launcher: of the MPI that the program loads.
        names: of the nodes, as the stand-in for ssh knows them.
        counts: ranks per node.
        placement: `block` or `cyclic`.
        argv: the program of every rank.
        shell: path of the stand-in for ssh.
    """
    ranks = place(counts, placement)
    program = [str(word) for word in argv]
    make = {"mpich": _mpich, "openmpi": _openmpi, "impi": _impi}[launcher.vendor]
    settings = launcher.settings()
    if launcher.vendor == "impi" and "FI_PROVIDER" not in os.environ:
        settings["FI_PROVIDER"] = "tcp"  # the others look for hardware that the nodes do not have
    prefix = ["env", *(f"{k}={v}" for k, v in settings.items())] if settings else []
    return [
        *(*prefix, str(launcher.mpiexec)),
        *make(launcher, names, counts, ranks, program, shell),
    ]


def _hydra(shell: str) -> list[str]:
    """Without the bridge's name the daemons would call back to an address they cannot reach."""
    return ["-iface", "br0", "-launcher", "ssh", "-launcher-exec", shell]


def _mpich(
    launcher: Launcher,
    names: Sequence[str],
    counts: Sequence[int],
    ranks: Sequence[int],
    program: Sequence[str],
    shell: str,
) -> list[str]:
    size = ["-n", str(len(ranks))]
    if list(ranks) == sorted(ranks):
        hosts = [f"{name}:{count}" for name, count in zip(names, counts, strict=True)]
        return [*_hydra(shell), "-hosts", ",".join(hosts), *size, *program]
    rank_map = ["-rankmap", ",".join(map(str, ranks))]
    return [*_hydra(shell), "-hosts", ",".join(names), *rank_map, *size, *program]


def _impi(
    launcher: Launcher,
    names: Sequence[str],
    counts: Sequence[int],
    ranks: Sequence[int],
    program: Sequence[str],
    shell: str,
) -> list[str]:
    """One section per run of ranks on a node: the only way that takes any order."""
    sections: list[str] = []
    for node, run in groupby(ranks):
        section = ["-n", str(len(list(run))), "-host", names[node], *program]
        sections += [":", *section] if sections else section
    return [*_hydra(shell), *sections]


def _openmpi(
    launcher: Launcher,
    names: Sequence[str],
    counts: Sequence[int],
    ranks: Sequence[int],
    program: Sequence[str],
    shell: str,
) -> list[str]:
    """Slots are the ranks per node, so that mapping by node passes a full node over.

    The daemons are started from the head alone, since a node cannot enter another one.
    """
    order = "slot" if list(ranks) == sorted(ranks) else "node"
    hosts = [f"{name}:{count}" for name, count in zip(names, counts, strict=True)]
    return [
        # Inside, a plain user is root, too.
        *("--allow-run-as-root", *launcher.unbound_options()),
        *("--prtemca", "plm_ssh_agent", shell, "--prtemca", "plm_ssh_no_tree_spawn", "1"),
        *("--prtemca", "prte_if_include", NETWORK, "--mca", "btl_tcp_if_include", NETWORK),
        *("--host", ",".join(hosts), "--map-by", order, "-n", str(len(ranks)), *program),
    ]
