"""Findings: equal ones of many ranks become one, and a report shows them to people and programs."""

from __future__ import annotations

import dataclasses
import json

from hierring._testing.examinations import healthy_job
from hierring.launch.doctor.examine import report
from hierring.launch.doctor.findings import Finding, Report, gather

SLOW = Finding("warning", "network", "the link is slow", "A ring waits for it.", "Mend it.")


def of(ranks):
    return dataclasses.replace(SLOW, ranks=ranks)


def shown(findings, hostnames=("a", "a", "b", "b")):
    return Report("4 ranks", hostnames, tuple(gather(findings))).describe()


def test_equal_findings_become_one():
    assert gather([of((2,)), of((0,)), of((1,))]) == [of((0, 1, 2))]


def test_findings_that_differ_in_anything_stay_apart():
    for name, value in (("level", "note"), ("topic", "x"), ("what", "x"), ("remedy", "x")):
        other = dataclasses.replace(SLOW, **{name: value}, ranks=(1,))
        assert len(gather([of((0,)), other])) == 2


def test_the_worst_come_first_and_else_in_order():
    order = ["ok", "error", "note", "warning", "error"]
    findings = [Finding(level, "t", f"{n}") for n, level in enumerate(order)]
    assert [finding.what for finding in gather(findings)] == ["1", "4", "3", "2", "0"]


def test_ranks_are_named_by_host():
    assert "the link is slow (ranks 0-1 on a, rank 3 on b)" in shown([of((0, 1, 3))])
    assert "the link is slow (all ranks)" in shown([of((0, 1, 2, 3))])
    assert "the link is slow\n" in shown([of(())])
    assert "the link is slow\n" in shown([of((0,))], ("a",))


def test_text_for_people():
    lines = shown([Finding("ok", "t", "good"), of(())]).splitlines()
    assert lines == [
        "hierring doctor: 4 ranks",
        "",
        "warning the link is slow",
        "        A ring waits for it.",
        "        -> Mend it.",
        "ok      good",
        "",
        "1 warning",
    ]


def test_long_sentences_are_broken_between_words():
    long = dataclasses.replace(SLOW, what="/a-long/path-name " * 20)
    text = shown([long])
    assert max(map(len, text.splitlines())) <= 100
    assert text.count("/a-long/path-name") == 20


def test_only_errors_make_the_exit_status():
    assert Report("", ("a",), (SLOW, Finding("note", "t", "x"))).exit_code == 0
    assert Report("", ("a",), (SLOW, Finding("error", "t", "x"))).exit_code == 1


def test_the_summary_counts():
    found = [Finding("error", "t", "1"), Finding("error", "t", "2"), SLOW, Finding("ok", "t", "x")]
    assert shown(found).endswith("\n2 errors, 1 warning")
    assert shown([Finding("ok", "t", "x")]).endswith("\nnothing to complain of")


def test_a_report_is_strict_json():
    found = report(healthy_job())
    values = found.to_dict()
    assert json.loads(json.dumps(values, allow_nan=False)) == values
    assert values["size"] == 4
    assert values["hostnames"] == ["a", "a", "b", "b"]
    assert {"level", "topic", "what", "why", "remedy", "ranks", "where"} == set(
        values["findings"][0]
    )


def test_a_healthy_job_has_nothing_to_complain_of():
    found = report(healthy_job())
    assert {finding.level for finding in found.findings} == {"ok"}
    assert found.headline == "4 ranks on 2 nodes (a: 2, b: 2)"
