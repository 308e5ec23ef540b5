"""The batch script and the srun line: what SLURM is told, and what a person reads."""

from __future__ import annotations

import shlex
import subprocess

import pytest

from hierring.errors import ConfigurationError
from hierring.launch.slurm.batch import (
    JobOptions,
    batch_script,
    log_path,
    srun_command,
    srun_sizes,
)


def directives(script: str) -> list[str]:
    lines = [line.removeprefix("#SBATCH ") for line in script.splitlines() if "#SBATCH" in line]
    return [word for line in lines for word in shlex.split(line)]


def test_a_script_says_what_was_asked_and_nothing_else() -> None:
    options = JobOptions(nodes=2, ntasks_per_node=4, cpus_per_task=3, time="02:00:00")
    script = batch_script(options, "pmi2", ["/venv/bin/python", "train.py", "--lr", "0.1"])
    assert script.startswith("#!/bin/bash\n")
    assert directives(script) == [
        "--job-name=hierring",
        "--nodes=2",
        "--ntasks-per-node=4",
        "--cpus-per-task=3",
        "--time=02:00:00",
        "--output=%x-%j.out",
        "--open-mode=append",
        "--signal=TERM@60",
        "--no-requeue",
    ]
    # The last command takes the shell's place, so that signals and the exit code are srun's.
    assert script.rstrip().splitlines()[-2:] == [
        "exec srun --mpi=pmi2 --kill-on-bad-exit=1 --cpu-bind=cores --cpus-per-task=3 \\",
        "    /venv/bin/python train.py --lr 0.1",
    ]


def test_all_options_of_a_job_reach_sbatch() -> None:
    options = JobOptions(
        ntasks=5,
        gpus_per_node=2,
        partition="long",
        account="physics",
        qos="low",
        job_name="night",
        output="logs/%j",
        signal="USR1@120",
        requeue=True,
        sbatch_args=("--constraint=ib", "--comment=two words"),
    )
    given = directives(batch_script(options, None, ["true"]))
    for wanted in (
        *("--ntasks=5", "--gpus-per-node=2", "--partition=long", "--account=physics", "--qos=low"),
        *("--job-name=night", "--output=logs/%j", "--signal=USR1@120", "--requeue"),
        *("--constraint=ib", "--comment=two words"),
    ):
        assert wanted in given
    assert not any(word.startswith(("--nodes", "--time")) for word in given)


def test_arguments_survive_the_shell() -> None:
    awkward = ["--name=it's", "two words", "$HOME", "*", 'a"b', ""]
    script = batch_script(JobOptions(ntasks=1), None, ["printf", "%s\n", *awkward])
    # Run as the shell would, with srun out of the way.
    script = script.replace("exec srun --kill-on-bad-exit=1 --cpu-bind=cores", "exec")
    shown = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, check=True, timeout=30
    ).stdout
    assert shown.split("\n")[:-1] == awkward


def test_threads_and_buffering_are_set_unless_the_user_has_set_them() -> None:
    options = JobOptions(ntasks=1, cpus_per_task=6)
    script = batch_script(options, None, ["printenv", "OMP_NUM_THREADS", "PYTHONUNBUFFERED"])
    script = script.replace("srun --kill-on-bad-exit=1 --cpu-bind=cores --cpus-per-task=6", "")
    for own, seen in (({}, "6\n1\n"), ({"OMP_NUM_THREADS": "2"}, "2\n1\n")):
        shown = subprocess.run(
            ["bash", "-c", script],
            env={"PATH": "/usr/bin:/bin", **own},
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        )
        assert shown.stdout == seen


def test_the_users_own_options_of_srun_come_last_and_so_win() -> None:
    options = JobOptions(ntasks=2, srun_args=("--cpu-bind=none",))
    command = srun_command(options, "pmix", ["prog", "--cpu-bind=x"], ["--overlap"])
    assert command.index("--cpu-bind=none") > command.index("--cpu-bind=cores")
    assert command[:3] == ["srun", "--mpi=pmix", "--overlap"]
    assert command[-2:] == ["prog", "--cpu-bind=x"]


def test_a_step_is_told_all_its_numbers() -> None:
    assert srun_sizes(JobOptions(nodes=2, ntasks_per_node=4)) == [
        "--nodes=2",
        "--ntasks=8",
        "--ntasks-per-node=4",
    ]
    assert srun_sizes(JobOptions(nodes=2, ntasks=3)) == ["--nodes=2", "--ntasks=3"]
    assert srun_sizes(JobOptions()) == []


@pytest.mark.parametrize(
    ("options", "ranks"),
    [
        ({}, None),
        ({"ntasks": 5}, 5),
        ({"nodes": 3}, 3),
        ({"nodes": 3, "ntasks_per_node": 2}, 6),
        ({"nodes": 2, "ntasks": 3, "ntasks_per_node": 2}, 3),
        ({"ntasks_per_node": 4}, 4),
    ],
)
def test_the_number_of_ranks(options: dict[str, int], ranks: int | None) -> None:
    assert JobOptions(**options).num_tasks == ranks  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"nodes": 0}, "--nodes=0 must be at least 1"),
        ({"cpus_per_task": -1}, "--cpus-per-task=-1"),
        ({"nodes": 4, "ntasks": 3}, "--ntasks=4 or more, or --nodes=3"),
        ({"nodes": 2, "ntasks": 5, "ntasks_per_node": 2}, "--ntasks=5 is more than 2 nodes"),
        ({"job_name": "a\n#SBATCH --uid=0"}, "--job-name must be on one line"),
        ({"sbatch_args": ("--comment=a\nb",)}, "--sbatch-args must be on one line"),
    ],
)
def test_what_slurm_would_misread_is_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        JobOptions(**options)  # type: ignore[arg-type]


def test_the_log_is_named_as_far_as_it_is_known() -> None:
    options = JobOptions(job_name="night", output="logs/%x-%j-%N.out")
    assert log_path(options, "17") == "logs/night-17-%N.out"
