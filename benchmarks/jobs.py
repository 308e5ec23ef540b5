"""Runs `hierring bench` as a job on this machine, on one node or on virtual ones."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hierring.benchmarks.result import Result, load
from hierring.errors import ConfigurationError, HierringError
from hierring.launch.mpi import Launcher

__all__ = ["Layout", "bench_on_nodes", "ratio_text", "time_text"]

_LAST_LINES = 15
_GRACE_S = 15.0


@dataclass(frozen=True)
class Layout:
    """Which ranks lie where, written "2x4" or "cyclic:2x4": nodes times ranks on each."""

    nodes: int
    ranks: int
    placement: str = "block"

    @classmethod
    def parse(cls, text: str) -> Layout:
        """Read one.

        Raises:
            ConfigurationError: it is none.
        """
        placement, _, numbers = text.rpartition(":")
        nodes, _, ranks = numbers.partition("x")
        good = all(word.isascii() and word.isdigit() and int(word) > 0 for word in (nodes, ranks))
        if not good or placement not in ("", "block", "cyclic"):
            raise ConfigurationError(f"{text!r} is no layout: write 2x4, or cyclic:2x4")
        return cls(int(nodes), int(ranks), placement or "block")

    @property
    def size(self) -> int:
        """All ranks."""
        return self.nodes * self.ranks

    def __str__(self) -> str:
        shape = f"{self.nodes}x{self.ranks}"
        return shape if self.placement == "block" else f"{self.placement}:{shape}"


def bench_on_nodes(
    layout: Layout,
    options: Sequence[str],
    *,
    python: str = sys.executable,
    rate: str | None = None,
    settings: Mapping[str, str] | None = None,
    limit_s: float = 600.0,
) -> Result:
    """Run one job to its end: on virtual nodes, or by mpiexec alone if there is but one node.

    Args:
        options: of `hierring bench`, but for its files.
        python: of the environment whose MPI library and mpiexec to use.
        rate: of the links between nodes, as `1gbit`; None for no limit.
        settings: environment variables for the ranks.
        limit_s: after which it is given up.

    Raises:
        HierringError: it failed, or took too long; with its last lines.
    """
    with _ended_by_sigterm(), tempfile.TemporaryDirectory(prefix="hierring-bench-") as folder:
        file = Path(folder) / "result.json"
        program = [python, "-P", "-m", "hierring", "bench", *options, "--json", str(file)]
        if layout.nodes == 1:
            command = Launcher.beside(python).command(layout.ranks, program)
        else:
            command = [python, "-P", "-m", "hierring", "cluster", "run"]
            command += ["--nodes", str(layout.nodes), "--ranks-per-node", str(layout.ranks)]
            command += ["--placement", layout.placement, "--share", folder]
            command += ["--rate", rate] if rate else []
            command += ["--", *program]
        code, output = _attend(command, folder, {**os.environ, **(settings or {})}, limit_s)
        if code != 0:
            last = "\n".join(output.splitlines()[-_LAST_LINES:])
            raise HierringError(f"{shlex.join(command)} exited with {code}:\n{last}")
        return load(file)


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM raise, as Ctrl-C does: the job ends with this process, and its files go."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may say what a signal does
        return
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _attend(
    command: Sequence[str], folder: str, environ: Mapping[str, str], limit_s: float
) -> tuple[int, str]:
    """Run a launcher to its end, or end it; its exit status and what it printed."""
    process = subprocess.Popen(
        command, cwd=folder, env=environ, text=True, errors="replace", start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=limit_s)
        return process.returncode, output
    except subprocess.TimeoutExpired as error:
        raise HierringError(f"{shlex.join(command)} took more than {limit_s:g} s") from error
    finally:
        if process.returncode is None:
            _stop(process)


def _stop(process: subprocess.Popen[str]) -> None:
    """Launchers end their ranks at SIGTERM; what is left after a while is killed."""
    process.terminate()
    try:
        process.communicate(timeout=_GRACE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def time_text(seconds: float) -> str:
    """A time with three digits and its unit."""
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def ratio_text(median: float, low: float, high: float) -> str:
    """A ratio with its quartiles."""
    return f"{median:.2f} ({low:.2f} to {high:.2f})"
