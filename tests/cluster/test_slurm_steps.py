"""What srun tells its tasks, truly and falsely, and what hierring makes of it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hierring._testing.slurm import SlurmCluster

JOB = [sys.executable, str(Path(__file__).with_name("slurm_job.py"))]


def result(text: str) -> dict[str, Any]:
    (line,) = re.findall(r"RESULT (.*)", text)
    found: dict[str, Any] = json.loads(line)
    return found


def srun(
    slurm: SlurmCluster, folder: Path, *options: str, program: Sequence[str], check: bool = True
) -> subprocess.CompletedProcess[str]:
    command = ["srun", "--kill-on-bad-exit=1", *options, *program]
    return slurm.run(command, cwd=folder, check=check)


def test_the_wrong_pmi_is_refused_and_never_a_wrong_sum(
    slurm: SlurmCluster, slurm_folder: Path
) -> None:
    done = srun(
        slurm, slurm_folder, "-N2", "-n4", "--mpi=none", program=[*JOB, "where"], check=False
    )
    assert done.returncode != 0
    assert "RESULT" not in done.stdout
    assert "SLURM_NTASKS=4, but MPI's COMM_WORLD has 1 process" in done.stderr
    assert "`srun --mpi=pmi2` (MPICH, Intel MPI)" in done.stderr
    assert "`srun --mpi=pmix` (Open MPI)" in done.stderr


@pytest.mark.parametrize(
    ("options", "nodes"),
    [
        (("-N2", "-n3"), [[0, 1], [2]]),
        (("-N2", "-n3", "--distribution=cyclic"), [[0, 2], [1]]),
        (("-N3", "-n4", "--distribution=cyclic"), [[0, 3], [1], [2]]),
    ],
)
def test_any_placement(
    slurm: SlurmCluster,
    slurm_folder: Path,
    pmi: str,
    options: tuple[str, ...],
    nodes: list[list[int]],
) -> None:
    done = srun(slurm, slurm_folder, f"--mpi={pmi}", *options, program=[*JOB, "where"])
    found = result(done.stdout)
    assert found["nodes"] == nodes
    size = sum(map(len, nodes))
    assert (found["size"], found["total"]) == (size, size * (size + 1) // 2)


def test_intel_mpi(slurm: SlurmCluster, slurm_folder: Path) -> None:
    """Its wheel wants a virtual environment of its own, which a variable names."""
    python = os.environ.get("HIERRING_TEST_IMPI_PYTHON")
    if not python:
        pytest.skip("HIERRING_TEST_IMPI_PYTHON names no Python with Intel MPI")
    program = [python, *JOB[1:], "where"]
    options = ("--mpi=pmi2", "-N2", "--ntasks-per-node=2")
    found = result(srun(slurm, slurm_folder, *options, program=program).stdout)
    assert (found["nodes"], found["total"]) == ([[0, 1], [2, 3]], 10)


def test_variables_that_lie_change_nothing(
    slurm: SlurmCluster, slurm_folder: Path, pmi: str
) -> None:
    """MPI knows how many ranks there are, and shared memory who shares it."""
    lies = ["env", "SLURM_NTASKS=64", "SLURM_JOB_NUM_NODES=9", "SLURM_LOCALID=0", "SLURM_NODEID=5"]
    lies += ["SLURM_JOB_NODELIST=elsewhere[1-9]", "SLURM_TASKS_PER_NODE=7(x9)"]
    done = srun(slurm, slurm_folder, f"--mpi={pmi}", "-N2", "-n3", program=[*lies, *JOB, "where"])
    found = result(done.stdout)
    assert (found["nodes"], found["total"]) == ([[0, 1], [2]], 6)
    assert not [host for host in found["hosts"] if "elsewhere" in host]


def test_real_variables_are_read_without_contradiction(
    slurm: SlurmCluster, slurm_folder: Path
) -> None:
    """A job of five tasks on three nodes, and in it a step of three on two."""
    program = " ".join([*JOB, "allocation"])
    step = f"srun --mpi=none -N2 -n3 {program}"
    done = slurm.run(
        ["salloc", "-N3", "-n5", "-c2", "sh", "-c", f"{program} && {step}"], cwd=slurm_folder
    )
    job, inner = (json.loads(line) for line in re.findall(r"RESULT (.*)", done.stdout))
    assert job["nodes"] == sorted(set(job["nodes"]))
    assert (len(job["tasks_per_node"]), sum(job["tasks_per_node"]), job["num_tasks"]) == (3, 5, 5)
    assert (job["in_step"], job["cpus_per_task"], job["conflicts"]) == (False, 2, [])
    assert inner["nodes"] == job["nodes"][:2]
    assert (sorted(inner["tasks_per_node"]), inner["num_tasks"]) == ([1, 2], 3)
    assert (inner["in_step"], inner["conflicts"]) == (True, [])
    assert job["job_id"] == inner["job_id"]


def test_a_batch_script_that_forgot_srun_is_warned(slurm: SlurmCluster, slurm_folder: Path) -> None:
    command = " ".join([*JOB, "where"])
    submitted = slurm.run(
        ["sbatch", "--parsable", "-N2", "-n4", f"--wrap={command}"], cwd=slurm_folder
    )
    job = submitted.stdout.strip()
    slurm.wait(job)
    log = slurm.output(job)
    assert result(log)["size"] == 1
    assert "SLURM_NTASKS=4, but this is one process alone: was `srun`" in log
