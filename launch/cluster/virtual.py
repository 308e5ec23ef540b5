"""The cluster as its supervisor holds it: bring-up, running programs inside, faults, the end."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import hierring
from hierring.errors import ConfigurationError, HierringError
from hierring.launch.cluster.entrance import Entrance, Node
from hierring.launch.cluster.placement import mpiexec_command
from hierring.launch.cluster.spec import (
    HEAD,
    HEAD_ADDRESS,
    NodeSpec,
    address,
    current_directory,
    hosts_text,
    node_specs,
    rate_bits,
    shared_paths,
)
from hierring.launch.cluster.tools import (
    NAMESPACES,
    namespace_options,
    refusal,
    require_tools,
    search_path,
)
from hierring.launch.mpi import Launcher

__all__ = ["SHELL", "VirtualCluster"]

# The stand-in for ssh; in the head's own /tmp, so no user of the machine sees it.
SHELL = "/tmp/hierring-cluster/enter"
_UP_S = 60.0  # a bring-up takes a third of a second; this is for a machine in distress
_DOWN_S = 20.0
_TOOL_S = 20.0


class VirtualCluster(Entrance):
    """Several nodes on this machine, from construction until `close`.

    Programs run in a node or in the head, the place of mpiexec and of daemons. Whatever the
    supervisor's end, SIGKILL included, the kernel ends every process inside and frees what it had.

    Args:
        nodes: how many, named node0, node1 and so on, or a description of each.
        rate: of every link, both ways, as tc writes it (`1gbit`).
        shm_nbytes: size of each /dev/shm; None for half of the memory.
        share: paths under /tmp or /dev/shm that all nodes shall see. The current directory, this
            Python and its packages are shared anyhow.

    Raises:
        ConfigurationError: no such cluster is possible.
        HierringError: a program or a right is missing; says which.
    """

    def __init__(
        self,
        nodes: int | Sequence[NodeSpec] = 2,
        *,
        rate: str | None = None,
        shm_nbytes: int | None = None,
        share: Iterable[str | Path] = (),
    ) -> None:
        self.specs = node_specs(nodes, rate, shm_nbytes)
        self.share = shared_paths([*share, *_needed_paths()])
        require_tools()
        self._owner = os.getpid()
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as the cluster)
        self._keeper = subprocess.Popen(
            [
                *("unshare", *namespace_options(), *NAMESPACES),
                *("--fork", "--kill-child=KILL", "--propagation", "private"),
                *(sys.executable, "-I", "-S", str(Path(__file__).with_name("keeper.py"))),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            env={**os.environ, "PATH": search_path()},
            cwd="/",
            start_new_session=True,  # a Ctrl-C is for the supervisor, which then closes
        )
        atexit.register(self.close)
        try:
            answer = self._bring_up()
            self.pid: int = answer["pid"]
            self.nodes = tuple(
                Node(index, spec.name, spec.own_name, address(index), pid)
                for index, (spec, pid) in enumerate(zip(self.specs, answer["pids"], strict=True))
            )
            for spec in self.specs:
                if spec.rate is not None:
                    self.set_rate(spec.name, spec.rate)
        except BaseException:
            self.close()
            raise

    def _bring_up(self) -> dict[str, Any]:
        """Hand the plan over and wait for the answer."""
        plan = {
            "share": self.share,
            "shell": SHELL,
            "head": {
                "hostname": HEAD,
                "address": HEAD_ADDRESS,
                "shm_nbytes": None,
                "hosts": hosts_text(self.specs),
            },
            "nodes": [
                {
                    "name": spec.name,
                    "hostname": spec.own_name,
                    "address": address(index),
                    "shm_nbytes": spec.shm_nbytes,
                    "hosts": hosts_text(self.specs, index),
                }
                for index, spec in enumerate(self.specs)
            ],
        }
        assert self._keeper.stdin is not None
        assert self._keeper.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended; its complaint is read below
            self._keeper.stdin.write(json.dumps(plan).encode() + b"\n")
            self._keeper.stdin.flush()
        with selectors.DefaultSelector() as selector:
            selector.register(self._keeper.stdout, selectors.EVENT_READ)
            if not selector.select(_UP_S):
                raise HierringError(f"the virtual cluster was not up after {_UP_S:.0f} s")
        line = self._keeper.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {}
        if "pid" not in answer:
            self._complaints.seek(0)
            raise refusal(answer.get("error") or self._complaints.read().decode(errors="replace"))
        return answer

    def mpiexec(
        self,
        launcher: Launcher,
        ranks_per_node: int | Sequence[int],
        placement: str,
        argv: Sequence[str | Path],
    ) -> list[str]:
        """The command that runs an MPI job on the nodes; `run` or `popen` it in the head.

        Args:
            launcher: of the MPI that the program loads.
            ranks_per_node: one number for all nodes, or one for each of the first nodes.
            placement: `block` (ranks 0, 1 on the first node) or `cyclic` (0, 2 on the first).
            argv: the program of every rank.
        """
        counts = (
            [ranks_per_node] * len(self.nodes)
            if isinstance(ranks_per_node, int)
            else [*ranks_per_node]
        )
        if len(counts) > len(self.nodes):
            raise ConfigurationError(
                f"ranks on {len(counts)} nodes, but there are {len(self.nodes)}"
            )
        names = [node.name for node in self.nodes[: len(counts)]]
        return mpiexec_command(launcher, names, counts, placement, argv, SHELL)

    # ---- links and faults

    def set_rate(self, name: str | int, rate: str) -> None:
        """Limit a node's link to a rate, each way."""
        node, bits = self.node(name), rate_bits(rate)
        # One millisecond's worth at least: a smaller bucket runs dry between two timer ticks.
        bucket = ["burst", str(max(128 * 1024, bits // 8000)), "latency", "100ms"]
        shape = ["root", "tbf", "rate", f"{bits}bit", *bucket]
        self._tool(["tc", "qdisc", "replace", "dev", "eth0", *shape], node.name)
        self._tool(["tc", "qdisc", "replace", "dev", f"v{node.index}", *shape])

    def cut(self, name: str | int) -> None:
        """Cut a node off: nothing passes its link, and nobody is told."""
        self._tool(["ip", "link", "set", f"v{self.node(name).index}", "down"])

    def restore(self, name: str | int) -> None:
        """Undo `cut`."""
        self._tool(["ip", "link", "set", f"v{self.node(name).index}", "up"])

    def kill_node(self, name: str | int) -> None:
        """Let a node crash: all its processes are gone at once."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.node(name).pid, signal.SIGKILL)

    def tx_nbytes(self, name: str | int) -> int:
        """Count the bytes that a node has sent, Ethernet and TCP headers included."""
        shown = self._tool(["ip", "-s", "-j", "link", "show", "dev", "eth0"], self.node(name).name)
        return int(json.loads(shown)[0]["stats64"]["tx"]["bytes"])

    def _tool(self, argv: Sequence[str], node: str | None = None) -> str:
        """Run an administrator's program inside; what it complains about is the error."""
        environment: Mapping[str, str] = {**os.environ, "PATH": search_path()}
        done = self.run(
            argv,
            node=node,
            cwd="/",
            env=environment,
            timeout=_TOOL_S,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            where = node or "the head"
            raise HierringError(f"`{' '.join(argv)}` failed on {where}: {done.stderr.strip()}")
        return str(done.stdout)

    # ---- the end

    def close(self) -> None:
        """End every process inside and wait until they are gone; again and again is fine."""
        if os.getpid() != self._owner:
            return  # a fork of the supervisor: the cluster is not its own
        atexit.unregister(self.close)
        keeper = self._keeper
        for pipe in (keeper.stdin, keeper.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        try:
            keeper.wait(timeout=_DOWN_S)
        except subprocess.TimeoutExpired:
            keeper.kill()  # takes the keeper along
            keeper.wait(timeout=_DOWN_S)
        self._complaints.close()

    def __enter__(self) -> VirtualCluster:  # noqa: PYI034  (Self is Python 3.11)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _needed_paths() -> list[str]:
    """What a Python program needs to run like here: its directory, interpreter and packages."""
    package = Path(hierring.__file__).resolve().parent
    found = [
        current_directory(),
        sys.prefix,
        sys.base_prefix,
        str(package),
        *filter(None, sys.path),
    ]
    return [path for path in found if Path(path).exists()]
