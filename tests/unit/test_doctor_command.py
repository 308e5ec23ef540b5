"""The command: who prints, what it exits with, and what it says where MPI does not start."""

from __future__ import annotations

import json
import os

import pytest

from hierring import cli
from hierring.launch.doctor import command, launchers, processes, supervise
from hierring.launch.doctor.supervise import Attempt

ANSWER = {"text": "report", "errors": [], "lost": "", "rank": 0, "size": 1, "exit_code": 0}


class Sibling:
    """A process that speaks for this one."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)


@pytest.fixture
def doctor(monkeypatch):
    """A function that runs the command on what its ranks are made to answer."""

    def run(*answers, claim=None, sibling=None, options=()):
        attempts = list(answers)

        def attempt(arguments, seconds, environ, hear=lambda answer: None):
            found = attempts.pop(0)
            hear(found.answer)
            return found

        monkeypatch.setattr(supervise, "attempt", attempt)
        monkeypatch.setattr(launchers, "claimed_rank", lambda: claim)
        monkeypatch.setattr(processes, "lower_sibling", lambda *arguments: sibling)
        monkeypatch.setattr(command, "HOLD_S", 0)
        return cli.main(["doctor", *options])

    return run


def answered(**changes):
    return Attempt(stage="ending MPI", answer=ANSWER | changes)


@pytest.mark.parametrize("exit_code", [0, 1])
def test_one_process_alone(doctor, capsys, exit_code):
    assert doctor(answered(exit_code=exit_code)) == exit_code
    assert capsys.readouterr() == ("report\n", "")


def test_rank_0_prints_and_the_others_do_not(doctor, capsys):
    assert doctor(answered(size=4), claim=("PMI_RANK", 0)) == 0
    assert capsys.readouterr() == ("report\n", "")
    assert doctor(answered(size=4, rank=2, exit_code=1), claim=("PMI_RANK", 2)) == 1
    assert capsys.readouterr() == ("", "")


def test_rank_that_lost_the_others_says_so(doctor, capsys):
    assert doctor(answered(size=4, rank=2, lost="no rank 3", exit_code=1)) == 1
    assert capsys.readouterr() == ("", "hierring doctor: rank 2: no rank 3\n")


def test_processes_that_are_apart_leave_the_word_to_one(doctor, capsys):
    """As when the launcher does not fit: it counts four ranks, MPI one."""
    sibling = Sibling()
    assert doctor(answered(exit_code=1), claim=("PMI_RANK", 2), sibling=sibling) == 1
    assert len(sibling.waits) == 1
    assert capsys.readouterr() == ("", "")


def test_another_machine_adds_its_errors_to_what_rank_0_tells(doctor, capsys, monkeypatch):
    monkeypatch.setattr(processes, "starter", lambda line: "slurmstepd")
    found = answered(rank=0, exit_code=1, errors=["no peers", "no room"])
    assert doctor(found, claim=("SLURM_PROCID", 8)) == 1
    out, err = capsys.readouterr()
    assert out == ""
    machine = os.uname().nodename
    assert err == "".join(
        f"hierring doctor: rank 8: {machine}: {what}\n" for what in ("no peers", "no room")
    )


def test_variables_without_a_launcher_keep_nobody_quiet(doctor, capsys, monkeypatch):
    monkeypatch.setattr(processes, "starter", lambda line: "")
    assert doctor(answered(exit_code=1), claim=("RANK", 2)) == 1
    assert capsys.readouterr() == ("report\n", "")


def test_what_mpi_says_is_passed_on(doctor, capsys):
    found = answered()
    found.output = "MPI warns\n"
    doctor(found)
    assert capsys.readouterr() == ("report\n", "MPI warns\n")


def test_mpi_that_crashes_at_its_end(doctor, capsys):
    found = answered()
    found.trouble = "SIGSEGV while ending MPI"
    assert doctor(found) == 1
    assert capsys.readouterr() == (
        "report\n",
        "hierring doctor: rank 0: SIGSEGV while ending MPI\n",
    )


FAILURES = {
    "no mpi4py": (
        Attempt(answer={"failed": ""}, trouble="ModuleNotFoundError: No module named 'mpi4py'"),
        (),
        "mpi4py is not installed",
        "pip install mpi4py",
    ),
    "no library": (
        Attempt(answer={"failed": ""}, trouble="RuntimeError: cannot load MPI library"),
        (),
        "MPI cannot be started: RuntimeError",
        "Load the module",
    ),
    "no room": (Attempt(trouble="SIGBUS while starting MPI"), (), "SIGBUS", "/dev/shm"),
    "no answer": (
        Attempt(trouble="no end after 9 s", timed_out=True),
        (),
        "does not come up",
        "firewalls",
    ),
    "abort under a launcher": (
        Attempt(trouble="exit status 15"),
        (Attempt(answer={"started": True}),),
        "starts alone, but not under this launcher",
        "--mpi=pmix",
    ),
    "a crash later on": (
        Attempt(trouble="SIGSEGV while trying", answer={"size": 4, "rank": 0}),
        (),
        "MPI came up with 4 ranks, and broke down: SIGSEGV while trying",
        "hostnames",
    ),
    "abort everywhere": (
        Attempt(trouble="exit status 15"),
        (Attempt(trouble="exit status 15"),),
        "MPI cannot be started: exit status 15",
        "from mpi4py import MPI",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(("first", "rest", "what", "remedy"), FAILURES.values(), ids=FAILURES)
def test_mpi_that_does_not_start(doctor, capsys, monkeypatch, first, rest, what, remedy):
    monkeypatch.setenv("PMI_RANK", "0")
    assert doctor(first, *rest, options=["--json"]) == 1
    values = json.loads(capsys.readouterr().out)
    (error,) = [found for found in values["findings"] if found["level"] == "error"]
    assert what in error["what"]
    assert remedy in error["remedy"]
    assert "kernels" in {found["topic"] for found in values["findings"]}


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "1e300", "soon"])
def test_a_time_that_cannot_be_waited_for_is_refused(seconds, capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(["doctor", f"--timeout={seconds}"])
    assert caught.value.code == 2
    assert "--timeout" in capsys.readouterr().err
