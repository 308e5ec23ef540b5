"""Files of figures: written strictly, read strictly, and errors that say where."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from hierring.benchmarks.result import SCHEMA, load, loads, save
from hierring.benchmarks.strict import BadFileError

SAMPLE = Path(__file__).resolve().parents[1] / "data" / "bench-2x2.json"


@pytest.fixture
def tree():
    return json.loads(SAMPLE.read_text())


def refused(tree):
    with pytest.raises(BadFileError) as caught:
        loads(json.dumps(tree), "a.json")
    return str(caught.value)


def test_what_is_written_is_read(tmp_path):
    result = load(SAMPLE)
    save(result, tmp_path / "copy.json")
    assert load(tmp_path / "copy.json") == result


def test_the_sample_is_a_run_of_four_ranks_on_two_nodes():
    result = load(SAMPLE)
    assert result.schema == SCHEMA
    assert result.topology["num_nodes"] == 2
    assert {len(case.ranks) for case in result.cases} == {4}
    for case in result.cases:
        assert case.busbw / case.algbw == pytest.approx(1.5, rel=1e-12)
        assert case.algbw * 1e9 == pytest.approx(case.nbytes / case.times.median, rel=1e-12)


def test_phases_of_the_sample_add_up():
    """They are measured as parts of the total, so nothing is lost."""
    seen = 0
    for rank in (rank for case in load(SAMPLE).cases for rank in case.ranks):
        if rank.phases is not None:
            parts = dataclasses.asdict(rank.phases)
            total = parts.pop("total")
            assert sum(parts.values()) == pytest.approx(total, rel=1e-9)
            seen += 1
    assert seen


def test_an_unknown_field_is_refused(tree):
    tree["cases"][2]["times"]["mode"] = 1.0
    assert refused(tree) == "a.json: $.cases[2].times: unknown field 'mode'"


def test_a_missing_field_is_refused(tree):
    del tree["environment"]["simd_level"]
    assert refused(tree) == "a.json: $.environment: missing field 'simd_level'"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"count": "12"}, '$.cases[0].count: expected a whole number, not "12"'),
        ({"count": 1.5}, "$.cases[0].count: expected a whole number, not 1.5"),
        ({"count": True}, "$.cases[0].count: expected a whole number, not true"),
        ({"in_place": 1}, "$.cases[0].in_place: expected true or false, not 1"),
        ({"algbw": None}, "$.cases[0].algbw: expected a number, not null"),
        ({"algbw": False}, "$.cases[0].algbw: expected a number, not false"),
        ({"times": []}, "$.cases[0].times: expected an object, not []"),
        ({"ranks": {}}, "$.cases[0].ranks: expected a list, not {}"),
        ({"library": 3}, "$.cases[0].library: expected a text, not 3"),
    ],
)
def test_values_of_another_type_are_refused(tree, change, text):
    tree["cases"][0].update(change)
    assert refused(tree) == f"a.json: {text}"


def test_a_pair_has_two_items(tree):
    tree["links"] = [{"nodes": [0, 1, 2], "latency": 1e-6, "forth": 1, "back": 1, "both": 1}]
    assert refused(tree) == "a.json: $.links[0].nodes: expected 2 items, not 3"


def test_whole_numbers_are_numbers(tree):
    tree["cases"][0]["algbw"] = 3
    found = loads(json.dumps(tree), "a.json").cases[0].algbw
    assert found == 3.0
    assert isinstance(found, float)


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_what_is_no_number_is_refused(tree, word):
    text = json.dumps(tree).replace(f'"algbw": {tree["cases"][0]["algbw"]}', f'"algbw": {word}', 1)
    with pytest.raises(BadFileError, match=rf"a.json is no JSON: {word} is no number"):
        loads(text, "a.json")


def test_a_number_too_large_is_refused(tree):
    text = json.dumps(tree).replace(f'"algbw": {tree["cases"][0]["algbw"]}', '"algbw": 1e999', 1)
    with pytest.raises(BadFileError, match="expected a finite number"):
        loads(text, "a.json")


def test_nan_is_not_written(tmp_path):
    result = load(SAMPLE)
    bad = dataclasses.replace(
        result, environment=dataclasses.replace(result.environment, seconds=float("nan"))
    )
    with pytest.raises(ValueError, match="JSON compliant"):
        save(bad, tmp_path / "nan.json")


def test_another_schema_is_named_first(tree):
    tree = {"schema": "hierring.bench/2", "cases": "other"}
    assert refused(tree).startswith("a.json: schema 'hierring.bench/2', but this hierring reads")


@pytest.mark.parametrize("text", ["[]", "{}", "3"])
def test_json_of_another_program(text):
    with pytest.raises(BadFileError, match="not from hierring bench"):
        loads(text, "a.json")


def test_a_file_that_is_none(tmp_path):
    with pytest.raises(BadFileError, match="can't be read"):
        load(tmp_path / "absent.json")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadFileError, match="can't be read"):
        load(tmp_path / "binary.json")
    (tmp_path / "cut.json").write_text(SAMPLE.read_text()[:1000])
    with pytest.raises(BadFileError, match="is no JSON"):
        load(tmp_path / "cut.json")
