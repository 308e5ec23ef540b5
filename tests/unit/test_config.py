"""Settings: conversion, refusal of what is unknown or bad, ranges and pretended nodes.

One file, because every table in it is about the same fields.
"""

from __future__ import annotations

import dataclasses
import pickle
from datetime import timedelta

import pytest

from hierring.config import (
    Config,
    algorithm_for,
    parse_algorithm,
    parse_nodes,
    parse_seconds,
    parse_size,
)
from hierring.errors import ConfigurationError

FIELDS = dataclasses.fields(Config)


# --- sizes and seconds ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("0", 0),
        ("4096", 4096),
        ("4096B", 4096),
        ("4K", 4096),
        ("4k", 4096),
        (" 1M ", 1 << 20),
        ("2GiB", 2 << 30),
        ("3 MiB", 3 << 20),
        ("1T", 1 << 40),
        (77, 77),
    ],
)
def test_parse_size(text: object, nbytes: int) -> None:
    assert parse_size(text) == nbytes


@pytest.mark.parametrize("bad", ["", "4KB", "-1", "1.5K", "K", "1e6", -1, True, 1.0, None, "4P"])
def test_parse_size_refuses(bad: object) -> None:
    with pytest.raises(
        ConfigurationError, match=r"cell_bytes=.*is not valid: give bytes as a numb"
    ):
        parse_size(bad, "cell_bytes")


@pytest.mark.parametrize(
    ("value", "seconds"), [(2, 2.0), (0.5, 0.5), ("30", 30.0), (timedelta(minutes=2), 120.0)]
)
def test_parse_seconds(value: object, seconds: float) -> None:
    assert parse_seconds(value) == seconds


@pytest.mark.parametrize(
    "bad", [0, -1, "inf", float("nan"), "soon", None, True, timedelta(0), [1], 10**400]
)
def test_parse_seconds_refuses(bad: object) -> None:
    with pytest.raises(ConfigurationError, match=r"timeout=.*finite number of seconds above 0"):
        parse_seconds(bad)


# --- algorithm rules -----------------------------------------------------------------------------


def test_a_single_algorithm_holds_for_all_sizes() -> None:
    assert parse_algorithm("ring") == ((0, "ring"),)
    assert algorithm_for("ring", 0) == algorithm_for("ring", 1 << 50) == "ring"


def test_ranges_are_half_open() -> None:
    config = Config(algorithm="tree:0-4K; ring : 4K - 1M;hierarchical:1M-max")
    sizes = (0, 4095, 4096, (1 << 20) - 1, 1 << 20, 1 << 40)
    expected = ["tree", "tree", "ring", "ring", "hierarchical", "hierarchical"]
    assert [config.algorithm_for(nbytes) for nbytes in sizes] == expected


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("fast", "one of auto, hierarchical, ring, tree, naive, or ranges"),
        ("", "one of auto"),
        (None, "one of auto"),
        (7, "one of auto"),
        ("tree:0-4K;fast:4K-max", "one of auto"),
        ("tree", None),
        ("tree:0", "one of auto"),
        ("tree:0-4K;ring", "one of auto"),
        ("tree:0-4K;ring:8K-max", "without a gap"),
        ("tree:0-4K;ring:2K-max", "without a gap"),
        ("tree:1K-max", "from 0 to max"),
        ("tree:0-0;ring:0-max", "without a gap"),
        ("tree:0-max;ring:4K-max", "from 0 to max"),
        ("tree:0-4K;ring:4K-1M", 'whose last one ends in "max"'),
        ("tree:0-4Q;ring:4Q-max", "algorithm range end='4Q' is not valid"),
    ],
)
def test_algorithm_rules_are_checked_at_construction(bad: object, reason: str | None) -> None:
    if reason is None:
        assert Config(algorithm=bad).algorithm == bad  # type: ignore[arg-type]
        return
    with pytest.raises(ConfigurationError, match=reason):
        Config(algorithm=bad)  # type: ignore[arg-type]


# --- pretended nodes -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("2x3", [0, 0, 0, 1, 1, 1]),
        ("1x1", [0]),
        ("3,1", [0, 0, 0, 1]),
        ("3, 1, 2", [0, 0, 0, 1, 2, 2]),
        ("4", [0, 0, 0, 0]),
        ("cyclic:2", [0, 1, 0, 1, 0]),
        ("cyclic:3", [0, 1, 2]),
    ],
)
def test_parse_nodes(text: str, nodes: list[int]) -> None:
    assert parse_nodes(text, len(nodes)) == nodes


