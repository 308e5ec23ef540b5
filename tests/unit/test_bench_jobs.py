"""Tables of hierring beside its peers, and the jobs they come from."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path

import pytest

from hierring.benchmarks import jobs, peers, wire
from hierring.benchmarks.jobs import Layout
from hierring.benchmarks.result import load
from hierring.errors import ConfigurationError, HierringError

SAMPLE_FILE = Path(__file__).resolve().parents[1] / "data" / "bench-2x2.json"
SAMPLE = load(SAMPLE_FILE)


@pytest.mark.parametrize(
    ("text", "layout"),
    [("2x4", Layout(2, 4)), ("cyclic:2x4", Layout(2, 4, "cyclic")), ("block:4x1", Layout(4, 1))],
)
def test_layouts(text, layout):
    assert Layout.parse(text) == layout
    assert Layout.parse(str(layout)) == layout


@pytest.mark.parametrize("text", ["", "2", "2x", "0x2", "2x-1", "round:2x2", "2x2x2"])
def test_what_is_no_layout(text):
    with pytest.raises(ConfigurationError, match="no layout"):
        Layout.parse(text)


@pytest.fixture
def job(monkeypatch):
    """Answer the job's command by what a test wants; returns what was asked."""
    asked = {}

    def answer(command, code=0, output="", **options):
        asked["command"], asked["env"] = command, options["env"]
        if code == 0:
            Path(command[-1]).write_text(SAMPLE_FILE.read_text())
        return subprocess.CompletedProcess(command, code, output)

    def plan(code=0, output=""):
        monkeypatch.setattr(
            jobs.subprocess,
            "run",
            lambda command, **options: answer(command, code, output, **options),
        )
        return asked

    return plan


def test_a_job_runs_on_virtual_nodes(job):
    asked = job()
    found = jobs.bench_on_nodes(
        Layout(2, 4, "cyclic"), ["-b", "8"], python="/env/python", rate="1gbit", settings={"A": "1"}
    )
    assert found == SAMPLE
    line = " ".join(asked["command"])
    assert line.startswith("/env/python -P -m hierring cluster run --nodes 2 --ranks-per-node 4")
    assert "--placement cyclic" in line
    assert "--rate 1gbit" in line
    assert "-- /env/python -P -m hierring bench -b 8 --json " in line
    assert asked["env"]["A"] == "1"
    assert not Path(asked["command"][-1]).parent.exists(), "its directory is gone"


def test_a_job_that_fails_is_quoted(job):
    job(1, "\n".join(f"line {number}" for number in range(100)))
    with pytest.raises(HierringError, match="exited with 1:\nline 85\n") as caught:
        jobs.bench_on_nodes(Layout(1, 2), [])
    assert str(caught.value).endswith("line 99")


def test_peers_get_their_best_settings():
    assert "OMPI_MCA_mpi_yield_when_idle" not in peers.peer_settings(2, 2)
    assert peers.peer_settings(2, 2)["PRTE_MCA_hwloc_default_binding_policy"] == "core"
    assert peers.peer_settings(4, 2)["OMPI_MCA_mpi_yield_when_idle"] == "1"
    assert peers.peer_settings(4, 2)["PRTE_MCA_hwloc_default_binding_policy"] == "none"


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_table_of_peers_holds_the_ratios_of_the_file():
    head, _, *lines = peers.rows(SAMPLE)
    names = cells(head)[3:]
    assert cells(head)[2] == "hierring auto"
    assert names == ["hierring ring", "hierring tree", "mpi", "gloo"]
    assert len(lines) == len({(case.nbytes, case.in_place) for case in SAMPLE.cases})
    for line in lines:
        nbytes, place, _, *ratios = cells(line)
        for name, text in zip(names, ratios, strict=True):
            found = [
                case
                for case in SAMPLE.cases
                if (case.name, case.nbytes) == (name, int(nbytes))
                and case.in_place == (place == "in place")
            ]
            if found:
                assert text.startswith(f"{found[0].ratio.median:.2f} (")
            else:
                assert (name, place, text) == ("gloo", "out of place", "")


def test_the_table_of_the_wire_holds_shares_of_the_bound():
    _, _, *lines = wire.rows(SAMPLE)
    inside = [case for case in SAMPLE.cases if case.in_place]
    assert len(lines) == len(inside)
    for line, case in zip(lines, inside, strict=True):
        nbytes, who, _, percent, ratio = cells(line)
        assert (int(nbytes), who) == (case.nbytes, case.name)
        assert percent == f"{100 * case.bounds.wire / case.times.median:.0f} %"
        assert (ratio == "1") == (case.ratio is None)


def test_without_a_probe_there_is_no_share():
    cases = tuple(
        dataclasses.replace(case, bounds=dataclasses.replace(case.bounds, wire=None))
        for case in SAMPLE.cases
    )
    _, _, line, *_ = wire.rows(dataclasses.replace(SAMPLE, cases=cases))
    assert cells(line)[3] == ""


def test_one_job_that_fails_does_not_keep_the_others_from_running(job, capsys):
    job(1, "no such option")
    assert peers.main(["--peers", "mpi", "--ranks", "2,4"]) == 1
    assert capsys.readouterr().err.count("no such option") == 2
    job()
    assert wire.main(["--layouts", "2x2,4x1"]) == 0
    assert capsys.readouterr().out.count("| bytes | who |") == 2


def test_wrong_layouts_are_refused_first(capsys):
    assert wire.main(["--layouts", "2x2,many"]) == 2
    assert "'many' is no layout" in capsys.readouterr().err
