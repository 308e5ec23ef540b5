"""A SLURM of its own for tests: its controller in a virtual cluster's head, a slurmd in each node.

Everything it writes lies in one directory of its own, which all nodes see; nothing of the machine's
own SLURM is read or touched. Its daemons end with the cluster.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, final

from hierring._testing.slurm_conf import write_configuration
from hierring.errors import HierringError
from hierring.launch.cluster import VirtualCluster

__all__ = ["SlurmCluster", "missing_for_slurm"]

_PROGRAMS: Final = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "sinfo")
_UP_S: Final = 40.0
_DOWN_S: Final = 20.0
_DONE: Final = {
    *("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"),
    *("BOOT_FAIL", "DEADLINE"),
}


def missing_for_slurm(vendor: str) -> str:
    """Return why jobs of this MPI vendor can't run under a SLURM here; empty if they can."""
    absent = [name for name in _PROGRAMS if _find(name) is None]
    if absent:
        return f"{', '.join(absent)} not installed (Debian: slurm-wlm and munge)"
    if vendor == "openmpi":
        try:
            ctypes.CDLL("libpmix.so")  # by this name SLURM's plugin looks for it
        except OSError:
            return "libpmix.so not installed, which SLURM's pmix loads (Debian: libpmix-dev)"
    return "" if os.geteuid() == 0 else "slurmd starts jobs only as root"