@pytest.mark.parametrize(
    ("text", "size", "reason"),
    [
        ("2x3", 5, "names 6 ranks, but the world has 5: start 6 ranks or change it"),
        ("3,1", 8, "names 4 ranks, but the world has 8"),
        ("cyclic:4", 3, "deals to 4 nodes, but the world has 3 ranks"),
    ],
)
def test_parse_nodes_must_name_exactly_its_ranks(text: str, size: int, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        parse_nodes(text, size)


@pytest.mark.parametrize("bad", ["", "2x", "x3", "0x3", "2x0", "3,,1", "3,0", "cyclic:0", "cyclic"])
def test_malformed_nodes_are_refused_without_knowing_the_size(bad: str) -> None:
    with pytest.raises(ConfigurationError, match=r'simulate_nodes=.*"2x3".*"3,1".*"cyclic:2"'):
        Config(simulate_nodes=bad)


# --- the dataclass -------------------------------------------------------------------------------


def test_defaults_are_the_documented_ones() -> None:
    assert dataclasses.asdict(Config()) == {
        "timeout_s": 1800.0,
        "init_timeout_s": 120.0,
        "warn_after_s": 30.0,
        "algorithm": "auto",
        "wire_dtype": None,
        "leaders": 0,
        "cell_bytes": 131072,
        "slice_bytes": 0,
        "max_message_bytes": 0,
        "small_bytes": 4096,
        "shared_memory": True,
        "simulate_nodes": None,
        "intra_schedule": "direct",
        "on_failure": "raise",
        "check_launcher": True,
    }


GOOD = [
    ("timeout_s", "2.5", 2.5),
    ("init_timeout_s", "1", 1.0),
    ("warn_after_s", "9", 9.0),
    ("algorithm", "tree:0-4K;ring:4K-max", "tree:0-4K;ring:4K-max"),
    ("wire_dtype", "bfloat16", "bfloat16"),
    ("leaders", "auto", 0),
    ("leaders", "4", 4),
    ("cell_bytes", "64K", 65536),
    ("slice_bytes", "1M", 1 << 20),
    ("slice_bytes", "0", 0),
    ("max_message_bytes", "1M", 1 << 20),
    ("small_bytes", "8K", 8192),
    ("shared_memory", "off", False),
    ("simulate_nodes", "2x3", "2x3"),
    ("intra_schedule", "ring", "ring"),
    ("on_failure", "abort", "abort"),
    ("check_launcher", "0", False),
    ("check_launcher", "YES", True),
]


def test_the_table_of_good_values_covers_every_field() -> None:
    assert {name for name, _, _ in GOOD} == {field.name for field in FIELDS}


@pytest.mark.parametrize(("name", "text", "value"), GOOD)
def test_a_text_means_the_same_in_the_environment_and_in_a_call(
    name: str, text: str, value: object
) -> None:
    from_env = Config.from_env({"HIERRING_" + name.upper(): text})
    from_call = Config(**{name: text})
    assert from_env == from_call
    assert getattr(from_call, name) == value
    assert type(getattr(from_call, name)) is type(value)


BAD = [
    ("timeout_s", "0", "finite number of seconds above 0"),
    ("init_timeout_s", "never", "finite number of seconds above 0"),
    ("warn_after_s", "-3", "finite number of seconds above 0"),
    ("algorithm", "fast", "one of auto, hierarchical, ring, tree, naive"),
    ("wire_dtype", "float64", "one of float32, bfloat16, float16"),
    ("leaders", "-1", "number of leaders per node from 1 to 1024"),
    ("leaders", "many", "number of leaders per node from 1 to 1024"),
    ("cell_bytes", "100", "128 to 1073741824 bytes, a multiple of 128"),
    ("cell_bytes", "0", "128 to 1073741824 bytes, a multiple of 128"),
    ("slice_bytes", "65", r"a multiple of 64, or 0 \(chosen by size\)"),
    ("max_message_bytes", "2G", "64 to 1073741824 bytes"),
    ("small_bytes", "0", "64 to 1048576 bytes, a multiple of 64"),
    ("shared_memory", "maybe", "1, true, yes, on or 0, false, no, off"),
    ("simulate_nodes", "two", '"2x3"'),
    ("intra_schedule", "tree", "one of direct, ring"),
    ("on_failure", "ignore", "one of raise, abort"),
    ("check_launcher", "2", "1, true, yes, on or 0, false, no, off"),
]


def test_the_table_of_bad_values_covers_every_field() -> None:
    assert {name for name, _, _ in BAD} == {field.name for field in FIELDS}


@pytest.mark.parametrize(("name", "text", "good"), BAD)
def test_a_bad_value_is_refused_with_its_own_name_and_the_good_ones(
    name: str, text: str, good: str
) -> None:
    variable = "HIERRING_" + name.upper()
    with pytest.raises(ConfigurationError, match=f"^{variable}='{text}' is not valid: .*{good}"):
        Config.from_env({variable: text})
    with pytest.raises(ConfigurationError, match=f"^{name}='{text}' is not valid: .*{good}"):
        Config(**{name: text})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("leaders", True),
        ("leaders", 1.5),
        ("shared_memory", None),
        ("shared_memory", 2.0),
        ("intra_schedule", None),
        ("wire_dtype", 32),
        ("simulate_nodes", 4),
        ("cell_bytes", 131072.0),
    ],
)
def test_values_of_another_type_are_refused(name: str, value: object) -> None:
    with pytest.raises(ConfigurationError, match=f"^{name}="):
        Config(**{name: value})  # type: ignore[arg-type]


