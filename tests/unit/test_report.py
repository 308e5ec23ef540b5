"""What `hierring report` says of a run is what the file says, whatever the file holds."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

from hierring import cli
from hierring.benchmarks.report.document import Table, duration, nbytes_text, rate
from hierring.benchmarks.report.insight import PHASES, lost_by_rank, mean_phases, phase_cases
from hierring.benchmarks.report.markdown import escape, markdown
from hierring.benchmarks.report.tables import sections
from hierring.benchmarks.result import Faster, Result, Straggler, load, loads, save

SAMPLE_FILE = Path(__file__).resolve().parents[1] / "data" / "bench-2x2.json"
SAMPLE = load(SAMPLE_FILE)
HOSTILE = '<img src=x onerror="alert(1)">|`*&amp;'


def tables(result: Result, key: str) -> list[Table]:
    """The tables of one section."""
    (section,) = (section for section in sections(result) if section.key == key)
    return [block for block in section.blocks if isinstance(block, Table)]


def text_of(result: Result) -> str:
    return markdown("a run", sections(result))


def hostile() -> Result:
    """The sample with markup wherever a file may hold text."""
    tree = json.loads(SAMPLE_FILE.read_text())
    for node in tree["topology"]["nodes"]:
        node["hostname"] = HOSTILE
        node["ranks"][0]["cpus"] = HOSTILE
        node["hardware"]["nics"][0]["name"] = HOSTILE
    tree["topology"]["warnings"] = [HOSTILE]
    for name in ("hostname", "mpi", "launcher", "kernel", "date"):
        tree["environment"][name] = HOSTILE
    tree["settings"]["command"] = [HOSTILE]
    tree["settings"]["config"][HOSTILE] = HOSTILE
    tree["method"]["definitions"][HOSTILE] = HOSTILE
    tree["skipped"] = [{"what": HOSTILE, "why": HOSTILE}]
    for case in tree["cases"]:
        case["algorithm"] = case["chosen"] = case["dtype"] = HOSTILE
    for one in tree["stragglers"]:
        one["text"], one["stands_out"] = HOSTILE, True
    return loads(json.dumps(tree), "hostile")


def alone() -> Result:
    """What is left of the sample with one rank."""
    topology = {**SAMPLE.topology, "size": 1, "num_nodes": 1, "leader_order": [0], "leaders": [0]}
    node = SAMPLE.topology["nodes"][0]
    topology["nodes"] = [{**node, "local_size": 1, "ranks": node["ranks"][:1]}]
    cases = tuple(
        dataclasses.replace(case, ranks=(dataclasses.replace(case.ranks[0], awaited=None),))
        for case in SAMPLE.cases
    )
    return dataclasses.replace(
        SAMPLE, topology=topology, cases=cases, links=(), ring=(), stragglers=()
    )


def test_results_are_those_of_the_file():
    rows = [row for table in tables(SAMPLE, "results") for row in table.rows]
    assert len(rows) == len(SAMPLE.cases)
    for case in SAMPLE.cases:
        expected = (
            nbytes_text(case.nbytes), case.name, case.chosen or "–", duration(case.times.median),
            duration(case.times.min), duration(case.times.p99), duration(case.times.max),
            rate(case.algbw), rate(case.busbw), rate(case.intra_busbw), rate(case.inter_busbw),
            f"{case.bounds.percent:.1f}",
        )  # fmt: skip
        assert any(row[: len(expected)] == expected for row in rows)
    for table in tables(SAMPLE, "results"):
        assert all(len(row) == len(table.columns) for row in table.rows)


def test_the_factor_of_busbw_is_stated_with_its_numbers():
    assert "2(N-1)/N = 1.5 for N = 4" in text_of(SAMPLE)
    assert all(escape(name) in text_of(SAMPLE) for name in SAMPLE.method.definitions)
    assert "1 GB = 1e9 bytes" in text_of(SAMPLE)


def test_phases_add_up_as_in_the_file():
    cases = phase_cases(SAMPLE)
    assert cases
    assert len(tables(SAMPLE, "phases")[0].rows) == len(cases)
    for case in cases:
        mean = mean_phases(case)
        assert sum(mean[name] for name in PHASES) == pytest.approx(mean["total"], rel=1e-9)


def test_counters_that_differ_from_theory_are_named():
    assert f"All {len(tables(SAMPLE, 'counters')[0].rows)} cases equal theory" in text_of(SAMPLE)
    first = SAMPLE.cases[0]
    assert first.bytes is not None
    moved = dataclasses.replace(first.bytes, between_nodes=first.bytes.between_nodes + 1)
    wrong = dataclasses.replace(
        SAMPLE, cases=(dataclasses.replace(first, bytes=moved), *SAMPLE.cases[1:])
    )
    (table,) = tables(wrong, "counters")
    assert [row[-1] for row in table.rows].count("NO") == 1
    assert "1 of" in text_of(wrong)


def test_the_map_of_stragglers_weighs_by_calls():
    own = [case for case in SAMPLE.cases if case.library == "hierring"]
    calls = sum(case.iterations for case in own)
    lost = lost_by_rank(SAMPLE, "lateness")
    assert set(lost) == {0, 1, 2, 3}
    for index in lost:
        expected = sum(case.ranks[index].lateness * case.iterations for case in own) / calls
        assert lost[index] == pytest.approx(expected)


def test_what_stands_out_is_an_error_in_the_text():
    slow = Straggler("link", (0, 1), "bandwidth", 0.1, 1.0, True, "the link crawls")
    text = text_of(dataclasses.replace(SAMPLE, stragglers=(slow,)))
    assert "**Error:** Slow: the link crawls." in text
    assert "**Error:** Slow link: the link crawls." in text


def test_a_faster_algorithm_is_named():
    first = SAMPLE.cases[0]
    one = Faster(first.collective, first.dtype, first.op, first.nbytes, first.in_place,
                 first.chosen, "hierring tree", 0.5)  # fmt: skip
    assert "hierring tree took 0.50 of the time" in text_of(
        dataclasses.replace(SAMPLE, faster=(one,))
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"wrong": 3}, "3 elements were wrong"),
        ({"wrong": None}, "not checked"),
        ({"complete": False}, "Cut short"),
        ({"cases": ()}, "No case was measured"),
        ({"links": (), "ring": (), "memory": ()}, "Links were not probed"),
    ],
)
def test_doubts_are_not_kept_silent(change, words):
    assert words in text_of(dataclasses.replace(SAMPLE, **change))


def test_one_rank_alone():
    text = text_of(alone())
    assert "1 rank on 1 node, " in text
    assert "one node, no ring" in text
    assert "highest algbw" in text
    assert "highest busbw" in text_of(SAMPLE)
    assert "Nobody kept others waiting" in text


def test_markdown_keeps_hostile_text_as_text():
    text = text_of(hostile())
    assert "<img" not in text.replace("\\<img", "")
    assert text.count("\\<img") > 50
    rows = [line for line in text.splitlines() if line.startswith("|")]
    bars = [len(re.findall(r"(?<!\\)\|", row)) for row in rows]
    heads = [index - 1 for index, row in enumerate(rows) if row.startswith("| ---")]
    for head, end in zip(heads, [*heads[1:], len(rows)], strict=True):
        # A bar in a text is escaped, or its row would have another cell.
        assert set(bars[head:end]) == {bars[head]}
    assert escape("a|b\nc") == "a\\|b c"


def test_command_writes_markdown_to_stdout(capsys):
    assert cli.main(["report", str(SAMPLE_FILE)]) == 0
    assert capsys.readouterr().out.startswith("# hierring bench: 4 ranks on 2 nodes")


def test_command_compares_files(tmp_path, capsys):
    save(SAMPLE, tmp_path / "after.json")
    out = tmp_path / "both.md"
    files = [str(SAMPLE_FILE), str(tmp_path / "after.json")]
    assert cli.main(["report", *files, "--markdown", str(out)]) == 0
    assert capsys.readouterr().out == ""
    assert "A (bench-2x2) against B (after)" in out.read_text()


def test_command_refuses_what_is_no_run(tmp_path, capsys):
    (tmp_path / "x.json").write_text("{}")
    assert cli.main(["report", str(tmp_path / "x.json")]) == 1
    assert "schema" in capsys.readouterr().err
    assert cli.main(["report", str(SAMPLE_FILE), "--markdown", str(tmp_path / "no" / "x")]) == 1
    assert "can't be written" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0"),
        (1.5e-6, "1.5 µs"),
        (0.012345, "12.3 ms"),
        (2, "2 s"),
        (4321, "4321 s"),
        (None, "–"),
    ],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("nbytes", "text"), [(8, "8 B"), (1000, "1000 B"), (1 << 16, "64 KiB"), (3 << 30, "3 GiB")]
)
def test_sizes(nbytes, text):
    assert nbytes_text(nbytes) == text
