"""`hierring launch` under a real SLURM on four virtual nodes: how jobs begin, and how they end."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from hierring._testing.slurm import SlurmCluster, missing_for_slurm
from hierring.launch.mpi import loaded_library

JOB = str(Path(__file__).with_name("slurm_job.py"))
LAUNCH = [sys.executable, "-m", "hierring", "launch"]
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "slurm.md"


def result(text: str) -> dict[str, Any]:
    (line,) = re.findall(r"RESULT (.*)", text)
    found: dict[str, Any] = json.loads(line)
    return found


@pytest.fixture(scope="module")
def limited(slurm: SlurmCluster) -> str:
    """A job with a time limit, which is a minute at least: it idles while the other tests run."""
    folder = slurm.folder / "limited"
    folder.mkdir()
    job = slurm.launch("-N", "2", "-n", "3", "--time", "1", JOB, "waits", cwd=folder)
    slurm.wait_for_output(job, "READY", 3)
    return job


def test_the_demo_trains_on_four_nodes(
    slurm: SlurmCluster, slurm_folder: Path, limited: str
) -> None:
    before = slurm.files_of_nodes()
    job = slurm.launch(
        "-N", "4", "--ntasks-per-node", "1", "-m", "hierring", "demo", cwd=slurm_folder
    )
    state = slurm.wait(job)
    log = slurm.output(job)
    assert (state["JobState"], state["ExitCode"]) == ("COMPLETED", "0:0"), log
    assert "hierring: 4 ranks on 4 nodes [1, 1, 1, 1]" in log
    assert re.findall(r"^(ok|FAILED) ", log, re.MULTILINE) == ["ok"] * 4
    assert slurm.files_of_nodes() <= before


def test_the_demo_leaves_when_it_is_cancelled(slurm: SlurmCluster, slurm_folder: Path) -> None:
    before = slurm.files_of_nodes()
    endless = "from hierring.launch import demo; demo.EPOCHS = 10**6; raise SystemExit(demo.run())"
    program = (sys.executable, "-c", endless)
    job = slurm.launch("-N", "4", "--ntasks-per-node", "1", *program, cwd=slurm_folder)
    slurm.wait_for_output(job, "epoch  1: loss")
    slurm.run(["scancel", job])
    assert slurm.wait(job, 30)["JobState"] == "CANCELLED"
    assert re.findall(r"^stopped by SIGTERM in epoch \d+$", slurm.output(job), re.MULTILINE)
    assert slurm.files_of_nodes() <= before


def test_waiting_passes_the_jobs_exit_code(slurm: SlurmCluster, slurm_folder: Path) -> None:
    done = slurm.run(
        [*LAUNCH, "-n", "1", "--wait", "sh", "-c", "echo $SLURM_JOB_NAME; exit 5"],
        cwd=slurm_folder,
        check=False,
    )
    assert done.returncode == 5, done.stderr
    (log,) = re.findall(r"its log: (.*)", done.stdout)
    assert Path(log).parent == slurm_folder
    assert "sh\n" in Path(log).read_text()


def test_a_rank_that_fails_ends_the_job(slurm: SlurmCluster, slurm_folder: Path) -> None:
    state = slurm.wait(slurm.launch("-N", "2", "-n", "3", JOB, "fails", cwd=slurm_folder), 30)
    assert state["JobState"] == "FAILED"
    assert not state["ExitCode"].startswith("0:")


def test_a_refusal_by_sbatch_says_why(slurm: SlurmCluster, slurm_folder: Path) -> None:
    done = slurm.run(
        [*LAUNCH, "-n", "1", "--partition", "absent", "true"], cwd=slurm_folder, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("hierring: sbatch has refused the job")
    assert "invalid partition specified: absent" in done.stderr


def test_inside_an_allocation_it_runs_at_once(
    slurm: SlurmCluster, slurm_folder: Path, pmi: str
) -> None:
    """Uneven nodes and ranks dealt out in turn, with the cores that the allocation was made for."""
    options = ["--srun-arg=--distribution=cyclic"]
    done = slurm.run(
        ["salloc", "-N2", "-n3", "-c2", *LAUNCH, *options, JOB, "where"], cwd=slurm_folder
    )
    found = result(done.stdout)
    assert (found["size"], found["total"], found["threads"]) == (3, 6, "2")
    assert found["nodes"] == [[0, 2], [1]]
    dry = slurm.run(["salloc", "-N2", "-n3", *LAUNCH, "--dry-run", "true"], cwd=slurm_folder)
    assert dry.stdout.startswith(f"srun --mpi={pmi} ")


def test_a_step_smaller_than_its_job(slurm: SlurmCluster, slurm_folder: Path) -> None:
    """The job's variables say 8 tasks on 4 nodes, all through the step."""
    done = slurm.run(
        ["salloc", "-N4", "--ntasks-per-node=2", *LAUNCH, "-N", "2", "-n", "3", JOB, "where"],
        cwd=slurm_folder,
    )
    found = result(done.stdout)
    assert (found["size"], len(set(found["hosts"]))) == (3, 2)


