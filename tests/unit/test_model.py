"""The model's formulas: steps, bytes, bounds, and that no number of nodes is too many."""

from __future__ import annotations

import dataclasses
import math
import time

import pytest

from hierring.benchmarks.metrics import theory
from hierring.benchmarks.model.forecast import beyond, forecast
from hierring.benchmarks.model.parameters import (
    SCHEMA,
    Engine,
    Fit,
    Model,
    Parameters,
    Reach,
    load_model,
    save_model,
)
from hierring.benchmarks.model.predict import ALGORITHMS, opening_steps, predict
from hierring.benchmarks.model.shape import Shape
from hierring.benchmarks.strict import BadFileError
from hierring.ring import doubling

ENGINE = Engine()
FREE = Parameters(*([0.0] * len(dataclasses.fields(Parameters))))
SOME = Parameters(
    call=50e-6, arrive=5e-6, turn=500e-6, alpha=10e-6, beta=1e-10, step=15e-6, touch=2e-10,
    local_step=5e-6, local_touch=1e-10, copy=1e-10, gamma=1e-10, burst=0.0,
)  # fmt: skip
MIB = 2**20


def cost(**values: float) -> Parameters:
    """Everything is free but these."""
    return dataclasses.replace(FREE, **values)


def seconds(
    algorithm: str, nbytes: int, nodes: int, ranks: int, costs: Parameters, cores: int = 64
) -> float:
    return predict(algorithm, nbytes, Shape(nodes, ranks, cores), costs, ENGINE).seconds


@pytest.mark.parametrize("nodes", [*range(1, 18), 31, 32, 33])
def test_the_opening_takes_as_many_messages_in_turn_as_its_schedule(nodes: int) -> None:
    plans = [doubling(nodes, me) for me in range(nodes)]
    longest = max(
        2 if plan.folds_to is not None else len(plan.partners) + 2 * (plan.folded is not None)
        for plan in plans
    )
    assert opening_steps(nodes) == longest


@pytest.mark.parametrize(("algorithm", "chosen"), [
    ("hierarchical", "staged"), ("ring", "flat ring"), ("tree", "flat tree"),
    ("naive", "flat naive"),
])  # fmt: skip
@pytest.mark.parametrize(("nodes", "ranks"), [(2, 1), (2, 2), (3, 1), (4, 4)])
def test_core_time_of_bytes_is_that_of_the_bytes_in_theory(
    algorithm: str, chosen: str, nodes: int, ranks: int
) -> None:
    """On one core all ranks' work adds up; with equal costs per byte it counts what MPI moves."""
    shape = Shape(nodes, ranks, cores=1, one_machine=True)
    costs = cost(touch=1e-9, local_touch=1e-9)
    nbytes = 8 * MIB
    found = predict(algorithm, nbytes, shape, costs, ENGINE).seconds
    expected = theory("allreduce", chosen, nbytes, nbytes, [ranks] * nodes).mpi
    assert expected is not None
    # The opening's claims are bytes, too.
    assert found == pytest.approx(1e-9 * expected, rel=0.01)


@pytest.mark.parametrize("nodes", [2, 3, 4, 64, 10_000])
def test_only_the_wire_costs_what_it_must(nodes: int) -> None:
    """2(M-1)/M S over the link's rate, hierarchical or a ring of ranks in blocks."""
    nbytes, rate = 256 * MIB, 1e9
    bound = 2 * (nodes - 1) / nodes * nbytes / rate
    for algorithm, ranks in (("hierarchical", 4), ("hierarchical", 1), ("ring", 1)):
        found = seconds(algorithm, nbytes, nodes, ranks, cost(beta=1 / rate))
        assert found == pytest.approx(bound, rel=0.01)
    in_turn = Shape(nodes, 4, 64, cyclic=True)
    dealt = predict("ring", nbytes, in_turn, cost(beta=1 / rate), ENGINE).seconds
    size = 4 * nodes
    assert dealt == pytest.approx(4 * 2 * (size - 1) / size * nbytes / rate, rel=0.01)


def test_a_bucket_lets_small_messages_pass_at_once() -> None:
    costs = cost(beta=1e-8, burst=128 * 1024.0)
    assert seconds("hierarchical", 64 * 1024, 2, 1, costs) == 0
    limited = seconds("hierarchical", 64 * MIB, 2, 1, costs)
    assert limited == pytest.approx(64 * MIB * 1e-8, rel=0.01)


@pytest.mark.parametrize(("nodes", "steps"), [(2, 1 + 1), (3, 3 + 4), (4, 2 + 6), (5, 4 + 8)])
def test_steps_of_one_slice(nodes: int, steps: int) -> None:
    """The opening, then an exchange or a ring."""
    assert seconds("hierarchical", 64 * 1024, nodes, 1, cost(alpha=1.0)) == steps


