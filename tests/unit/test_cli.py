"""The command line: what it prints, and what it exits with."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import hierring
from hierring import cli
from hierring._testing.machines import fake_facts
from hierring.errors import ConfigurationError, TopologyError
from hierring.topology import Topology


@pytest.fixture
def world(monkeypatch):
    """A world of two ranks that is found without MPI; returns a function that picks the rank."""

    def hold(rank):
        topology = Topology.build(rank, [fake_facts(0), fake_facts(1)], [[0, 1]])
        monkeypatch.setattr(cli, "_require_mpi", lambda: None)
        monkeypatch.setattr(hierring, "init", lambda: None)
        monkeypatch.setattr(hierring, "get_topology", lambda: topology)
        return topology

    return hold


def test_topology_prints_the_tree(world, capsys):
    topology = world(0)
    assert cli.main(["topology"]) == 0
    assert capsys.readouterr().out == topology.describe() + "\n"


def test_topology_prints_json(world, capsys):
    topology = world(0)
    assert cli.main(["topology", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == topology.to_dict()


def test_other_ranks_print_nothing(world, capsys):
    world(1)
    assert cli.main(["topology"]) == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("error", "status"), [(TopologyError, 1), (ConfigurationError, 2)])
def test_own_errors_are_one_line(world, monkeypatch, capsys, error, status):
    def refuse():
        raise error("ranks 0 and 1 disagree")

    world(0)
    monkeypatch.setattr(hierring, "init", refuse)
    assert cli.main(["topology"]) == status
    assert capsys.readouterr() == ("", "hierring: ranks 0 and 1 disagree\n")


def test_foreign_errors_keep_their_traceback(world, monkeypatch):
    def fail():
        raise ZeroDivisionError

    world(0)
    monkeypatch.setattr(hierring, "init", fail)
    with pytest.raises(ZeroDivisionError):
        cli.main(["topology"])


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["topology", "--nonsense"]])
def test_wrong_usage_exits_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2
    assert "usage: hierring" in capsys.readouterr().err


def test_help_lists_the_commands(capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(["--help"])
    assert caught.value.code == 0
    assert "topology" in capsys.readouterr().out


def test_version(capsys):
    with pytest.raises(SystemExit):
        cli.main(["--version"])
    assert capsys.readouterr().out == f"hierring {hierring.__version__}\n"


def run(*command, **environ):
    """Run Python without this process's launcher variables."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PMI", "OMPI", "SLURM"))}
    return subprocess.run(
        [sys.executable, "-P", *command],
        env=kept | environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.slow
def test_module_runs_and_help_starts_neither_mpi_nor_torch():
    code = (
        "import sys, hierring.cli\n"
        "try: hierring.cli.main(['topology', '--help'])\n"
        "except SystemExit: pass\n"
        "assert not {'mpi4py.MPI', 'torch', 'psutil'} & set(sys.modules)\n"
    )
    done = run("-c", code)
    assert (done.returncode, done.stderr) == (0, "")
    helped = run("-m", "hierring", "--help")
    assert helped.returncode == 0
    assert helped.stdout.startswith("usage: hierring")


@pytest.mark.slow
def test_missing_mpi_is_one_line():
    """As on a machine with mpi4py but no MPI library."""
    code = (
        "import sys\n"
        "sys.modules['mpi4py.MPI'] = None\n"
        "from hierring.cli import main\n"
        "sys.exit(main(['topology']))\n"
    )
    done = run("-c", code)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("hierring: MPI cannot be started: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_reader_that_has_seen_enough():
    """As `hierring topology | head -1`: no traceback, no complaint at exit."""
    code = (
        "import hierring, sys\n"
        "from hierring import cli\n"
        "class Topology:\n"
        "    rank = 0\n"
        "    def to_dict(self): return {}\n"
        "    def describe(self): return 'x' * 10_000_000\n"
        "cli._require_mpi = hierring.init = lambda: None\n"
        "hierring.get_topology = Topology\n"
        "sys.exit(cli.main(['topology']))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-P", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.read(1)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 1


@pytest.mark.slow
def test_one_process_without_a_launcher_is_a_world_of_one():
    done = run("-m", "hierring", "topology", "--json")
    assert done.returncode == 0, done.stderr
    held = json.loads(done.stdout)
    assert (held["size"], held["num_nodes"], held["leaders"]) == (1, 1, [0])


@pytest.mark.slow
@pytest.mark.parametrize(
    "environ",
    [
        {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "2"},
        {"WORLD_SIZE": "4", "RANK": "2"},
        {"SLURM_STEP_NUM_TASKS": "4", "SLURM_NTASKS": "4", "SLURM_PROCID": "2"},
    ],
)
def test_silent_worlds_of_one_are_refused(environ):
    done = run("-m", "hierring", "topology", **environ)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "=4, but MPI's COMM_WORLD has 1 process." in done.stderr


def test_a_silent_world_of_one_is_refused_its_rank():
    """Before any collective: else each process would write what rank 0 writes."""
    done = run(
        "-c", "import hierring as hr; hr.rank()", SLURM_STEP_NUM_TASKS="4", SLURM_STEP_ID="0"
    )
    assert done.returncode == 1
    assert "but MPI's COMM_WORLD has 1 process." in done.stderr
    code = "import hierring as hr; print(hr.rank(), hr.size())"
    alone = run("-c", code, SLURM_STEP_NUM_TASKS="4", HIERRING_CHECK_LAUNCHER="0")
    assert (alone.returncode, alone.stdout) == (0, "0 1\n")