@final
class SlurmCluster:
    """SLURM on a virtual cluster, from construction until `close`.

    Args:
        nodes: how many, named node0 and so on.
        cpus: how many each pretends to have.
        kill_wait_s: from SIGTERM to SIGKILL at the end of a job.
        share: paths under /tmp that all nodes shall see; see VirtualCluster.

    Raises:
        HierringError: it does not come up; quotes the daemons' logs.
    """

    def __init__(
        self,
        nodes: int = 4,
        *,
        cpus: int = 8,
        kill_wait_s: int = 15,
        share: Sequence[str | Path] = (),
    ) -> None:
        self._stack = contextlib.ExitStack()
        self._daemons: dict[str, subprocess.Popen[Any]] = {}
        try:
            folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="slurm-"))
            self.folder = Path(folder)
            self._stack.callback(self._reap)
            self.cluster = self._stack.enter_context(VirtualCluster(nodes, share=[folder, *share]))
            write_configuration(self.folder, self.cluster.nodes, cpus, kill_wait_s)
            self._start()
        except BaseException:
            self.close()
            raise

    @property
    def environ(self) -> dict[str, str]:
        """The environment in which SLURM's commands find this SLURM."""
        return {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def run(
        self,
        argv: Sequence[str | Path],
        *,
        environ: Mapping[str, str] | None = None,
        node: str | None = None,
        timeout: float = 60.0,
        cwd: str | Path | None = None,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the head, or in a node, to its end.

        Raises:
            HierringError: it fails, and `check` says that it should not; quotes its output.
        """
        done: subprocess.CompletedProcess[str] = self.cluster.run(
            argv,
            node=node,
            cwd=cwd,
            timeout=timeout,
            env={**self.environ, **(environ or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if check and done.returncode != 0:
            raise HierringError(
                f"`{' '.join(map(str, argv))}` ended with {done.returncode}:\n{done.stdout}\n"
                f"{done.stderr}\n{self.logs()}"
            )
        return done

    def launch(self, *arguments: str, cwd: Path, **environ: str) -> str:
        """Submit a job by `hierring launch` from the head; returns its number."""
        command = [sys.executable, "-m", "hierring", "launch", *arguments]
        shown = self.run(command, cwd=cwd, environ=environ).stdout
        return shown.removeprefix("submitted job ").partition(";")[0]

    def output(self, job_id: str) -> str:
        """Return what a job has written to its log until now."""
        path = Path(self.job(job_id)["StdOut"])
        return path.read_text(errors="replace") if path.exists() else ""

    def wait_for_output(self, job_id: str, word: str, times: int = 1) -> None:
        """Wait until a job's log has a word so many times.

        Raises:
            HierringError: it has not in time; quotes the log.
        """
        try:
            self.until(lambda: self.output(job_id).count(word) >= times, f"{word!r} in the log")
        except HierringError as error:
            raise HierringError(f"{error}\n==== job {job_id}\n{self.output(job_id)}") from error

    def files_of_nodes(self) -> set[str]:
        """Return the names in each node's /dev/shm and /tmp."""
        return {
            f"{node.name}: {line}"
            for node in self.cluster.nodes
            for line in self.run(
                ["find", "/dev/shm", "/tmp", "-mindepth", "1", "-maxdepth", "1"], node=node.name
            ).stdout.splitlines()
        }

    def job(self, job_id: str) -> dict[str, str]:
        """Return what SLURM knows of a job, by SLURM's names (`JobState`, `ExitCode`, ...)."""
        shown = self.run(["scontrol", "--oneliner", "show", "job", job_id]).stdout
        return dict(word.split("=", 1) for word in shown.split() if "=" in word)

    def wait(self, job_id: str, limit_s: float = 60.0) -> dict[str, str]:
        """Wait for the end of a job.

        Raises:
            HierringError: it has not ended in time; quotes the logs.
        """
        known: dict[str, str] = {}

        def ended() -> bool:
            known.update(self.job(job_id))
            return known["JobState"] in _DONE

        self.until(ended, f"job {job_id} to end", limit_s)
        return known

    def until(self, condition: Callable[[], bool], what: str, limit_s: float = _UP_S) -> None:
        """Wait for a condition of daemons that can only be asked.

        Raises:
            HierringError: it does not come true in time, or a daemon has ended; quotes the logs.
        """
        deadline = time.monotonic() + limit_s
        while not condition():
            for name, daemon in self._daemons.items():
                if daemon.poll() is not None:
                    raise HierringError(f"{name} ended with {daemon.returncode}\n{self.logs()}")
            if time.monotonic() > deadline:
                raise HierringError(f"waited {limit_s:.0f} s for {what}\n{self.logs()}")
            time.sleep(0.05)

    def logs(self) -> str:
        """Return the ends of all logs."""
        parts = []
        for path in sorted(self.folder.glob("*.log")):
            lines = path.read_text(errors="replace").splitlines()[-25:]
            parts += [f"==== {path.name}", *lines]
        return "\n".join(parts)

    def close(self) -> None:
        """End the daemons with the cluster, and remove the directory."""
        self._stack.close()

    def __enter__(self) -> SlurmCluster:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # ---- bring-up

    def _start(self) -> None:
        """Start the daemons and wait until every node is idle."""
        files = {"key-file": "munge.key", "socket": "munge.socket", "pid-file": "munged.pid"}
        files["seed-file"] = "munge.seed"
        options = [f"--{option}={self.folder / name}" for option, name in files.items()]
        # --force: it runs as root here, which it would refuse.
        self._daemon("munged", ["munged", "--foreground", "--force", *options])
        self.until((self.folder / "munge.socket").is_socket, "munged")
        self._daemon("slurmctld", ["slurmctld", "-D"])
        for node in self.cluster.nodes:
            self._daemon(f"slurmd-{node.name}", ["slurmd", "-D", "-N", node.name], node.name)
        self.until(self._all_idle, "idle nodes")

    def _daemon(self, name: str, argv: list[str], node: str | None = None) -> None:
        program = _find(argv[0])
        assert program is not None
        with (self.folder / f"{name}.log").open("wb") as output:
            self._daemons[name] = self.cluster.popen(
                [program, *argv[1:]],
                node=node,
                cwd="/",
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def _reap(self) -> None:
        """Wait for the daemons, which have ended with the cluster."""
        for daemon in self._daemons.values():
            daemon.wait(timeout=_DOWN_S)

    def _all_idle(self) -> bool:
        shown = self.run(["sinfo", "--noheader", "--Node", "--format=%T"], check=False)
        states = shown.stdout.split()
        return shown.returncode == 0 and states == ["idle"] * len(self.cluster.nodes)


def _find(program: str) -> str | None:
    """Find an administrator's program, too, which a user's PATH may lack."""
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
