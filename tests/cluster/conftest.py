"""Starts MPI jobs for tests that watch a whole job from outside; pytest itself stays without MPI.

Every job has a process group of its own and a time limit; at its end only that family is ended.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hierring._testing.slurm import SlurmCluster, missing_for_slurm
from hierring.launch.mpi import Launcher, loaded_library
from hierring.launch.slurm.pmi import choose_plugin, parse_list

HERE = Path(__file__).resolve().parent
SHIELD = str(HERE / "shield.py")


def load_run_spmd() -> ModuleType:
    """Load the program beside the tests that starts jobs and ends them."""
    spec = importlib.util.spec_from_file_location("run_spmd", HERE.parent / "run_spmd.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["run_spmd"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session", autouse=True)
def _what_killed_mpich_jobs_leave() -> Iterator[None]:
    """Remove the files of MPICH's own that ranks killed by these tests could not remove."""
    shm = Path("/dev/shm")
    before = set(shm.glob("mpich_shm_*"))
    yield
    maps = ""
    for process in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            maps += process.read_text(errors="replace")
    for file in set(shm.glob("mpich_shm_*")) - before:
        if str(file) not in maps:
            file.unlink(missing_ok=True)


@dataclass
class Job:
    """A running or finished job."""

    process: subprocess.Popen[bytes]
    folder: Path
    started: float
    seconds: float = 0.0
    results: list[dict[str, Any]] = field(default_factory=list)

    @property
    def stdout(self) -> str:
        return (self.folder / "stdout").read_text(errors="replace")

    @property
    def stderr(self) -> str:
        return (self.folder / "stderr").read_text(errors="replace")

    @property
    def code(self) -> int:
        assert self.process.returncode is not None
        return self.process.returncode

    def wait(self, limit_s: float) -> Job:
        """Wait for the end; a job that takes longer fails the test."""
        try:
            self.process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            text = f"{self.stdout[-3000:]}\n{self.stderr[-3000:]}"
            pytest.fail(f"the job has not ended within {limit_s:.0f} s\n{text}")
        self.seconds = time.monotonic() - self.started
        self.results = [
            json.loads(line.partition("RESULT ")[2])
            for line in self.stdout.splitlines()
            if "RESULT " in line
        ]
        return self

    def wait_for_line(self, word: str, times: int, limit_s: float = 30.0) -> None:
        """Wait until a word has been printed so many times."""
        deadline = time.monotonic() + limit_s
        while self.stdout.count(word) < times:
            assert time.monotonic() < deadline, f"no {word!r}: {self.stdout}\n{self.stderr}"
            assert self.process.poll() is None, f"ended early: {self.stdout}\n{self.stderr}"
            time.sleep(0.02)

    def check(self) -> Job:
        """Assert an orderly end; without one the output says why."""
        assert self.code == 0, (
            f"exit code {self.code}\n{self.stdout[-3000:]}\n{self.stderr[-3000:]}"
        )
        return self

    def no_crash(self) -> None:
        """Assert that no rank was ended by a memory fault, whatever else happened."""
        text = (self.stdout + self.stderr).lower()
        for word in (
            "bus error",
            "sigbus",
            "segmentation fault",
            "sigsegv",
            "signal 7",
            "signal 11",
        ):
            assert word not in text, text[-3000:]
        assert -self.code not in (signal.SIGBUS, signal.SIGSEGV)


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    """A function that starts `fault_jobs.py ARGUMENTS`, or another program, on so many ranks."""
    run_spmd = load_run_spmd()
    launcher = Launcher.beside()
    jobs: list[Job] = []
    # How to make a killed rank not take the whole job with it.
    let_live, shield = (
        (["--with-ft", "ulfm"], []) if launcher.vendor == "openmpi" else ([], [SHIELD])
    )

    def start(
        size: int,
        *arguments: object,
        nodes: str | None = None,
        options: dict[str, list[str]] | None = None,
        survivable: bool = False,
        around: tuple[str, ...] = (),
        settings: dict[str, str] | None = None,
        program: tuple[str, ...] = (str(HERE / "fault_jobs.py"),),
    ) -> Job:
        folder = tmp_path / f"job{len(jobs)}"
        folder.mkdir()
        command = [
            *around,
            str(launcher.mpiexec),
            *launcher.options(),
            *(options or {}).get(launcher.vendor, []),
            *(let_live if survivable else ()),
            *("-n", str(size), sys.executable, "-P"),
            *(shield if survivable else ()),
            *program,
            *map(str, arguments),
        ]
        with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
            process = subprocess.Popen(
                command,
                env=run_spmd.environment(nodes) | (settings or {}),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        job = Job(process, folder, time.monotonic())
        jobs.append(job)
        return job

    yield start
    for job in jobs:
        run_spmd.end_family(job.process)


@pytest.fixture
def no_leftovers() -> Iterator[None]:
    """Assert that /dev/shm holds no more names of ours after the test than before it."""
    shm = Path("/dev/shm")

    def names() -> set[str]:
        return {path.name for path in shm.glob("hierring-*")}

    before = names()
    yield
    deadline = time.monotonic() + 5  # another job of the machine may be in the midst of its init
    while names() - before and time.monotonic() < deadline:
        time.sleep(0.1)
    assert names() <= before, f"left behind: {names() - before}"


@pytest.fixture(scope="session")
def slurm() -> Iterator[SlurmCluster]:
    """SLURM on four virtual nodes, one for all tests: it takes a second to come up."""
    reason = missing_for_slurm(loaded_library().vendor)
    if reason:
        pytest.skip(reason)
    other = os.environ.get("HIERRING_TEST_IMPI_PYTHON")
    with SlurmCluster(4, share=[Path(other).parent.parent] if other else []) as running:
        yield running


@pytest.fixture
def slurm_folder(slurm: SlurmCluster, request: pytest.FixtureRequest) -> Path:
    """A directory that all nodes see; their /tmp they have each to themselves."""
    folder = slurm.folder / request.node.name.replace("/", "_")
    folder.mkdir()
    return folder


@pytest.fixture(scope="session")
def pmi(slurm: SlurmCluster) -> str:
    """The PMI plugin for the MPI library of this environment."""
    available = parse_list(slurm.run(["srun", "--mpi=list"]).stdout)
    plugin = choose_plugin(loaded_library().vendor, available)
    assert plugin is not None
    return plugin
