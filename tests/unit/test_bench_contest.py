"""Which jobs run, in which order, with which settings; and the page that they end in."""

from __future__ import annotations

from pathlib import Path

import pytest

from hierring.benchmarks import contest, page, peers, wire
from hierring.benchmarks.contest import Outcome, Task, compete, peer_settings
from hierring.benchmarks.environments import MpiEnvironment, build
from hierring.benchmarks.jobs import Layout
from hierring.benchmarks.machine import Machine, Watch
from hierring.benchmarks.preface import Facts
from hierring.benchmarks.result import load
from hierring.errors import ConfigurationError, HierringError

SAMPLE = load(Path(__file__).resolve().parents[1] / "data" / "bench-2x2.json")
MPICH = MpiEnvironment("/a/python", "mpich", "MPICH 5.0.2", True)
OPENMPI = MpiEnvironment("/b/python", "openmpi", "Open MPI 5.0.11", True)


@pytest.fixture
def asked(monkeypatch):
    """Jobs that were asked for; those of Open MPI on 4x1 fail."""
    jobs = []

    def bench(layout, options, *, python, rate, settings):
        jobs.append((python, str(layout), options))
        if (python, str(layout)) == ("/b/python", "4x1"):
            raise HierringError("it exited with 1:\nno such option")
        return SAMPLE

    monkeypatch.setattr(contest, "bench_on_nodes", bench)
    return jobs


TWO = (Layout(2, 2), Layout(4, 1))


def outcome(rounds=1, layouts=TWO):
    task = Task(tuple(layouts), ("-b", "8"), ("mpi", "gloo"), rounds=rounds)
    return compete(task, [MPICH, OPENMPI], lambda line: None)


def test_libraries_take_turns_in_rounds(asked):
    outcome(rounds=2, layouts=[Layout(2, 2)])
    assert [python for python, _, _ in asked] == ["/a/python", "/b/python"] * 2


def test_one_environment_is_enough_for_gloo(asked):
    outcome(layouts=[Layout(2, 2)])
    assert [options[-1] for _, _, options in asked] == ["mpi,gloo", "mpi"]


def test_one_job_that_fails_does_not_keep_the_others_from_running(asked):
    found = outcome(rounds=2)
    assert len(found.jobs) == 6
    assert found.failures == ("4x1, Open MPI 5.0.11: no such option",) * 2


def test_peers_get_their_best_settings():
    bound, crowded = (peer_settings("openmpi", Layout(1, ranks), 2) for ranks in (2, 4))
    assert bound["PRTE_MCA_hwloc_default_binding_policy"] == "core"
    assert "OMPI_MCA_mpi_yield_when_idle" not in bound
    assert crowded["PRTE_MCA_hwloc_default_binding_policy"] == "none"
    assert crowded["OMPI_MCA_mpi_yield_when_idle"] == "1"
    assert peer_settings("impi", Layout(1, 2), 2)["I_MPI_FABRICS"] == "shm"
    assert peer_settings("impi", Layout(2, 2), 2)["FI_PROVIDER"] == "tcp"
    assert peer_settings("mpich", Layout(2, 2), 2)["GLOO_SOCKET_IFNAME"] == "eth0"


def test_the_page_holds_figures_failures_and_doubts(asked):
    found = outcome(rounds=2)
    alone = outcome(layouts=[Layout(1, 4)])
    machine = Machine("a CPU", 2, 2**34, "Linux 6", 0.1)
    facts = Facts("2026-01-02 03:04 UTC", 60.0, machine, 1.0, 0.0, "abc", ("the command",))
    text = page.page(Outcome(alone.jobs, ()), found, facts)
    for part in (
        "a CPU, 2 cores, 16 GiB", "0.1.0 (abc)", "MPICH 5.0.2, Open MPI 5.0.11", "the command",
        "The machine was not quiet", "4 ranks had 2 cores", "4x1, Open MPI 5.0.11: no such option",
        "## On one node", "## Between nodes", "Each round by itself", "`HYDRA_BINDING=none`",
    ):  # fmt: skip
        assert part in text, part
    assert SAMPLE.environment.hostname not in text
    quiet = Facts("", 60.0, machine, 0.0, 0.0, "abc", ())
    assert "not quiet" not in page.page(alone, Outcome((), ()), quiet)


def test_the_commands_of_the_page_are_understood():
    for long in ([], ["--long"]):
        words = page._commands(page._parser().parse_args(["--python", "a", "--keep", "b", *long]))
        assert peers.parser().parse_args(words["peers"]).python == ["a"]
        assert wire.parser().parse_args(words["wire"]).keep == "b/wire"


@pytest.mark.parametrize(
    ("command", "arguments", "says"),
    [
        (wire.main, ["--layouts", "2x2,many"], "'many' is no layout"),
        (peers.main, ["--ranks", "two"], "give numbers"),
        (peers.main, ["--peers", "nccl"], "give names of mpi, gloo"),
        (peers.main, ["--rounds", "0"], "1 or more"),
    ],
)
def test_wrong_usage_is_refused_first(command, arguments, says, capsys):
    assert command(arguments) == 2
    assert says in capsys.readouterr().err


def test_an_unknown_mpi_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="give mpich, openmpi, impi"):
        build(["lam"], tmp_path, "")


def test_a_python_that_is_none_is_refused():
    with pytest.raises(HierringError, match="is no program"):
        MpiEnvironment.of("/no/such/python")


def test_others_are_watched():
    others, stolen = Watch().others()
    assert others >= 0
    assert stolen >= 0
    assert Machine.here(Path("/no/such/file")).cpu
