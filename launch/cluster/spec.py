"""What a virtual cluster shall be, checked before anything is made.

The network is private to the cluster, so its addresses are constants: two clusters at once do not
meet.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hierring.errors import ConfigurationError

__all__ = [
    "HEAD",
    "HEAD_ADDRESS",
    "MAX_NODES",
    "NETWORK",
    "PRIVATE",
    "NodeSpec",
    "current_directory",
    "hosts_text",
    "node_specs",
    "rate_bits",
    "shared_paths",
]

NETWORK = "10.77.0.0/24"
HEAD = "head"
HEAD_ADDRESS = "10.77.0.254"
_FIRST = 10  # 10.77.0.10 is the first node's
MAX_NODES = 200
_MAX_BITS = 10**13  # per second; tc counts a thousandth of it, in bytes, in 32 bits
# Each node has these to itself, so what all nodes shall see there is bound back in.
PRIVATE = ("/tmp", "/dev/shm")

_RATE = re.compile(r"(\d+(?:\.\d+)?)(k|m|g|t)?(i)?(bit|bps)", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,62}[A-Za-z0-9])?")


@dataclass(frozen=True)
class NodeSpec:
    """One node.

    Args:
        name: what the launcher calls it; each node has another one.
        hostname: what the node calls itself, its name if None. Nodes may agree in it, as some
            clusters' nodes do.
        shm_nbytes: size of /dev/shm; None for the kernel's default, half of the memory.
        rate: of its link, as tc writes it (`1gbit`); None for no limit.
    """

    name: str
    hostname: str | None = None
    shm_nbytes: int | None = None
    rate: str | None = None

    @property
    def own_name(self) -> str:
        """What `hostname` prints there."""
        return self.hostname or self.name


def node_specs(
    nodes: int | Sequence[NodeSpec], rate: str | None = None, shm_nbytes: int | None = None
) -> tuple[NodeSpec, ...]:
    """Fill in what is common to all nodes, and refuse what cannot be made.

    Raises:
        ConfigurationError: no nodes, too many, names that clash, or a rate that is none.
    """
    number = nodes if isinstance(nodes, int) else len(nodes)
    if not 1 <= number <= MAX_NODES:
        raise ConfigurationError(f"a virtual cluster has 1 to {MAX_NODES} nodes, not {number}")
    given = [NodeSpec(f"node{i}") for i in range(nodes)] if isinstance(nodes, int) else nodes
    specs = tuple(
        NodeSpec(
            spec.name,
            spec.hostname,
            shm_nbytes if spec.shm_nbytes is None else spec.shm_nbytes,
            rate if spec.rate is None else spec.rate,
        )
        for spec in given
    )
    names = [spec.name for spec in specs]
    for name in [*names, *(spec.own_name for spec in specs)]:
        if not _NAME.fullmatch(name):
            raise ConfigurationError(
                f"{name!r} is no host name: use letters, digits, dashes and dots"
            )
    if len({*names, HEAD}) <= len(names):
        raise ConfigurationError(
            f"each node needs a name of its own, and {HEAD!r} is taken; got {', '.join(names)}"
        )
    for spec in specs:
        if spec.rate is not None:
            rate_bits(spec.rate)
        if spec.shm_nbytes is not None and spec.shm_nbytes < 4096:
            raise ConfigurationError(
                f"/dev/shm of {spec.name} cannot have {spec.shm_nbytes} bytes: give at least 4096"
            )
    return specs


def address(index: int) -> str:
    """The address of a node by its place in the cluster."""
    return f"10.77.0.{_FIRST + index}"


def hosts_text(specs: Sequence[NodeSpec], own: int | None = None) -> str:
    """/etc/hosts as one node reads it (the head if None).

    Its own lines come first: where nodes agree in their hostname, each one means itself by it.
    """
    order = list(range(len(specs)))
    if own is not None:
        order.insert(0, order.pop(own))
    lines = ["127.0.0.1 localhost"]
    for index in order:
        spec = specs[index]
        names = dict.fromkeys([spec.own_name, spec.name] if index == own else [spec.name])
        if spec.own_name not in names and spec.own_name != "localhost":
            names[spec.own_name] = None
        lines.append(" ".join([address(index), *names]))
    lines.append(f"{HEAD_ADDRESS} {HEAD}")
    return "\n".join(lines) + "\n"


def rate_bits(text: str) -> int:
    """Read a rate in tc's syntax, in bits per second.

    Raises:
        ConfigurationError: it is none.
    """
    match = _RATE.fullmatch(text.strip())
    if match is None or float(match[1]) <= 0:
        raise ConfigurationError(
            f"{text!r} is no link rate: write it as tc does, such as 100mbit or 1gbit"
        )
    number, prefix, binary, unit = match.groups()
    power = " kmgt".index((prefix or " ").lower())
    bits = float(number) * (1024 if binary else 1000) ** power
    bits *= 8 if unit.lower() == "bps" else 1  # tc counts bytes where it writes bps
    if bits > _MAX_BITS:
        raise ConfigurationError(
            f"{text!r} is more than a virtual link can be limited to: give at most 10tbit, or no "
            "rate for no limit"
        )
    return max(8, int(bits))


def current_directory() -> str:
    """The directory that programs inside shall run in.

    Raises:
        ConfigurationError: somebody has removed it.
    """
    try:
        return os.getcwd()
    except FileNotFoundError as error:
        raise ConfigurationError(
            "the current directory has been removed: change to one that exists"
        ) from error


def shared_paths(paths: Iterable[str | Path]) -> tuple[str, ...]:
    """Those of the paths that a node would not see, without what lies below another of them.

    Raises:
        ConfigurationError: a path is missing, or is one that each node has to itself.
    """
    wanted: list[str] = []
    for path in sorted({str(Path(path).resolve()) for path in paths}):
        if path in PRIVATE:
            raise ConfigurationError(
                f"each node has a {path} of its own, so it cannot be shared or worked in: "
                "use a directory below it, or another place"
            )
        if not path.startswith(tuple(f"{private}/" for private in PRIVATE)):
            continue
        if not Path(path).exists():
            raise ConfigurationError(f"{path} is to be shared with the nodes, but does not exist")
        if not any(path.startswith(f"{other}/") for other in wanted):
            wanted.append(path)
    return tuple(wanted)
