"""A job on the nodes of a virtual cluster, as a test starts it and watches it from outside."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, final

from hierring.launch.cluster import VirtualCluster

__all__ = ["MPI_WITHOUT_SHM", "ClusterJob"]

END_S = 10.0
#: Settings that keep MPI from shared memory of its own: it does not find out that it has none, and
#: dies of SIGBUS where there is too little.
MPI_WITHOUT_SHM = {
    "MPIR_CVAR_NOLOCAL": "1",
    "UCX_TLS": "tcp,self",
    "OMPI_MCA_btl": "self,tcp",
    "OMPI_MCA_pml": "ob1",
}


@final
class ClusterJob:
    """Runs a command in the cluster's head; leaving the context ends it.

    Args:
        command: as `VirtualCluster.mpiexec` has made it.
        settings: environment variables beside those of the caller, whose own HIERRING_* are left
            out.
    """

    def __init__(
        self,
        cluster: VirtualCluster,
        command: Sequence[str],
        settings: Mapping[str, str] | None = None,
    ) -> None:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("HIERRING_")}
        self.cluster = cluster
        self._folder = tempfile.TemporaryDirectory(prefix="cluster-job-")
        self._output, self._errors = (Path(self._folder.name, name) for name in ("out", "err"))
        self.started = time.monotonic()
        with self._output.open("wb") as output, self._errors.open("wb") as errors:
            self.process: subprocess.Popen[bytes] = cluster.popen(
                command,
                env={**kept, "OMP_NUM_THREADS": "1", **(settings or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
            )

    def __enter__(self) -> ClusterJob:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.cluster.send_signal(self.process, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(END_S)
        self.process.kill()
        self.process.wait()
        self._folder.cleanup()

    @property
    def output(self) -> str:
        """What it has printed so far."""
        return self._output.read_text(errors="replace")

    @property
    def errors(self) -> str:
        """What it has complained of so far."""
        return self._errors.read_text(errors="replace")

    @property
    def said(self) -> str:
        """The ends of both, for a failed test."""
        return f"exit code {self.process.poll()}\n{self.output[-3000:]}\n{self.errors[-3000:]}"

    def wait_for(self, word: str, times: int = 1, limit_s: float = 30.0) -> None:
        """Wait until a word has been printed so many times, on either stream."""
        until = time.monotonic() + limit_s
        while (self.output + self.errors).count(word) < times:
            assert time.monotonic() < until, f"no {word!r}: {self.said}"
            assert self.process.poll() is None, f"ended before {word!r}: {self.said}"
            time.sleep(0.02)

    def wait(self, limit_s: float = 60.0) -> int:
        """Wait for the end; the exit code."""
        try:
            return self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"not done after {limit_s:.0f} s: {self.said}") from None

    def results(self, limit_s: float = 60.0) -> list[dict[str, Any]]:
        """What the ranks found, in rank order; a job that fails is an error."""
        assert self.wait(limit_s) == 0, self.said
        return self.told()

    def told(self) -> list[dict[str, Any]]:
        """What the ranks have found so far, in rank order."""
        found = [
            json.loads(line.partition("RESULT ")[2])
            for line in self.output.splitlines()
            if "RESULT " in line
        ]
        return sorted(found, key=lambda row: int(row["rank"]))
