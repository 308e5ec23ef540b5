"""Jobs of `hierring bench`: where their ranks lie, how they are started, and how they end."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from hierring.benchmarks import jobs
from hierring.benchmarks.jobs import Layout
from hierring.benchmarks.result import load
from hierring.errors import ConfigurationError, HierringError
from hierring.launch.mpi import Launcher

SAMPLE_FILE = Path(__file__).resolve().parents[1] / "data" / "bench-2x2.json"
SAMPLE = load(SAMPLE_FILE)


@pytest.mark.parametrize(
    ("text", "layout"),
    [("2x4", Layout(2, 4)), ("cyclic:2x4", Layout(2, 4, "cyclic")), ("block:4x1", Layout(4, 1))],
)
def test_layouts(text, layout):
    assert Layout.parse(text) == layout
    assert Layout.parse(str(layout)) == layout


def test_a_layout_knows_its_ranks():
    assert Layout.parse("3x4").size == 12


@pytest.mark.parametrize("text", ["", "2", "2x", "0x2", "2x-1", "round:2x2", "2x2x2"])
def test_what_is_no_layout(text):
    with pytest.raises(ConfigurationError, match="no layout"):
        Layout.parse(text)


@pytest.fixture
def attended(monkeypatch):
    """Answer the job's command by what a test wants; returns what was asked."""
    asked = {}

    def plan(code=0, output=""):
        def answer(command, folder, environ, limit_s):
            asked.update(command=command, folder=folder, environ=environ)
            if code == 0:
                Path(command[-1]).write_text(SAMPLE_FILE.read_text())
            return code, output

        monkeypatch.setattr(jobs, "_attend", answer)
        return asked

    return plan


def test_a_job_on_several_nodes_has_virtual_ones(attended):
    asked = attended()
    found = jobs.bench_on_nodes(
        Layout(2, 4, "cyclic"), ["-b", "8"], python="/env/python", rate="1gbit", settings={"A": "1"}
    )
    assert found == SAMPLE
    line = " ".join(asked["command"])
    assert line.startswith("/env/python -P -m hierring cluster run --nodes 2 --ranks-per-node 4")
    assert "--placement cyclic" in line
    assert "--rate 1gbit" in line
    assert "-- /env/python -P -m hierring bench -b 8 --json " in line
    assert asked["environ"]["A"] == "1"
    assert not Path(asked["folder"]).exists(), "its directory is gone"


def test_a_job_on_one_node_needs_nothing_but_mpiexec(attended, monkeypatch):
    monkeypatch.setattr(
        jobs.Launcher, "beside", lambda python: Launcher("mpich", Path(python).parent / "mpiexec")
    )
    asked = attended()
    assert jobs.bench_on_nodes(Layout(1, 3), ["-b", "8"], python="/env/python") == SAMPLE
    line = " ".join(asked["command"])
    assert line.startswith("/env/mpiexec -n 3 /env/python -P -m hierring bench -b 8 --json ")


def test_a_job_that_fails_is_quoted(attended):
    attended(1, "\n".join(f"line {number}" for number in range(100)))
    with pytest.raises(HierringError, match="exited with 1:\nline 85\n") as caught:
        jobs.bench_on_nodes(Layout(2, 2), [])
    assert str(caught.value).endswith("line 99")


PROGRAM = """
import os, signal, subprocess, sys, time
rank = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
if sys.argv[1] == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
else:
    signal.signal(signal.SIGTERM, lambda number, frame: (rank.kill(), sys.exit(1)))
open("pids.part", "w").write(f"{os.getpid()} {rank.pid}")
os.rename("pids.part", "pids")
rank.wait()
"""


def gone(pid: int) -> bool:
    """Whether a process has ended; a zombie has, too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


@pytest.mark.slow
@pytest.mark.parametrize("manner", ["willing", "stubborn"])
def test_a_job_that_takes_too_long_leaves_nobody(manner, tmp_path, monkeypatch):
    """SIGTERM first, as launchers end their ranks at it; then the whole session."""
    monkeypatch.setattr(jobs, "_GRACE_S", 0.2)
    pids = tmp_path / "pids"
    original = jobs.subprocess.Popen.communicate

    def until_up(process, timeout=None, **options):
        # The limit counts from when there is somebody to leave behind.
        deadline = time.monotonic() + 30
        while not pids.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        return original(process, timeout=timeout, **options)

    monkeypatch.setattr(jobs.subprocess.Popen, "communicate", until_up)
    with pytest.raises(HierringError, match="took more than"):
        jobs._attend([sys.executable, "-c", PROGRAM, manner], str(tmp_path), os.environ, 0.1)
    launcher, rank = map(int, pids.read_text().split())
    assert gone(launcher)
    deadline = time.monotonic() + 10
    while not gone(rank) and time.monotonic() < deadline:
        time.sleep(0.01)
    if not gone(rank):
        os.kill(rank, signal.SIGKILL)
        pytest.fail("its rank lives on")


def test_a_job_says_what_it_printed(tmp_path):
    code = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"
    status, output = jobs._attend([sys.executable, "-c", code], str(tmp_path), os.environ, 60)
    assert (status, sorted(output.split())) == (3, ["err", "out"])
