"""Runs `hierring bench` as a job on virtual nodes of this machine, and reads what it found."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hierring.benchmarks.result import Result, load
from hierring.errors import ConfigurationError, HierringError

__all__ = ["Layout", "bench_on_nodes", "ratio_text", "time_text"]

_LAST_LINES = 15


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
    limit_s: float = 300.0,
) -> Result:
    """Run one job to its end.

    Args:
        options: of `hierring bench`, but for its files.
        python: of the environment whose MPI library and mpiexec to use.
        rate: of the links between nodes, as `1gbit`; None for no limit.
        settings: environment variables for the ranks.
        limit_s: after which it is given up.

    Raises:
        HierringError: it failed, or took too long; with its last lines.
    """
    with tempfile.TemporaryDirectory(prefix="hierring-bench-") as folder:
        file = Path(folder) / "result.json"
        command = [python, "-P", "-m", "hierring", "cluster", "run"]
        command += ["--nodes", str(layout.nodes), "--ranks-per-node", str(layout.ranks)]
        command += ["--placement", layout.placement, "--share", folder]
        command += ["--rate", rate] if rate else []
        command += ["--", python, "-P", "-m", "hierring", "bench", *options, "--json", str(file)]
        try:
            done = subprocess.run(
                command, cwd=folder, env={**os.environ, **(settings or {})}, text=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                timeout=limit_s, check=False, errors="replace",
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise HierringError(f"{shlex.join(command)} took more than {limit_s:g} s") from error
        if done.returncode != 0:
            last = "\n".join(done.stdout.splitlines()[-_LAST_LINES:])
            raise HierringError(f"{shlex.join(command)} exited with {done.returncode}:\n{last}")
        return load(file)


def time_text(seconds: float) -> str:
    """A time with three digits and its unit."""
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def ratio_text(median: float, low: float, high: float) -> str:
    """A ratio with its quartiles."""
    return f"{median:.2f} ({low:.2f} to {high:.2f})"
