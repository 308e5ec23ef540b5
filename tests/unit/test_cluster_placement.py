"""Which rank runs on which virtual node, and the command lines that say so."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hierring.errors import ConfigurationError
from hierring.launch.cluster.placement import PLACEMENTS, mpiexec_command, parse_ranks, place
from hierring.launch.mpi import Launcher


@pytest.mark.parametrize(
    ("text", "nodes", "counts"),
    [
        ("4", 2, [4, 4]),
        ("4", None, [4, 4]),
        ("3,1", None, [3, 1]),
        ("1, 1, 2", 3, [1, 1, 2]),
    ],
)
def test_ranks_per_node(text: str, nodes: int | None, counts: list[int]) -> None:
    assert parse_ranks(text, nodes) == counts


@pytest.mark.parametrize("text", ["", "0", "3,0", "two", "3,", "-1", "²"])
def test_other_ranks_per_node_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"write 4, or 3,1"):
        parse_ranks(text)


@pytest.mark.parametrize(
    ("text", "nodes", "word"),
    [
        ("99999999999", 2, "write 4"),
        ("9999999999", 2, "too many"),
        ("4096,1", None, "too many"),
        ("9" * 5000, 2, "write 4"),
        ("1", 10**12, "1 to 200 nodes"),
        ("1", -1, "not -1"),
    ],
)
def test_more_than_a_machine_can_hold_is_refused_before_it_is_made(
    text: str, nodes: int | None, word: str
) -> None:
    with pytest.raises(ConfigurationError, match=word):
        parse_ranks(text, nodes)


def test_a_list_for_another_number_of_nodes_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="for 2 nodes, but there are 3"):
        parse_ranks("3,1", 3)


@pytest.mark.parametrize(
    ("counts", "block", "cyclic"),
    [
        ([2, 2], [0, 0, 1, 1], [0, 1, 0, 1]),
        ([3, 1], [0, 0, 0, 1], [0, 1, 0, 0]),
        ([1, 1, 2], [0, 1, 2, 2], [0, 1, 2, 2]),
        ([1, 3, 2], [0, 1, 1, 1, 2, 2], [0, 1, 2, 1, 2, 1]),
    ],
)
def test_placement(counts: list[int], block: list[int], cyclic: list[int]) -> None:
    assert place(counts, "block") == block
    assert place(counts, "cyclic") == cyclic


@given(st.lists(st.integers(1, 5), min_size=1, max_size=5), st.sampled_from(PLACEMENTS))
def test_every_node_gets_its_ranks(counts: list[int], placement: str) -> None:
    assert Counter(place(counts, placement)) == dict(enumerate(counts))


def test_an_unknown_placement_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="block, cyclic"):
        place([1, 1], "random")


def command(vendor: str, counts: list[int], placement: str) -> str:
    """The command line without what is the same in all of them."""
    launcher = Launcher(vendor, Path("/mpi/mpiexec"))
    names = [f"node{i}" for i in range(len(counts))]
    words = mpiexec_command(launcher, names, counts, placement, ["prog", "x"], "/enter")
    text = " ".join(words)
    assert "/mpi/mpiexec" in words
    assert text.endswith(" prog x")
    assert "/enter" in words
    return text


def test_mpich_gets_counts_or_a_rank_map() -> None:
    assert "-hosts node0:3,node1:1 -n 4 prog" in command("mpich", [3, 1], "block")
    assert "-hosts node0,node1 -rankmap 0,1,0,0 -n 4 prog" in command("mpich", [3, 1], "cyclic")


def test_openmpi_gets_slots_and_an_order() -> None:
    assert "--host node0:3,node1:1 --map-by slot -n 4 prog" in command("openmpi", [3, 1], "block")
    line = command("openmpi", [3, 1], "cyclic")
    assert "--host node0:3,node1:1 --map-by node -n 4 prog" in line
    assert "--oversubscribe" not in line  # with it, a full node would get ranks


def test_impi_gets_a_section_for_each_run_of_ranks() -> None:
    section = "-n {} -host node{} prog x"
    block = " : ".join([section.format(3, 0), section.format(1, 1)])
    assert command("impi", [3, 1], "block").endswith(block)
    cyclic = " : ".join([section.format(1, 0), section.format(1, 1), section.format(2, 0)])
    assert command("impi", [3, 1], "cyclic").endswith(cyclic)


def test_the_users_own_variables_go_before_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FI_PROVIDER", raising=False)
    assert "FI_PROVIDER=tcp" in command("impi", [1, 1], "block")
    monkeypatch.setenv("FI_PROVIDER", "verbs")
    assert "FI_PROVIDER" not in command("impi", [1, 1], "block")
