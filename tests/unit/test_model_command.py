"""The command `hierring model`: predictions, marks, JSON, pictures, and what it refuses."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

from hierring import cli
from hierring.benchmarks.model.parameters import load_model

SAMPLE = str(Path(__file__).resolve().parents[1] / "data" / "bench-2x2.json")
CALIBRATE = ["model", "--calibrate", SAMPLE]
GRID = ["--nodes", "2,4,64,10000", "--ranks", "1,8", "--sizes", "8,64K,16M,1G"]


def test_markdown_has_a_row_for_each_case(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*CALIBRATE, *GRID]) == 0
    text = capsys.readouterr().out
    table = text[text.index("## Predictions") : text.index("## Calibration")]
    rows = [line.split("|")[1:-1] for line in table.splitlines() if re.match(r"\| +\d", line)]
    assert [row[0].strip() for row in rows[::4]] == ["2", "4", "64", "10000"] * 2
    assert len(rows) == 4 * 2 * 4
    assert all(cell.strip() for row in rows for cell in row[:-1])
    assert "extrapolated: nodes, ranks" in table
    assert "seen nothing of naive: these times rest on guesses" in table
    assert "Predicted and measured" not in text


def test_json_is_strict_and_holds_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*CALIBRATE, *GRID, "--check", SAMPLE, "--json"]) == 0
    tree = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert tree["schema"] == "hierring.prediction/1"
    assert len(tree["predictions"]) == 32
    for row in tree["predictions"]:
        assert row["seconds"][row["best"]] == min(row["seconds"].values())
        assert ("nodes" in row["beyond"]) == (row["nodes"] > 4)
        assert "ranks" in row["beyond"]  # the sample has two ranks on each node
    cases = {(row["algorithm"], row["nbytes"]): row for row in tree["checks"]}
    assert {name for name, _ in cases} == {"hierarchical", "ring", "tree"}
    for row in cases.values():
        assert row["ratio"] == pytest.approx(row["predicted"] / row["measured"])
        assert row["beyond"] == []


def test_machines_and_cores_can_be_others(capsys: pytest.CaptureFixture[str]) -> None:
    def told(*options: str) -> dict[str, object]:
        command = [*CALIBRATE, "--nodes", "64", "--sizes", "16M", "--json", *options]
        assert cli.main(command) == 0
        (row,) = json.loads(capsys.readouterr().out)["predictions"]
        return dict(row)

    shared, own, many = (
        told(),
        told("--machines", "each"),
        told("--machines", "one", "--cores", "8"),
    )
    assert own["beyond"] == ["nodes", "size", "machines"]
    assert many["beyond"] == ["nodes", "size", "cores"]
    assert own["auto_seconds"] < many["auto_seconds"] < shared["auto_seconds"]  # type: ignore[operator]


def test_a_saved_calibration_says_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = str(tmp_path / "a.json")
    assert cli.main([*CALIBRATE, *GRID, "--save", saved]) == 0
    first = capsys.readouterr().out
    assert load_model(saved).fit.cases > 0
    assert cli.main(["model", "--parameters", saved, *GRID]) == 0
    assert capsys.readouterr().out == first


def test_many_nodes_take_no_time(capsys: pytest.CaptureFixture[str]) -> None:
    started = time.process_time()
    nodes = ",".join(str(count) for count in range(1, 65_000, 500))
    assert cli.main([*CALIBRATE, "--nodes", nodes, "--sizes", "8,64K,16M,1G", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["predictions"]) == 130 * 4
    assert time.process_time() - started < 5


@pytest.mark.parametrize(("options", "word", "status"), [
    (["model"], "--calibrate", 2),
    ([*CALIBRATE, "--parameters", SAMPLE], "either --calibrate", 2),
    (["model", "--parameters", SAMPLE], "calibrate again", 1),
    (["model", "--calibrate", "/nowhere.json"], "can't be read", 1),
    ([*CALIBRATE, "--nodes", "2,x"], "--nodes '2,x'", 2),
    ([*CALIBRATE, "--nodes", "0"], "--nodes '0'", 2),
    ([*CALIBRATE, "--nodes", "2", "--cores", "2,4"], "--cores '2,4'", 2),
    ([*CALIBRATE, "--nodes", "2", "--sizes", "64Q"], "--sizes", 2),
    ([*CALIBRATE, "--nodes", "2", "--sizes", "0"], "--sizes 0", 2),
    ([*CALIBRATE, "--nodes", "2", "--plot", "a.png"], ".svg or .html", 2),
    ([*CALIBRATE, "--nodes", "2", "--plot", "/nowhere/a.svg"], "can't be written", 1),
    ([*CALIBRATE, "--save", "/nowhere/a.json"], "can't be written", 1),
    ([*CALIBRATE, "--plot", "a.svg"], "give --nodes", 1),
])  # fmt: skip
def test_refusals_are_one_line_with_the_remedy(
    options: list[str], word: str, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(options) == status
    heard = capsys.readouterr()
    assert heard.out == ""
    (line,) = heard.err.splitlines()
    assert line.startswith("hierring: ")
    assert word in line


def test_without_matplotlib_the_remedy_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    file = tmp_path / "a.svg"
    assert cli.main([*CALIBRATE, "--nodes", "2", "--plot", str(file)]) == 1
    message = capsys.readouterr().err
    assert "hierring[report]" in message
    assert "--plot" in message
    assert not file.exists()


def test_the_picture_stands_alone(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / "a.svg"
    assert cli.main([*CALIBRATE, *GRID, "--check", SAMPLE, "--plot", str(file)]) == 0
    text = file.read_text()
    ElementTree.fromstring(text)
    assert "prefers-color-scheme: dark" in text
    assert "10,000" in text
    assert "16 MiB, 8 ranks a node" in text
    assert "predicted within" in text
    assert not re.search(r"(href|src)=\"http", text)


def test_the_page_holds_picture_and_tables(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / "a.html"
    assert cli.main([*CALIBRATE, *GRID, "--check", SAMPLE, "--plot", str(file)]) == 0
    text = file.read_text()
    assert text.count("<svg") == 1
    for heading in ("By number of nodes", "Predictions", "Predicted and measured", "Calibration"):
        assert f"<h2>{heading}</h2>" in text
    assert "default-src 'none'" in text
    assert "extrapolated: nodes, ranks" in text