def test_in_the_shell_of_a_step_it_does_not_wait_for_it(
    slurm: SlurmCluster, slurm_folder: Path
) -> None:
    done = slurm.run(
        ["srun", "-N1", "-n1", "-c4", *LAUNCH, "-n", "4", JOB, "where"],
        cwd=slurm_folder,
        timeout=30,
    )
    assert result(done.stdout)["size"] == 4


def documented_training(folder: Path) -> str:
    """Write the program that docs/slurm.md shows."""
    (code,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text("utf-8"), re.DOTALL)
    (folder / "train.py").write_text(code)
    return "train.py"


def test_a_cancelled_job_saves_and_leaves_nothing(slurm: SlurmCluster, slurm_folder: Path) -> None:
    before = slurm.files_of_nodes()
    train = documented_training(slurm_folder)
    job = slurm.launch("-N", "2", "--ntasks-per-node", "2", train, cwd=slurm_folder)
    slurm.wait_for_output(job, "training from step 0\n")
    slurm.run(["scancel", job])
    assert slurm.wait(job, 30)["JobState"] == "CANCELLED"
    (last,) = re.findall(r"saved after step (\d+)", slurm.output(job))
    assert (slurm_folder / "checkpoint.npz").exists()
    assert not (slurm_folder / "new.npz").exists()
    assert slurm.files_of_nodes() <= before

    # The next job goes on from there, and so does a job that SLURM starts again.
    job = slurm.launch("-N", "2", "-n", "3", "--requeue", train, cwd=slurm_folder)
    slurm.wait_for_output(job, f"training from step {int(last) + 1}\n")
    slurm.run(["scontrol", "requeue", job])
    slurm.wait_for_output(job, "saved after step")
    slurm.until(lambda: slurm.job(job)["JobState"] == "PENDING", "the job to be queued again")
    # Else in two minutes; not at once, for a node refuses what is not a second younger than the
    # end of the first run.
    slurm.run(["scontrol", "update", f"JobId={job}", "StartTime=now+2"])
    slurm.wait_for_output(job, "training from step", 2)
    steps = [int(step) for step in re.findall(r"step (\d+)", slurm.output(job))]
    assert slurm.job(job)["Restarts"] == "1"
    assert steps == [int(last) + 1, steps[1], steps[1] + 1]  # from, saved after, from
    slurm.run(["scancel", job])
    slurm.wait(job, 30)
    assert slurm.files_of_nodes() <= before


def test_a_job_without_a_handler_leaves_no_memory_of_ours(
    slurm: SlurmCluster, slurm_folder: Path
) -> None:
    """SIGTERM ends its ranks at once, in the midst of a call."""
    before = slurm.files_of_nodes()
    job = slurm.launch("-N", "2", "-n", "4", JOB, "reduces", cwd=slurm_folder)
    slurm.wait_for_output(job, "READY", 4)
    slurm.run(["scancel", job])
    assert slurm.wait(job, 30)["JobState"] == "CANCELLED"
    left = slurm.files_of_nodes() - before
    # MPICH's own file has a name while the job runs, and nobody removes it afterwards.
    mpich = loaded_library().vendor == "mpich"
    assert {name for name in left if not (mpich and "/mpich_shm_" in name)} == set()


def test_the_time_limit_is_announced_to_the_ranks(slurm: SlurmCluster, limited: str) -> None:
    """SLURM looks for it every half minute."""
    state = slurm.wait(limited, 100)
    log = slurm.output(limited)
    assert (state["JobState"], state["ExitCode"]) == ("COMPLETED", "0:0"), log
    left = re.findall(r"LEFT after (\d+) (.*)", log)
    assert len(left) == 3
    assert len(set(left)) == 1, "not the same step on all ranks"
    assert left[0][1] == "told"


@pytest.mark.long
def test_the_time_limit_ends_those_who_stay(slurm: SlurmCluster, slurm_folder: Path) -> None:
    job = slurm.launch("-N", "2", "-n", "2", "--time", "1", JOB, "ignores", cwd=slurm_folder)
    assert slurm.wait(job, 200)["JobState"] == "TIMEOUT"
    assert slurm.output(job).count("TERM\n") >= 2  # first the announcement
    assert not [name for name in slurm.files_of_nodes() if "/dev/shm/hierring-" in name]


def test_its_daemons_end_with_the_cluster() -> None:
    if reason := missing_for_slurm(loaded_library().vendor):
        pytest.skip(reason)
    with SlurmCluster(1) as slurm:
        folder = slurm.folder
        (pid,) = slurm.run(["pidof", "slurmctld"]).stdout.split()
        assert pid
        keeper = Path(f"/proc/{slurm.cluster.pid}")
        assert keeper.exists()
    assert not keeper.exists()  # process 1 of their namespace: the kernel ends the others with it
    assert not folder.exists()