def test_doubling_below_its_border() -> None:
    assert seconds("hierarchical", 32 * 1024, 4, 1, cost(alpha=1.0)) == 2 + 2
    assert seconds("hierarchical", 4096, 4, 1, cost(alpha=1.0)) == 2


def test_the_latency_of_slices_in_flight_overlaps() -> None:
    """Three slices at a time on nodes of one rank: a third of the steps for each but the first."""
    slices = 16 * MIB // (128 * 1024)
    found = seconds("hierarchical", 16 * MIB, 4, 1, cost(alpha=1.0))
    assert found == pytest.approx(2 + 6 + (slices - 1) * 6 / 3)


def test_ranks_that_outnumber_cores_take_turns() -> None:
    costs = cost(call=1.0)
    alone = predict("hierarchical", 8, Shape(4, 2, 2), costs, ENGINE).seconds
    shared = predict("hierarchical", 8, Shape(4, 2, 2, one_machine=True), costs, ENGINE).seconds
    assert (alone, shared) == (1.0, 4.0)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_more_bytes_more_nodes_never_take_less(algorithm: str) -> None:
    sizes = [4097 * 2**power for power in range(0, 26, 2)]
    for ranks in (1, 2, 8):
        table = [
            [seconds(algorithm, size, 2**power, ranks, SOME) for size in sizes]
            for power in range(1, 16)
        ]
        for row in table:
            assert row == sorted(row)
        for column in zip(*table, strict=True):
            assert list(column) == sorted(column)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_tens_of_thousands_of_nodes_take_no_longer_to_predict(algorithm: str) -> None:
    started = time.process_time()
    for nodes in (1, 2, 65_536, 99_999, 10**9):
        for nbytes in (1, 2**30, 2**50):
            found = seconds(algorithm, nbytes, nodes, 128, SOME)
            assert math.isfinite(found)
            assert found > 0
    assert time.process_time() - started < 0.5


def test_one_node_needs_no_network() -> None:
    network = cost(alpha=1.0, beta=1.0, step=1.0, touch=1.0)
    for algorithm in ALGORITHMS:
        assert seconds(algorithm, MIB, 1, 4, network) == 0
        assert seconds(algorithm, MIB, 1, 1, network) == 0


def model() -> Model:
    reach = Reach((2, 2), (1, 2), (1024, 16 * MIB), ("hierarchical",), 2, True, (0.1, 0.12))
    return Model(SCHEMA, SOME, ENGINE, reach, Fit(10, 0.05, 0.2), ("a run",))


@pytest.mark.parametrize(("shape", "nbytes", "words"), [
    (Shape(2, 1, 2, True), MIB, ()),
    (Shape(4, 2, 2, True), 1024, ()),
    (Shape(5, 2, 2, True), MIB, ("nodes",)),
    (Shape(1, 2, 2), MIB, ("nodes",)),
    (Shape(2, 3, 2, True), MIB, ("ranks",)),
    (Shape(2, 1, 2, True), 1023, ("size",)),
    (Shape(10_000, 8, 64), 2**30, ("nodes", "ranks", "size", "machines", "cores")),
])  # fmt: skip
def test_what_lies_beyond_the_calibration_is_said(
    shape: Shape, nbytes: int, words: tuple[str, ...]
) -> None:
    assert beyond(model().reach, shape, nbytes) == words
    assert forecast(model(), shape, nbytes).beyond == words


def test_the_best_is_the_fastest() -> None:
    found = forecast(model(), Shape(64, 2, 2, True), MIB)
    assert found.seconds[found.best] == min(found.seconds.values())
    assert found.algbw == pytest.approx(MIB / found.seconds[found.best] / 1e9)
    assert found.auto_seconds == found.seconds["hierarchical"]


def test_a_calibration_is_read_as_it_was_written(tmp_path) -> None:
    save_model(model(), tmp_path / "a.json")
    assert load_model(tmp_path / "a.json") == model()


@pytest.mark.parametrize(("old", "new", "word"), [
    ("hierring.model/1", "hierring.model/9", "calibrate again"),
    ('"step": 1.5e-05', '"step": -1.5e-05', "not negative"),
    ('"gamma"', '"delta"', "unknown field 'delta'"),
    ('"nodes"', '"knots"', "knots"),
])  # fmt: skip
def test_a_file_that_is_none_is_refused(tmp_path, old: str, new: str, word: str) -> None:
    save_model(model(), tmp_path / "a.json")
    text = (tmp_path / "a.json").read_text()
    assert old in text
    (tmp_path / "a.json").write_text(text.replace(old, new))
    with pytest.raises(BadFileError, match=word):
        load_model(tmp_path / "a.json")
