"""Processes around a rank: ancestors, siblings, strangers on its CPUs, memory it may read."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

import psutil
import pytest

from hierring.launch.doctor import processes

# Bound to one CPU it works until it is killed, but says first that it has begun to.
BUSY = (
    "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])})\n"
    "sum(range(10**6)); print(flush=True)\n"
    "while True: pass"
)
WAITING = "print(flush=True); input()"


@contextlib.contextmanager
def running(code, *arguments, **environ):
    """A child that has said its first line; ended, if need be by force, at the end."""
    child = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        env=dict(os.environ) | environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"\n"
        yield child
    finally:
        child.kill()
        child.communicate()


def test_ancestors_begin_with_this_process():
    line = processes.ancestors()
    assert line[0][0] == os.getpid()
    assert [pid for pid, _ in line[1:2]] == [os.getppid()] * (os.getppid() > 1)


def test_starter_is_the_closest_launcher():
    line = [(9, "python"), (8, "bash"), (7, "hydra_pmi_proxy"), (6, "mpiexec"), (5, "slurmstepd")]
    assert processes.starter(line) == "hydra_pmi_proxy"
    assert processes.starter(line[:2]) == ""


@pytest.fixture
def cpu():
    """A CPU of ours, on a machine that has another."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("needs two CPUs: all processes of a machine with one share it")
    return cpus[-1]


def seen(cpus, line):
    found = processes.strangers(cpus, range(os.cpu_count() or 1), line)
    return {stranger.pid: stranger.cpus for stranger in found}


@pytest.mark.slow
def test_strangers_are_bound_to_our_cpus_and_work(cpu):
    with running(BUSY, str(cpu)) as busy, running(WAITING) as waiting:
        elsewhere = [waiting.pid]  # a process that started neither
        assert seen({cpu}, elsewhere)[busy.pid] == (cpu,)
        assert busy.pid not in seen(set(range(os.cpu_count() or 1)) - {cpu}, elsewhere)
        assert waiting.pid not in seen({cpu}, [busy.pid])


@pytest.mark.slow
def test_what_this_process_started_is_no_stranger(cpu):
    with running(BUSY, str(cpu)) as busy:
        assert busy.pid not in seen({cpu}, [pid for pid, _ in processes.ancestors()])


@pytest.mark.slow
def test_what_was_bound_together_is_no_stranger(cpu):
    """Two ranks under one taskset: each other's siblings, below a parent with the same CPU."""
    code = (
        "import os, subprocess, sys\n"
        f"os.sched_setaffinity(0, {{{cpu}}})\n"
        "ranks = [subprocess.Popen([sys.executable, '-c', sys.argv[1], sys.argv[2]],"
        " stdout=subprocess.PIPE) for _ in range(2)]\n"
        "for rank in ranks: rank.stdout.readline()\n"
        "from hierring.launch.doctor import processes\n"
        f"found = processes.strangers({{{cpu}}}, range(64), [ranks[0].pid, os.getpid()])\n"
        "pids = [one.pid for one in found]\n"
        "for rank in ranks: rank.kill()\n"
        "print(ranks[0].pid in pids or ranks[1].pid in pids)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, BUSY, str(cpu)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("False\n", "")


@pytest.mark.slow
def test_sibling_with_a_lower_rank():
    with running(WAITING, FAKE_RANK="1") as first, running(WAITING, FAKE_RANK="2") as second:

        def lower(child, rank):
            code = (
                "from hierring.launch.doctor import processes\n"
                f"found = processes.lower_sibling('FAKE_RANK', {rank})\n"
                "print(found.pid if found else None)"
            )
            asked = [sys.executable, "-P", "-c", code]
            return subprocess.run(
                asked, capture_output=True, text=True, timeout=60, check=False
            ).stdout.strip()

        assert lower(second, 3) == str(first.pid)
        assert lower(second, 2) == str(first.pid)
        assert lower(first, 1) == "None"


@pytest.mark.slow
def test_memory_that_may_be_read():
    with running(WAITING) as child:
        assert processes.can_read_memory(child.pid) is not None  # True, or False in a container
        if psutil.Process().uids().effective == 0 and processes.can_read_memory(os.getpid()):
            assert processes.can_read_memory(child.pid)
    assert processes.can_read_memory(child.pid) is None  # it is gone


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: to become another user")
def test_memory_that_may_not_be_read():
    reader = (
        "import ctypes, errno, os, sys\n"
        "os.setuid(65534)\n"
        "from hierring.launch.doctor import processes\n"
        "print(processes.can_read_memory(int(sys.argv[1])))"
    )
    # What the reader imports may lie where another user can't go: it is loaded before.
    code = "import psutil, hierring.launch.doctor.processes\n" + reader
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, str(os.getpid())],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_a_hidden_proc_shows_nobody(monkeypatch):
    def pids():
        return [][0]  # as psutil does where /proc is empty

    monkeypatch.setattr(psutil, "pids", pids)
    assert processes.strangers([0], [0, 1], [os.getpid()]) == ()
