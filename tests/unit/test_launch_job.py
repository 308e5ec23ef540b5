"""`hierring launch` in the three places a job is started from; SLURM's programs are stand-ins here.

They print how they were called. The real ones are in tests/cluster/test_slurm_launch.py.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Launch = Callable[..., "subprocess.CompletedProcess[str]"]

SRUN = """#!/bin/sh
if [ "$1" = --mpi=list ]; then printf '\\tnone\\n\\tpmi2\\n\\tpmix\\n'; exit 0; fi
echo "srun $*"
echo "threads $OMP_NUM_THREADS tasks ${SLURM_NTASKS-unset} nodes ${SLURM_JOB_NUM_NODES-unset}"
exit 7
"""
SBATCH = """#!/bin/sh
echo "17;here"
cat > script
echo "sbatch $*" > called
for option; do [ "$option" = --wait ] && exit 9; done
exit 0
"""
JOB = {"SLURM_JOB_ID": "3", "SLURM_NTASKS": "8", "SLURM_JOB_NUM_NODES": "4"}


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    """A function that runs `hierring launch` with stand-ins for SLURM's programs on PATH."""
    (tmp_path / "train.py").write_text("print('trained')\n")
    programs = tmp_path / "bin"
    programs.mkdir()
    # A PATH of our own: this machine may have SLURM.
    for name in ("sh", "cat", "true"):
        (programs / name).symlink_to(f"/bin/{name}")

    def run(
        *arguments: str, slurm: bool = True, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        for name, text in (("srun", SRUN), ("sbatch", SBATCH)):
            if slurm:
                (programs / name).write_text(text)
                (programs / name).chmod(0o755)
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "OMP_", "PMI"))}
        return subprocess.run(
            [sys.executable, "-P", "-m", "hierring", "launch", *arguments],
            cwd=tmp_path,
            env={**kept, "PATH": str(programs), **variables},
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run


def test_outside_an_allocation_it_submits(launch: Launch, tmp_path: Path) -> None:
    done = launch("-N", "2", "--ntasks-per-node", "4", "train.py", "--nodes", "3")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"submitted job 17; its log: {tmp_path}/train-17.out\n"
    assert (tmp_path / "called").read_text() == "sbatch --parsable\n"
    script = (tmp_path / "script").read_text()
    assert "#SBATCH --ntasks-per-node=4\n" in script
    assert script.endswith(f"    {sys.executable} train.py --nodes 3\n")
    # The same is printed by a dry run, which submits nothing.
    (tmp_path / "called").unlink()
    dry = launch("-N", "2", "--ntasks-per-node", "4", "--dry-run", "train.py", "--nodes", "3")
    assert dry.stdout == script
    assert not (tmp_path / "called").exists()


def test_waiting_returns_the_jobs_exit_code(launch: Launch, tmp_path: Path) -> None:
    assert launch("-n", "2", "--wait", "true").returncode == 9
    assert (tmp_path / "called").read_text() == "sbatch --parsable --wait\n"


def test_a_refusal_by_sbatch_is_quoted(launch: Launch, tmp_path: Path) -> None:
    launch("-n", "2", "true")
    (tmp_path / "bin" / "sbatch").write_text("#!/bin/sh\necho 'error: bad partition' >&2; exit 1\n")
    done = launch("-n", "2", "true", slurm=False)
    assert done.returncode == 1
    assert done.stderr == "hierring: sbatch has refused the job (1): error: bad partition\n"


def test_inside_an_allocation_it_becomes_srun(launch: Launch) -> None:
    done = launch("-m", "train", "-N", "9", SLURM_CPUS_PER_TASK="3", **JOB)
    line, threads = done.stdout.splitlines()
    assert done.returncode == 7
    plugin = shlex.split(line)[1]
    assert plugin in ("--mpi=pmi2", "--mpi=pmix")
    assert line == (
        f"srun {plugin} --kill-on-bad-exit=1 --cpu-bind=cores --cpus-per-task=3 "
        f"{sys.executable} -m train -N 9"
    )
    assert threads == "threads 3 tasks 8 nodes 4"


def test_a_smaller_step_takes_no_number_from_its_job(launch: Launch) -> None:
    done = launch("-N", "2", "-n", "3", "--mpi", "cray_shasta", "true", OMP_NUM_THREADS="5", **JOB)
    line, threads = done.stdout.splitlines()
    assert line.startswith("srun --mpi=cray_shasta --nodes=2 --ntasks=3 --kill-on-bad-exit=1 ")
    assert threads == "threads 5 tasks unset nodes unset"


def test_in_the_shell_of_a_step_it_shares_the_steps_cores(launch: Launch) -> None:
    shell = {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_CPUS_PER_TASK": "8"}
    done = launch("-n", "8", "true", **(JOB | shell | {"SLURM_NTASKS": "1"}))
    line = done.stdout.splitlines()[0]
    assert "--overlap" in line
    assert "--cpus-per-task" not in line


def test_what_cannot_be_inside_an_allocation_is_said(launch: Launch) -> None:
    done = launch("--time", "5", "--wait", "true", **(JOB | {"SLURM_JOB_NODELIST": "a,b"}))
    assert "note: --time, --wait: of no effect inside an allocation" in done.stderr
    assert "SLURM_JOB_NODELIST=a,b names 2 nodes, but SLURM_JOB_NUM_NODES=4" in done.stderr
    assert done.returncode == 7


def test_every_task_of_a_step_launching_a_job_is_refused(launch: Launch) -> None:
    done = launch("true", SLURM_STEP_ID="0", SLURM_STEP_NUM_TASKS="4", **JOB)
    assert done.returncode == 2
    assert "srun has already started 4 tasks" in done.stderr
    assert done.stdout == ""


def test_a_container_without_srun_is_told_what_to_do(launch: Launch) -> None:
    done = launch("true", slurm=False, **JOB)
    assert done.returncode == 1
    assert "this is SLURM job 3, but srun is not on PATH" in done.stderr


def test_without_slurm_it_becomes_mpiexec(launch: Launch, tmp_path: Path) -> None:
    # A file of its own for each rank: what two ranks print may come out in one line.
    program = "from mpi4py import MPI; w = MPI.COMM_WORLD; open(f'{w.rank} of {w.size}', 'w')"
    (tmp_path / "size.py").write_text(f"{program}.close()\nraise SystemExit(5)\n")
    done = launch("-n", "2", "--partition=x", "size.py", slurm=False)
    ranks = sorted(path.name for path in tmp_path.glob("* of *"))
    assert ranks == ["0 of 2", "1 of 2"], done.stderr
    assert done.returncode == 5
    assert "--partition: of no effect without SLURM" in done.stderr


def test_several_nodes_without_slurm_are_refused_with_the_ways_out(launch: Launch) -> None:
    done = launch("-N", "2", "-n", "3", "train.py", slurm=False)
    assert done.returncode == 2
    assert "hierring cluster run --nodes 2 --ranks-per-node 2" in done.stderr
    assert "--host" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-N", "2"), "say what to run"),
        (("-n", "2", "-m"), "-m needs the name of a module"),
        (("-n", "2", "absent.py"), "absent.py: there is no such script in"),
        (("-n", "2", "x" * 5000 + ".py"), "xxx: there is no such script in"),
        (("-n", "2", "no-such-program"), "no-such-program: no such program on PATH"),
        (("train.py",), "say how many ranks"),
        (("-N", "3", "-n", "2", "train.py"), "2 ranks cannot be on 3 nodes"),
    ],
)
def test_wrong_usage_is_refused_before_anything_starts(
    launch: Launch, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    done = launch(*arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert not (tmp_path / "called").exists()


def test_the_launcher_gets_an_ordinary_sigpipe(launch: Launch, tmp_path: Path) -> None:
    """Python ignores it; a launcher that inherited this would go on writing to a closed pipe."""
    launch("-n", "1", "true")
    (tmp_path / "bin" / "srun").write_text("#!/bin/sh\ncat /proc/self/status\n")
    done = launch("--mpi", "none", "-n", "1", "true", slurm=False, **JOB)
    ignored = next(line for line in done.stdout.splitlines() if line.startswith("SigIgn"))
    assert not int(ignored.split()[1], 16) & 1 << (signal.SIGPIPE - 1)
