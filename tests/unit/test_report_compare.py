"""Two runs compared: ratios, what may be said of them, and what else differs."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from hierring.benchmarks.figures import Case, Times
from hierring.benchmarks.report.compare import comparison, differences, pairs, verdict
from hierring.benchmarks.report.document import Alert, Table
from hierring.benchmarks.result import Result, load

SAMPLE = load(Path(__file__).resolve().parents[1] / "data" / "bench-2x2.json")


def scaled(case: Case, factor: float) -> Case:
    values = {name: value * factor for name, value in dataclasses.asdict(case.times).items()}
    return dataclasses.replace(case, times=Times(**values))


def run(factor: float) -> Result:
    return dataclasses.replace(SAMPLE, cases=tuple(scaled(c, factor) for c in SAMPLE.cases))


@pytest.mark.parametrize("factor", [0.01, 100.0])
def test_ratios(factor):
    (contenders, cases) = (
        block
        for block in comparison(SAMPLE, run(factor), ("a", "b")).blocks
        if isinstance(block, Table)
    )
    assert len(cases.rows) == len(SAMPLE.cases)
    word = "faster" if factor < 1 else "slower"
    for row in cases.rows:
        assert (row[3], row[6], row[7]) == (word, f"{factor:.2f}", f"{factor:.2f}")
    assert {row[2] for row in contenders.rows} == {f"{factor:.2f}"}


def test_nothing_is_said_within_the_spread():
    case = SAMPLE.cases[0]
    assert verdict(case, case) == "within spread"
    nearly = dataclasses.replace(
        case, times=dataclasses.replace(case.times, median=case.times.min * 1.01)
    )
    assert verdict(case, nearly) == verdict(nearly, case) == "within spread"


def test_cases_of_one_run_only_are_counted():
    fewer = dataclasses.replace(SAMPLE, cases=SAMPLE.cases[3:])
    both, lone = pairs(SAMPLE, fewer)
    assert (len(both), lone) == (len(SAMPLE.cases) - 3, 3)
    nothing = dataclasses.replace(SAMPLE, cases=())
    assert pairs(SAMPLE, nothing) == ([], len(SAMPLE.cases))
    assert comparison(SAMPLE, nothing, ("a", "b")).blocks


def test_differences_of_settings_software_and_topology():
    assert differences(SAMPLE, SAMPLE) == []
    other = dataclasses.replace(
        SAMPLE,
        environment=dataclasses.replace(SAMPLE.environment, mpi="Another MPI", date="2027"),
        topology={**SAMPLE.topology, "placement": "cyclic"},
        settings=dataclasses.replace(
            SAMPLE.settings, config={**SAMPLE.settings.config, "cell_bytes": 4096}
        ),
    )
    changed = {name: (a, b) for name, a, b in differences(SAMPLE, other)}
    assert set(changed) == {"mpi", "placement", "cell bytes"}
    assert changed["cell bytes"] == ("131072", "4096")
    alerts = [b for b in comparison(SAMPLE, other, ("a", "b")).blocks if isinstance(b, Alert)]
    assert len(alerts) == 1
