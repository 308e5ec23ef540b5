"""`hierring doctor` on real launches, good and bad: one report, its verdict, and no hang."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hierring.launch.mpi import Launcher

pytestmark = pytest.mark.slow
NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="making a mount namespace needs root")
DOCTOR = ("-m", "hierring", "doctor")
LAUNCHED = ("PMI", "OMPI", "SLURM", "PRTE", "HIERRING")


def tmpfs(options: str) -> tuple[str, ...]:
    """A command prefix that puts another /dev/shm before the program."""
    script = f'mount -t tmpfs -o {options} tmpfs /dev/shm && exec "$@"'
    return ("unshare", "--mount", "sh", "-c", script, "sh")


def alone(
    *around: str, **environ: str
) -> tuple[subprocess.CompletedProcess[str], dict[str, list[dict[str, Any]]]]:
    """Run the doctor without a launcher; the process, and its findings by level."""
    done = subprocess.run(
        [*around, sys.executable, "-P", *DOCTOR, "--json"],
        env={k: v for k, v in os.environ.items() if not k.startswith(LAUNCHED)} | environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done, by_level(done.stdout)


def by_level(text: str) -> dict[str, list[dict[str, Any]]]:
    """The findings of the one report that was printed."""
    found: dict[str, list[dict[str, Any]]] = {"error": [], "warning": [], "note": [], "ok": []}
    for finding in json.loads(text)["findings"]:
        found[finding["level"]].append(finding)
    return found


def topics(findings: list[dict[str, Any]]) -> set[str]:
    return {finding["topic"] for finding in findings}


def test_alone() -> None:
    done, found = alone()
    assert done.returncode == 0, found["error"]
    assert json.loads(done.stdout)["size"] == 1
    assert {"mpi library", "mpiexec", "threads", "shared memory", "kernels", "all-reduce"} <= (
        topics(found["ok"])
    )


@pytest.mark.parametrize("size", [1, 4])
def test_all_ranks_look_and_one_prints(launch: Callable[..., Any], size: int) -> None:
    job = launch(size, program=(*DOCTOR, "--json")).wait(120).check()
    values = json.loads(job.stdout)
    assert values["size"] == size
    ranks = {finding["topic"]: finding["ranks"] for finding in values["findings"]}
    for topic in ("mpi library", "launch", "threads", "kernels", "process memory"):
        assert ranks[topic] == list(range(size)), topic
    (launcher,) = [found for found in values["findings"] if found["topic"] == "launcher"]
    assert (launcher["level"], launcher["ranks"]) == ("ok", list(range(size)))


def test_text_is_printed_once(launch: Callable[..., Any]) -> None:
    job = launch(3, program=DOCTOR).wait(120).check()
    assert job.stdout.startswith("hierring doctor: 3 ranks on 1 node (")
    assert job.stdout.count("hierring doctor") == job.stdout.count("MPI library:") == 1


# What a launcher of another MPI leaves in the environment.
FOREIGN = {
    "mpich": {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "0"},
    "openmpi": {"PMI_SIZE": "4", "PMI_RANK": "0"},
}


def test_launcher_of_another_mpi() -> None:
    done, found = alone(**FOREIGN[Launcher.beside().vendor])
    assert done.returncode == 1
    (error, *_) = [one for one in found["error"] if one["topic"] == "launch"]
    assert "=4, but MPI's COMM_WORLD has 1 process" in error["what"]


def test_torchrun() -> None:
    done, found = alone(WORLD_SIZE="4", RANK="0")
    assert done.returncode == 1
    assert "mpiexec -n 4" in found["error"][0]["remedy"]


def test_processes_that_find_no_peers_print_one_report() -> None:
    """As under a launcher that this MPI does not know: each is a world of its own."""
    script = (
        'for rank in 0 1 2; do RANK=$rank WORLD_SIZE=3 "$@" & jobs="$jobs $!"; done; '
        "for job in $jobs; do wait $job || status=$?; done; exit $status"
    )
    done, found = alone("sh", "-c", script, "sh")
    assert done.returncode == 1
    assert topics(found["error"]) == {"launch"}


def test_no_mpi_library() -> None:
    done, found = alone(MPI4PY_LIBMPI="/nowhere/libmpi.so")
    assert done.returncode == 1
    (error,) = found["error"]
    assert "/nowhere/libmpi.so" in error["what"]
    assert "pip install" in error["remedy"]
    assert {"shared memory", "kernels", "binding"} <= topics(found["ok"])


def test_no_mpi4py(tmp_path: Path) -> None:
    (tmp_path / "mpi4py.py").write_text("raise ModuleNotFoundError(\"No module named 'mpi4py'\")")
    done, found = alone(PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert "mpi4py is not installed" in found["error"][0]["what"]


def test_wrong_setting_on_all_ranks(launch: Callable[..., Any]) -> None:
    job = launch(2, program=(*DOCTOR, "--json"), settings={"HIERRING_LEADER": "2"}).wait(120)
    assert job.code != 0
    (error,) = by_level(job.stdout)["error"]
    assert "unknown variable HIERRING_LEADER" in error["what"]
    assert error["ranks"] == [0, 1]


def test_ranks_on_one_cpu_are_one_warning(launch: Callable[..., Any]) -> None:
    cpu = min(os.sched_getaffinity(0))
    around = ("taskset", "-c", str(cpu))
    job = launch(4, program=(*DOCTOR, "--json"), around=around).wait(120).check()
    (warning,) = by_level(job.stdout)["warning"]
    assert f"ranks 0-3 on {os.uname().nodename} share CPU {cpu};" in warning["what"]


def test_other_jobs_on_the_same_cpu() -> None:
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("needs two CPUs: all processes of a machine with one share it")
    bound = ("taskset", "-c", str(cpus[-1]))
    # It has worked before it speaks, and goes on.
    work = "sum(range(10**6)); print(flush=True)\nwhile True: pass"
    stranger = subprocess.Popen([*bound, sys.executable, "-c", work], stdout=subprocess.PIPE)
    try:
        assert stranger.stdout is not None
        assert stranger.stdout.readline() == b"\n"
        _, found = alone(*bound)
        (warning,) = [one for one in found["warning"] if f"(pid {stranger.pid})" in one["what"]]
        assert f"bound to CPU {cpus[-1]} of ours" in warning["what"]
    finally:
        stranger.kill()
        stranger.communicate()


@NEEDS_ROOT
def test_shared_memory_too_small_for_mpi_or_for_speed(launch: Callable[..., Any]) -> None:
    """MPICH itself needs more than this and ends by SIGBUS; Open MPI goes on without."""
    job = launch(4, program=(*DOCTOR, "--json"), around=tmpfs("size=200k")).wait(120)
    found = by_level(job.stdout[: job.stdout.rindex("}") + 1])
    if Launcher.beside().vendor == "openmpi":
        job.check()
        (warning,) = [one for one in found["warning"] if one["topic"] == "shared memory"]
        assert "/dev/shm has 200 KiB" in warning["what"]
        assert "smaller cells" in warning["why"]
    else:
        assert job.code != 0
        (error,) = found["error"]
        assert "SIGBUS while starting MPI" in error["what"]
        assert "--shm-size" in error["remedy"]


@NEEDS_ROOT
def test_shared_memory_too_small_for_hierring(launch: Callable[..., Any]) -> None:
    """Open MPI leaves so little alone; MPICH needs some MiB first, so the cells are made larger."""
    openmpi = Launcher.beside().vendor == "openmpi"
    job = launch(
        4,
        program=(*DOCTOR, "--json"),
        around=tmpfs("size=24k" if openmpi else "size=6m"),
        settings={} if openmpi else {"HIERRING_CELL_BYTES": "1M"},
    ).wait(120)
    found = by_level(job.stdout)
    if openmpi:
        assert job.code != 0
        assert topics(found["error"]) == {"shared memory", "all-reduce"}
        assert any("SharedMemoryError" in error["what"] for error in found["error"])
    else:
        job.check()
        (warning,) = [one for one in found["warning"] if one["topic"] == "shared memory"]
        assert "smaller cells" in warning["why"]


def test_mpi_that_splits_otherwise(launch: Callable[..., Any]) -> None:
    """MPICH can be told to see more nodes than there are; Open MPI where memory is not shared."""
    openmpi = Launcher.beside().vendor == "openmpi"
    if openmpi and os.geteuid() != 0:
        pytest.skip("making a mount namespace needs root")
    job = launch(
        4,
        program=(*DOCTOR, "--json"),
        around=tmpfs("size=8m,ro") if openmpi else (),
        settings={"MPIR_CVAR_NUM_CLIQUES": "2"},
    )
    nodes = (1, 4) if openmpi else (2, 1)
    whats = [one["what"] for one in by_level(job.wait(120).check().stdout)["warning"]]
    split = f"number of nodes by MPI's own split: {nodes[0]}, by the probe: {nodes[1]}."
    assert [what for what in whats if what.startswith(split)]


def test_rank_that_does_not_come(launch: Callable[..., Any]) -> None:
    """Rank 1 starts MPI and waits for the end; rank 0 says so and does not wait for ever."""
    program = (
        "import os, select, sys\n"
        "rank = os.environ.get('PMI_RANK') or os.environ['OMPI_COMM_WORLD_RANK']\n"
        "if rank == '0': os.execv(sys.executable, [sys.executable, '-P', *sys.argv[1:]])\n"
        "from mpi4py import MPI\n"
        "select.select([], [], [], 100)"
    )
    job = launch(2, program=("-c", program, *DOCTOR, "--json", "--timeout", "2")).wait(60)
    assert job.code != 0
    (error,) = by_level(job.stdout)["error"]
    assert error["topic"] == "ranks"
    assert "waited 2 s" in error["what"]


@NEEDS_ROOT
def test_ranks_that_may_not_read_each_others_memory(launch: Callable[..., Any]) -> None:
    """Each in a user namespace of its own, as in containers: hierring does without, MPI may not."""
    enter = (
        "import os, sys\n"
        "os.execvp('unshare', ['unshare', '-Ur', sys.executable, '-P', *sys.argv[1:]])"
    )
    job = launch(2, program=("-c", enter, *DOCTOR, "--json")).wait(120).check()
    found = by_level(job.stdout)
    (note,) = [one for one in found["note"] if one["topic"] == "process memory"]
    assert note["ranks"] == [0, 1]
    assert "all-reduce" in topics(found["ok"])