def test_unknown_setting_is_refused_with_the_known_ones() -> None:
    for make in (Config, lambda **kw: Config.from_env({}, **kw)):
        with pytest.raises(ConfigurationError, match="unknown setting 'time_out': known are algor"):
            make(time_out=3)


@pytest.mark.parametrize("variable", ["HIERRING_TIMEOUT", "HIERRING_", "HIERRING_timeout_s"])
def test_unknown_variable_is_refused_with_the_known_ones(variable: str) -> None:
    with pytest.raises(ConfigurationError, match=f"unknown variable {variable}: .*G_TIMEOUT_S"):
        Config.from_env({variable: "3", "PATH": "/bin"})


def test_variables_of_others_are_passed_over() -> None:
    environ = {"HIERRING_TEST_SEED": "3", "HIERRING_SANITIZE": "thread", "XHIERRING_X": "1"}
    assert Config.from_env(environ) == Config()


def test_an_empty_variable_counts_as_unset() -> None:
    assert Config.from_env({"HIERRING_WIRE_DTYPE": "", "HIERRING_TIMEOUT_S": " "}) == Config()


def test_overrides_win_over_the_environment() -> None:
    environ = {"HIERRING_TIMEOUT_S": "5", "HIERRING_SIMULATE_NODES": "2x3"}
    config = Config.from_env(environ, timeout_s=timedelta(seconds=7), simulate_nodes=None)
    assert config.timeout_s == 7.0
    assert config.simulate_nodes is None


def test_config_is_frozen_hashable_and_picklable() -> None:
    config = Config(cell_bytes=65536, algorithm="ring")
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.timeout_s = 1.0  # type: ignore[misc]
    again = pickle.loads(pickle.dumps(config))
    assert again == config
    assert hash(again) == hash(config)
    assert dataclasses.replace(config, algorithm="tree").cell_bytes == 65536


def test_fingerprint_holds_what_ranks_must_agree_on_and_nothing_else() -> None:
    mine = Config(timeout_s=1, init_timeout_s=1, warn_after_s=1, on_failure="abort")
    assert mine.protocol_fingerprint() == Config().protocol_fingerprint()
    assert set(mine.protocol_fingerprint()) == {
        "algorithm",
        "wire_dtype",
        "leaders",
        "cell_bytes",
        "slice_bytes",
        "max_message_bytes",
        "small_bytes",
        "shared_memory",
        "simulate_nodes",
        "intra_schedule",
    }
    other = Config(cell_bytes=65536).protocol_fingerprint()
    assert other != Config().protocol_fingerprint()


def test_every_field_is_documented_and_names_its_unit() -> None:
    for field in FIELDS:
        assert len(field.metadata["doc"]) > 10, field.name
        if isinstance(field.default, float):
            assert field.name.endswith("_s")
        elif isinstance(field.default, int) and field.default > 1:
            assert field.name.endswith("_bytes")
