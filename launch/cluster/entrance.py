"""The way into a running cluster: programs started outside run in a node, or in the head."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hierring.errors import ConfigurationError
from hierring.launch.cluster.spec import current_directory
from hierring.launch.cluster.tools import NAMESPACES

__all__ = ["Entrance", "Node"]

_INSIDE_S = 5.0
# nsenter goes to the root directory; the caller's is what a program expects.
_IN_PLACE = ("sh", "-c", 'cd -- "$0" && exec "$@"')


@dataclass(frozen=True)
class Node:
    """A node of a running cluster; `pid` is its process 1 as seen from outside."""

    index: int
    name: str
    hostname: str
    address: str
    pid: int


class Entrance:
    """Runs programs in the namespaces of the head or of a node.

    Attributes:
        pid: process 1 of the whole cluster, as seen from outside.
        nodes: the nodes.
    """

    pid: int
    nodes: tuple[Node, ...]

    def command(
        self,
        argv: Sequence[str | Path],
        node: str | int | None = None,
        cwd: str | Path | None = None,
    ) -> list[str]:
        """Turn a command into one that, run from outside, runs it in a node.

        Environment and current directory are kept. If the outer process is killed, the inner one
        is killed with it; other signals do not cross, see `send_signal`.

        Args:
            argv: the command.
            node: a node's name or index; None for the head.
            cwd: the directory to run it in, the current one if None.
        """
        user = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        pid = self.pid if node is None else self.node(node).pid
        directory = str(current_directory() if cwd is None else cwd)
        return [
            *("nsenter", "--target", str(pid), *user, *NAMESPACES, "--"),
            *("setpriv", "--pdeathsig", "KILL", "--"),
            *(*_IN_PLACE, directory, *map(str, argv)),
        ]

    def popen(
        self,
        argv: Sequence[str | Path],
        *,
        node: str | int | None = None,
        cwd: str | Path | None = None,
        **options: Any,
    ) -> subprocess.Popen[Any]:
        """Start a command inside; options are those of subprocess.Popen."""
        return subprocess.Popen(self.command(argv, node, cwd), **options)

    def run(
        self,
        argv: Sequence[str | Path],
        *,
        node: str | int | None = None,
        cwd: str | Path | None = None,
        timeout: float = 60.0,
        **options: Any,
    ) -> subprocess.CompletedProcess[Any]:
        """Run a command inside to its end; options are those of subprocess.run."""
        return subprocess.run(self.command(argv, node, cwd), timeout=timeout, **options)

    def send_signal(self, process: subprocess.Popen[Any], number: int) -> None:
        """Send a signal to what `popen` started, not to the program that carries it inside.

        Waits until it is inside; does nothing if it has ended.
        """
        deadline = time.monotonic() + _INSIDE_S
        while process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
                for child in children.split():
                    os.kill(int(child), number)
                if children:
                    return
            time.sleep(0.01)

    def node(self, name: str | int) -> Node:
        """Find a node by its name or index.

        Raises:
            ConfigurationError: there is none of that name.
        """
        for node in self.nodes:
            if name in (node.name, node.index):
                return node
        raise ConfigurationError(
            f"no node {name!r} here; there are {', '.join(n.name for n in self.nodes)}"
        )
