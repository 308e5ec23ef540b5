"""Starting a program that imports hierring: what launchers have left in the environment is idle.

Wrong PMIs, uneven steps and variables that lie are in `test_slurm_*.py`, under a real SLURM.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from hierring.launch.mpi import Launcher

pytestmark = pytest.mark.slow
# Of launchers that are not there: starting MPI would look for them.
STALE = {
    "SLURM_PROCID": "0",
    "SLURM_STEP_ID": "0",
    "PMIX_RANK": "0",
    "PMIX_NAMESPACE": "gone",
    "PMI_FD": "77",
    "PMI_RANK": "0",
    "PMI_SIZE": "4",
}


def python(code: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    return subprocess.run(
        [sys.executable, "-P", "-c", code, *arguments],
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_import_does_not_start_mpi_and_so_survives_stale_variables() -> None:
    done = python("import hierring, hierring.launch; print('here')", **STALE)
    assert (done.returncode, done.stdout, done.stderr) == (0, "here\n", "")


def test_a_program_that_has_imported_it_can_start_an_mpi_job() -> None:
    """Had the import started MPI, the job would inherit the variables of that start."""
    launcher = Launcher.beside()
    ranks = "import os, hierring as hr; os.write(1, b'SUM %d\\n' % hr.allreduce(hr.rank() + 1))"
    start = [str(launcher.mpiexec), *launcher.options(), "-n", "2", sys.executable, "-P", "-c"]
    code = """
import json, subprocess, sys
import hierring
sys.exit(subprocess.call(json.loads(sys.argv[1])))
"""
    done = python(code, json.dumps([*start, ranks]))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("SUM 3\n") == 2
