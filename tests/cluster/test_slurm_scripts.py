"""The batch scripts that come with the package, submitted to a real SLURM."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from hierring._testing.slurm import SlurmCluster

JOB = str(Path(__file__).with_name("slurm_job.py"))
# In place of Apptainer: checks its call and becomes the program.
APPTAINER = """#!/bin/sh
[ "$1 $2 $3 $4 $5 $6" = "exec --bind $PWD --pwd $PWD train.sif" ] || exit 64
shift 6
SEEN_IN_CONTAINER=1 exec "$@"
"""


def submit(
    slurm: SlurmCluster, folder: Path, pmi: str, name: str, *command: str
) -> tuple[dict[str, str], str]:
    """Print a script as a user does, submit it with other sizes, wait; returns state and log."""
    script = folder / f"{name}.sbatch"
    with script.open("wb") as file:
        printer = [sys.executable, "-P", "-m", "hierring", "launch", "--script", name]
        subprocess.run(printer, stdout=file, check=True, timeout=60)
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    # Not a link: a virtual environment's Python must be called by its own path.
    (programs / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (programs / "python").chmod(0o755)
    path = f"{programs}:{os.environ['PATH']}"
    # The script's own sizes are for a cluster; the options of a command line go before them.
    options, program = command[: command.index("--")], command[command.index("--") + 1 :]
    shown = slurm.run(
        ["sbatch", "--parsable", "--cpus-per-task=2", *options, script, *program],
        cwd=folder,
        environ={"PATH": path, "PMI": pmi},
    ).stdout
    state = slurm.wait(shown.strip())
    log = slurm.output(shown.strip())
    assert (state["JobState"], state["ExitCode"]) == ("COMPLETED", "0:0"), log
    assert (folder / state["StdOut"].rpartition("/")[2]).exists()
    return state, log


def result(log: str) -> dict[str, Any]:
    (line,) = re.findall(r"RESULT (.*)", log)
    found: dict[str, Any] = json.loads(line)
    return found


def test_cpu_trains_the_demo_on_four_nodes(
    slurm: SlurmCluster, slurm_folder: Path, pmi: str
) -> None:
    before = slurm.files_of_nodes()
    sizes = ("--nodes=4", "--ntasks-per-node=1")
    state, log = submit(slurm, slurm_folder, pmi, "cpu", *sizes, "--", "-m", "hierring", "demo")
    assert "hierring: 4 ranks on 4 nodes [1, 1, 1, 1]" in log
    assert re.findall(r"^(ok|FAILED) ", log, re.MULTILINE) == ["ok"] * 4
    assert state["StdOut"].endswith(f"train-{state['JobId']}.out")
    assert (state["TimeLimit"], state["Requeue"], state["CPUs/Task"]) == ("01:00:00", "1", "2")
    assert slurm.files_of_nodes() <= before


def test_gpu_gives_each_rank_the_gpus_of_its_node(
    slurm: SlurmCluster, slurm_folder: Path, pmi: str
) -> None:
    sizes = ("--ntasks-per-node=2", "--gpus-per-node=2")
    state, log = submit(slurm, slurm_folder, pmi, "gpu", *sizes, "--", JOB, "where")
    found = result(log)
    assert (found["nodes"], found["total"]) == ([[0, 1], [2, 3]], 10)
    assert found["gpus"] == "0,1"
    assert found["threads"] == "2"
    assert state["TresPerNode"] in ("gres:gpu:2", "gres/gpu:2")


def test_container_starts_one_for_each_rank(
    slurm: SlurmCluster, slurm_folder: Path, pmi: str
) -> None:
    programs = slurm_folder / "bin"
    programs.mkdir()
    (programs / "apptainer").write_text(APPTAINER)
    (programs / "apptainer").chmod(0o755)
    code = (
        "import os, runpy, sys; assert os.environ['SEEN_IN_CONTAINER'] == '1';"
        "sys.argv.remove('-c'); runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    sizes = ("--ntasks=3", "--ntasks-per-node=2")
    _, log = submit(slurm, slurm_folder, pmi, "container", *sizes, "--", "-c", code, JOB, "where")
    found = result(log)
    assert (found["nodes"], found["total"]) == ([[0, 1], [2]], 6)
