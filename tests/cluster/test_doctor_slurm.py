"""`hierring doctor` under a real srun: with the PMI that fits, and without any."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from hierring._testing.slurm import SlurmCluster

pytestmark = pytest.mark.slow
DOCTOR = (sys.executable, "-P", "-m", "hierring", "doctor", "--json", "--timeout", "10")


def srun(slurm: SlurmCluster, *options: str) -> subprocess.CompletedProcess[str]:
    return slurm.run(["srun", *options, *DOCTOR], check=False, timeout=90)


def test_fitting_plugin(slurm: SlurmCluster, pmi: str) -> None:
    done = srun(slurm, "-N", "2", "-n", "3", f"--mpi={pmi}")
    assert done.returncode == 0, done.stdout + done.stderr
    values = json.loads(done.stdout)
    assert values["hostnames"] == ["node0", "node0", "node1"]
    whats = [finding["what"] for finding in values["findings"]]
    assert [what for what in whats if what.startswith(f"srun --mpi={pmi} starts")]
    assert "3 ranks by MPI's count; started by slurmstepd" in whats


def test_no_plugin(slurm: SlurmCluster) -> None:
    """N silent worlds of one: rank 0 tells all, one process of the other node its error."""
    done = srun(slurm, "-N", "2", "-n", "3", "--mpi=none")
    assert done.returncode == 1
    (error,) = [f for f in json.loads(done.stdout)["findings"] if f["level"] == "error"]
    assert "=3, but MPI's COMM_WORLD has 1 process" in error["what"]
    assert "srun --mpi=pmi2" in error["remedy"]
    assert "srun --mpi=pmix" in error["remedy"]
    told = [line for line in done.stderr.splitlines() if line.startswith("hierring doctor:")]
    assert told == [f"hierring doctor: rank 2: node1: {error['what']}"]
