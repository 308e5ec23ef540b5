"""Where hierring stands: ratios of rounds, sizes and libraries, put together."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from hierring.benchmarks.contest import Job
from hierring.benchmarks.environments import MpiEnvironment
from hierring.benchmarks.figures import Ratio
from hierring.benchmarks.jobs import Layout
from hierring.benchmarks.result import load
from hierring.benchmarks.standing import Place, Row, Spread, Standing, round_rows, standing_rows

SAMPLE = load(Path(__file__).resolve().parents[1] / "data" / "bench-2x2.json")
CASE = next(case for case in SAMPLE.cases if case.library == "mpi")
MPICH = MpiEnvironment("/a/python", "mpich", "MPICH 5", True)
OPENMPI = MpiEnvironment("/b/python", "openmpi", "Open MPI 5", False)
PLACE = Place(Layout(2, 2), True)


def ratio(median):
    return Ratio("hierring auto", median, median * 0.9, median * 1.1)


def job(environment, peers, turn=0, layout=PLACE.layout, extra=()):
    """One whose peers took so many times hierring's time: {library: {nbytes: ratio}}."""
    cases = [
        dataclasses.replace(
            CASE, library="hierring", algorithm="auto", ratio=None, nbytes=nbytes, in_place=True
        )
        for nbytes in {nbytes for by_size in peers.values() for nbytes in by_size}
    ]
    for (library, algorithm), by_size in {
        **{(name, ""): sizes for name, sizes in peers.items()},
        **{("hierring", name): sizes for name, sizes in extra},
    }.items():
        cases += [
            dataclasses.replace(
                CASE, library=library, algorithm=algorithm, nbytes=nbytes, in_place=True,
                ratio=ratio(value),
            )
            for nbytes, value in by_size.items()
        ]  # fmt: skip
    return Job(environment, layout, turn, {}, dataclasses.replace(SAMPLE, cases=tuple(cases)))


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_fastest_is_found_size_by_size():
    standing = Standing([
        job(MPICH, {"mpi": {2**16: 1.5, 2**20: 2.0}, "gloo": {2**16: 3.0, 2**20: 1.2}}),
        job(OPENMPI, {"mpi": {2**16: 0.8, 2**20: 4.0}}),
    ])  # fmt: skip
    assert standing.peers == ["MPICH 5", "gloo", "Open MPI 5"]
    assert [standing.fastest(Row(PLACE, nbytes))[0] for nbytes in (2**16, 2**20)] == [
        "Open MPI 5", "gloo",
    ]  # fmt: skip
    span = standing.span(PLACE, 2**16, 2**26)
    assert span.fastest.median == pytest.approx((0.8 * 1.2) ** 0.5)
    assert span.fastest.low == pytest.approx(0.9 * (0.8 * 1.2) ** 0.5)
    assert span.by_peer["Open MPI 5"].median == pytest.approx((0.8 * 4) ** 0.5)
    assert (span.worst[0], span.worst[1], span.worst[2].median) == (2**16, "Open MPI 5", 0.8)
    assert (span.sizes, span.text) == ((2**16, 2**20), "64 KiB to 1 MiB, 2 sizes")


def test_a_span_holds_its_sizes_alone():
    standing = Standing([job(MPICH, {"mpi": {8: 0.5, 2**13: 2.0, 2**14: 9.0, 2**16: 3.0}})])
    assert standing.span(PLACE, 1, 2**13).fastest.median == pytest.approx(1.0)
    assert standing.span(PLACE, 2**16, 2**26).sizes == (2**16,)
    assert standing.span(PLACE, 2**27, 2**30) is None


def test_who_misses_a_size_has_no_mean():
    standing = Standing([job(MPICH, {"mpi": {8: 1.0, 64: 1.0}, "gloo": {8: 2.0}})])
    assert set(standing.span(PLACE, 1, 2**13).by_peer) == {"MPICH 5"}


def test_rounds_give_the_median_and_widen_the_spread():
    rounds = [job(MPICH, {"mpi": {8: value}}, turn) for turn, value in enumerate((1.0, 4.0, 2.0))]
    assert Standing(rounds).ratio(Row(PLACE, 8), "MPICH 5") == Spread(2.0, 0.9, pytest.approx(4.4))
    head, _, line = (text for text in round_rows(rounds) if text.startswith("|"))
    assert cells(head)[3:] == ["round 1", "round 2", "round 3"]
    assert [cell.split()[0] for cell in cells(line)[3:]] == ["1.00", "4.00", "2.00"]


def test_one_round_is_not_shown_by_itself():
    assert list(round_rows([job(MPICH, {"mpi": {8: 1.0}})])) == []


def test_another_way_to_call_hierring_can_be_the_measure():
    one = job(MPICH, {"mpi": {8: 3.0, 64: 3.0}}, extra=[("ring", {8: 2.0})])
    standing = Standing([one], ours="hierring ring")
    assert standing.ratio(Row(PLACE, 8), "MPICH 5").median == 1.5
    assert standing.ratio(Row(PLACE, 64), "MPICH 5") is None, "ring did not run it"
    assert Standing([one]).peers == ["MPICH 5"], "our own are no peers"


def test_the_table_of_places_and_spans():
    head, _, *lines = standing_rows(
        Standing([
            job(MPICH, {"mpi": {8: 1.0, 2**16: 2.0}}),
            job(MPICH, {"mpi": {8: 0.5, 2**20: 4.0}}, layout=Layout(1, 4)),
        ])
    )  # fmt: skip
    assert cells(head)[3:] == ["MPICH 5", "**the fastest of all**", "worst size"]
    assert [cells(line)[:3] for line in lines] == [
        ["2x2", "in place", "64 KiB"],
        ["2x2", "in place", "8 B"],
        ["4 ranks", "in place", "1 MiB"],
        ["4 ranks", "in place", "8 B"],
    ]
    assert cells(lines[0])[3:] == [
        "2.00 (1.80 to 2.20)", "**2.00 (1.80 to 2.20)**", "64 KiB: 2.00 (MPICH 5)",
    ]  # fmt: skip


def test_the_file_of_a_real_run():
    standing = Standing([Job(MPICH, Layout(2, 2), 0, {}, SAMPLE)])
    for case in SAMPLE.cases:
        row = Row(Place(Layout(2, 2), case.in_place), case.nbytes)
        who = "MPICH 5" if case.library == "mpi" else case.name
        found = standing.ratio(row, who)
        assert (found is None) == (case.ratio is None)
        assert case.ratio is None or found.median == case.ratio.median
