"""The model foretells virtual clusters that it never saw; live, in rounds that take minutes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hierring.benchmarks.model.measured import shape_of
from hierring.benchmarks.result import load
from hierring.launch.cluster.tools import why_impossible

WHY_NOT = why_impossible()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT)),
]
ROW = re.compile(r"\| (\d+x\d+) \| (\S+ \S+) \| hierarchical \|.*\| ([\d.]+) \|$", re.MULTILINE)


def rehearse(*options: str, limit_s: float) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-P", "-m", "hierring.benchmarks.model.rehearse", *options]
    return subprocess.run(
        program, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit_s,
        check=False,
    )  # fmt: skip


def test_one_command_measures_predicts_and_compares(tmp_path: Path) -> None:
    short = ("--calibrate", "2x1", "--layouts", "3x1", "--rates", "none", "--rounds", "1")
    done = rehearse(*short, "--tries", "1", "--calls", "2", "--limit", "0", "--keep",
                    str(tmp_path), limit_s=240)  # fmt: skip
    # No prediction is right to the last digit, so the limit is passed.
    assert done.returncode == 1, done.stdout + done.stderr
    assert [(layout, size) for layout, size, _ in ROW.findall(done.stdout)] == [
        ("3x1", "64 KiB"),
        ("3x1", "16 MiB"),
    ]
    assert "links without a limit" in done.stdout
    learnt, asked = tmp_path / "none-0-learn-2x1.json", tmp_path / "none-0-ask-3x1.json"
    assert [shape_of(load(file)).nodes for file in (learnt, asked)] == [2, 3]
    assert shape_of(load(asked)).one_machine
    # The kept runs are what `hierring model` takes.
    program = [sys.executable, "-P", "-m", "hierring", "model", "--calibrate", str(learnt)]
    told = subprocess.run(
        [*program, "--check", str(asked), "--json"], capture_output=True, text=True, check=True,
        stdin=subprocess.DEVNULL, timeout=60,
    )  # fmt: skip
    checks = json.loads(told.stdout)["checks"]
    assert [(one["nodes"], one["nbytes"]) for one in checks] == [(3, 2**16), (3, 2**24)]
    assert {one["beyond"] == [] for one in checks} == {True}


@pytest.mark.parametrize(("options", "word"), [
    (("--layouts", "2y1"), "no layout"),
    (("--rates", "fast"), "no link rate"),
])  # fmt: skip
def test_wrong_usage_is_refused_in_a_line(options: tuple[str, ...], word: str) -> None:
    done = rehearse(*options, limit_s=60)
    assert done.returncode in (1, 2)
    assert word in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.long
@pytest.mark.parametrize("rate", ["1gbit", "none"])
def test_two_nodes_foretell_three_and_four(rate: str) -> None:
    done = rehearse("--rates", rate, limit_s=2400)
    found = ROW.findall(done.stdout)
    assert {(layout, size) for layout, size, _ in found} == {
        (layout, size) for layout in ("2x1", "3x1", "4x1") for size in ("64 KiB", "16 MiB")
    }
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(0.75 <= float(ratio) <= 1.25 for _, _, ratio in found), done.stdout
