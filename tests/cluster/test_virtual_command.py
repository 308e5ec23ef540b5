"""`hierring cluster run`: exit codes, signals, what it says, and what it leaves."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from hierring.launch.cluster.tools import why_impossible
from hierring.launch.mpi import Launcher

WHY_NOT = why_impossible()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT)),
]
JOB = str(Path(__file__).with_name("virtual_job.py"))
ROOT = Path(__file__).resolve().parents[2]
RUN = [sys.executable, "-P", "-m", "hierring", "cluster", "run"]
USER = "65534"
# Runs the rest of its arguments as that user. What root alone may enter is covered, and the places
# that this Python and the tests come from are brought back.
AS_USER = """
set -e
user=$1 shown=$2 covered=; shift 2
mount -t tmpfs tmpfs /mnt
for path in $shown; do mkdir -p "/mnt$path"; mount --rbind "$path" "/mnt$path"; done
for path in $shown; do
    top=/$(echo "$path" | cut -d/ -f2)
    case " $covered " in *" $top "*) continue ;; esac
    if ! setpriv --reuid $user --clear-groups test -x "$path"; then
        mount -t tmpfs -o mode=755 tmpfs "$top"
        covered="$covered $top"
    fi
done
for path in $shown; do
    if ! test -e "$path"; then mkdir -p "$path"; mount --rbind "/mnt$path" "$path"; fi
done
cd "$PWD"
exec setpriv --reuid $user --regid $user --clear-groups env HOME=/ "$@"
"""


def run(*arguments: str, around: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run a command line to its end."""
    return subprocess.run(
        [*around, *RUN, *arguments],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_the_jobs_exit_code_is_the_commands() -> None:
    done = run("--ranks-per-node", "1", "--rate", "1gbit", "--shm", "64m", "--", JOB, "exit", "3")
    assert done.returncode == 3, done.stderr
    assert "virtual nodes node0 to node1 (10.77.0.10 to 10.77.0.11)" in done.stderr
    assert "links of 1gbit; they share" in done.stderr


def test_wrong_usage_is_one_line_and_status_2() -> None:
    for arguments in (
        ("--ranks-per-node", "3,0"),
        ("--rate", "fast"),
        ("--shm", "huge"),
        ("--nodes", "0"),
    ):
        done = run(*arguments, "--", "true")
        assert done.returncode == 2
        assert done.stderr.startswith("hierring: ")
        assert done.stderr.count("\n") == 1


def test_a_directory_that_was_removed_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    script = 'cd "$0" && rmdir "$0" && exec "$@"'
    done = run("--", "true", around=("sh", "-c", script, str(tmp_path / "gone")))
    assert done.returncode == 2
    assert "the current directory has been removed" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_word_may_be_longer_than_any_path(tmp_path: Path) -> None:
    script = 'cd "$0" && exec "$@"'  # to where every word might name a file that nodes shall share
    around = ("sh", "-c", script, str(tmp_path))
    done = run("--", "sh", "-c", "test ${#0} = 50000", "x" * 50_000, around=around)
    assert done.returncode == 0, done.stderr


@contextlib.contextmanager
def looping() -> Iterator[tuple[subprocess.Popen[str], list[psutil.Process]]]:
    """A job of four ranks in the midst of its work, and all processes of it."""
    command = [*RUN, "--ranks-per-node", "2", "--", JOB, "loop"]
    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    # In a group of its own, to which Ctrl-C is sent as a terminal sends it.
    with subprocess.Popen(command, text=True, start_new_session=True, **options) as process:
        try:
            assert process.stdout is not None
            for _ in range(8):
                while "LOOPING" not in (line := process.stdout.readline()):
                    assert line, "the job has ended early"
            yield process, psutil.Process(process.pid).children(recursive=True)
        finally:
            process.kill()


def gone(family: list[psutil.Process]) -> bool:
    """Wait until all of them have ended."""
    return psutil.wait_procs(family, timeout=20)[1] == []


def test_ctrl_c_ends_the_job_and_the_cluster() -> None:
    with looping() as (process, family):
        os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=30)
        assert process.returncode == 128 + signal.SIGINT, output
        assert gone(family)


def test_signals_before_the_job_and_after_its_end_end_in_silence() -> None:
    """One while nodes are made; and one upon another, until the cluster has gone."""
    with subprocess.Popen([*RUN, "--nodes", "8", "--", "sleep", "9"], stderr=-1) as early:
        deadline = time.monotonic() + 20
        while not any("unshare" in child.name() for child in children(early)):
            assert time.monotonic() < deadline
        early.send_signal(signal.SIGINT)
        _, said = early.communicate(timeout=30)
    assert (early.returncode, said) == (128 + signal.SIGINT, b"")
    with looping() as (process, family):
        while process.poll() is None:
            process.send_signal(signal.SIGTERM)
            time.sleep(0.01)
        assert process.stdout is not None
        assert "Traceback" not in process.stdout.read()
        assert gone(family)


def children(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """What it has started, as far as it has not ended meanwhile."""
    with contextlib.suppress(psutil.Error):
        return [c for c in psutil.Process(process.pid).children() if c.is_running()]
    return []


def test_nohup_is_heeded() -> None:
    around = ("nohup",)
    command = [*around, *RUN, "--", JOB, "loop"]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        while "LOOPING" not in (line := process.stdout.readline()):
            assert line, "the job has ended early"
        process.send_signal(signal.SIGHUP)
        for _ in range(4):  # it goes on
            assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
        assert process.returncode == 128 + signal.SIGINT


def test_sigterm_reaches_the_job_which_may_end_well() -> None:
    with looping() as (process, family):
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=30)
        # Open MPI's launcher ends the job in spite of it.
        well = 128 + signal.SIGTERM if Launcher.beside().vendor == "openmpi" else 0
        assert process.returncode == well, output
        assert gone(family)


def test_sigkill_leaves_nothing_either() -> None:
    with looping() as (process, family):
        assert len(family) > 8
        process.kill()
        process.wait(timeout=10)
        assert gone(family)


@pytest.mark.skipif(os.geteuid() != 0, reason="all tests here already run as a plain user")
def test_a_plain_user_gets_a_cluster_or_the_reason() -> None:
    places = {Path(sys.base_prefix), Path(sys.prefix), ROOT}
    shown = " ".join(str(place) for place in places if not places & set(place.parents))
    around = ("unshare", "--mount", "sh", "-c", AS_USER, "sh", USER, shown)
    done = run("--ranks-per-node", "1", "--", JOB, "report", around=around)
    if done.returncode == 0:
        assert done.stdout.count("RESULT ") == 2
    else:
        assert done.returncode == 1
        assert "let users make namespaces" in done.stderr
        assert done.stderr.count("\n") == 1
