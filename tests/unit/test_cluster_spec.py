"""What a virtual cluster may be, and what its nodes read."""

from __future__ import annotations

import pytest

from hierring.errors import ConfigurationError
from hierring.launch.cluster.spec import (
    MAX_NODES,
    NodeSpec,
    address,
    hosts_text,
    node_specs,
    rate_bits,
    shared_paths,
)


def test_a_number_of_nodes_names_them() -> None:
    specs = node_specs(3, rate="1gbit", shm_nbytes=65536)
    assert [spec.name for spec in specs] == ["node0", "node1", "node2"]
    assert {(spec.rate, spec.shm_nbytes, spec.hostname) for spec in specs} == {
        ("1gbit", 65536, None)
    }


def test_a_node_of_its_own_kind_keeps_what_it_says() -> None:
    specs = node_specs(
        [NodeSpec("a", shm_nbytes=8192), NodeSpec("b", rate="1mbit")], rate="1gbit", shm_nbytes=4096
    )
    assert [(spec.shm_nbytes, spec.rate) for spec in specs] == [(8192, "1gbit"), (4096, "1mbit")]


@pytest.mark.parametrize(
    ("nodes", "word"),
    [
        (0, "1 to"),
        (MAX_NODES + 1, "1 to"),
        (10**12, "1 to"),
        ([NodeSpec("a"), NodeSpec("a")], "a name of its own"),
        ([NodeSpec("head")], "'head' is taken"),
        ([NodeSpec("a b")], "no host name"),
        ([NodeSpec("a", hostname="-x")], "no host name"),
        ([NodeSpec("a", rate="fast")], "no link rate"),
        ([NodeSpec("a", shm_nbytes=100)], "at least 4096"),
    ],
)
def test_what_cannot_be_made_is_refused(nodes: int | list[NodeSpec], word: str) -> None:
    with pytest.raises(ConfigurationError, match=word):
        node_specs(nodes)


def test_the_last_node_does_not_meet_the_head() -> None:
    assert address(MAX_NODES - 1) == "10.77.0.209"


def test_hosts() -> None:
    specs = node_specs([NodeSpec("node0", hostname="a.x"), NodeSpec("node1")])
    assert hosts_text(specs).splitlines() == [
        "127.0.0.1 localhost",
        "10.77.0.10 node0 a.x",
        "10.77.0.11 node1",
        "10.77.0.254 head",
    ]


def test_a_node_means_itself_by_a_hostname_that_others_have_too() -> None:
    specs = node_specs([NodeSpec("node0", hostname="same"), NodeSpec("node1", hostname="same")])
    assert hosts_text(specs, 1).splitlines()[1:3] == [
        "10.77.0.11 same node1",
        "10.77.0.10 node0 same",
    ]


def test_localhost_stays_the_loopback_device_of_others() -> None:
    specs = node_specs([NodeSpec("node0", hostname="localhost"), NodeSpec("node1")])
    assert "10.77.0.10 node0" in hosts_text(specs, 1).splitlines()


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        ("1gbit", 10**9),
        ("100Mbit", 10**8),
        ("1.5mbit", 1_500_000),
        ("1kbps", 8000),
        ("1kibit", 1024),
        ("9bit", 9),
    ],
)
def test_rates_are_those_of_tc(text: str, bits: int) -> None:
    assert rate_bits(text) == bits


@pytest.mark.parametrize("text", ["", "1", "gbit", "0mbit", "-1mbit", "1 gbit", "1gb"])
def test_other_rates_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="as tc does"):
        rate_bits(text)


@pytest.mark.parametrize("text", ["11tbit", "999999999tbps", "9" * 400 + "bit"])
def test_a_rate_beyond_what_tc_counts_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="at most 10tbit"):
        rate_bits(text)


def test_only_private_places_need_sharing(tmp_path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    under_tmp = str(tmp_path).startswith("/tmp/")
    expected = (str(tmp_path.resolve()),) if under_tmp else ()
    assert shared_paths(["/usr", inner, tmp_path]) == expected


@pytest.mark.parametrize("path", ["/tmp", "/dev/shm", "/tmp/../tmp"])
def test_a_whole_private_place_cannot_be_shared(path: str) -> None:
    with pytest.raises(ConfigurationError, match="of its own"):
        shared_paths([path])


def test_a_missing_path_cannot_be_shared() -> None:
    with pytest.raises(ConfigurationError, match="does not exist"):
        shared_paths(["/tmp/hierring-no-such-directory"])
