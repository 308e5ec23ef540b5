"""The page: pictures of few and many nodes, escaped text, and nothing from elsewhere."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from hierring import cli
from hierring.benchmarks.report.page import page
from hierring.benchmarks.report.picture import MOST_NODES, cluster_picture, colour_class, path
from hierring.benchmarks.report.tables import sections
from hierring.benchmarks.result import Result, Straggler, load, loads
from hierring.topology import RingLink

SAMPLE_FILE = Path(__file__).resolve().parents[1] / "data" / "bench-2x2.json"
SAMPLE = load(SAMPLE_FILE)
HOSTILE = "<script>alert(1)</script>'\"&$x$"


def grown(nodes: int, ranks: int) -> Result:
    """The sample's topology with more nodes, and a ring that is slow behind node 1."""
    first = SAMPLE.topology["nodes"][0]
    topology = {
        **SAMPLE.topology,
        "size": nodes * ranks,
        "num_nodes": nodes,
        "leader_order": list(range(nodes)),
        "nodes": [
            {
                **first,
                "number": node,
                "hostname": f"host{node}",
                "leader": node * ranks,
                "local_size": ranks,
                "ranks": [
                    {**first["ranks"][0], "rank": node * ranks + index} for index in range(ranks)
                ],
            }
            for node in range(nodes)
        ],
    }
    ring = tuple(
        RingLink((a, (a + 1) % nodes), 1.0 if a == 1 else 10.0) for a in range(nodes) if nodes > 1
    )
    return dataclasses.replace(SAMPLE, topology=topology, ring=ring, links=(), stragglers=())


def hostile() -> Result:
    tree = json.loads(SAMPLE_FILE.read_text())
    for node in tree["topology"]["nodes"]:
        node["hostname"] = node["ranks"][0]["cpus"] = HOSTILE
    tree["environment"]["hostname"] = tree["settings"]["command"][0] = HOSTILE
    for case in tree["cases"]:
        if case["library"] == "hierring":
            case["algorithm"] = HOSTILE
    tree["stragglers"][0]["text"] = HOSTILE
    return loads(json.dumps(tree), "hostile")


def texts(svg: str) -> list[str]:
    return [e.text or "" for e in ElementTree.fromstring(svg).iter() if e.tag.endswith("text")]


@pytest.mark.parametrize("count", range(1, MOST_NODES + 1))
def test_each_node_has_a_place_of_its_own_and_neighbours_beside_it(count):
    cells = path(count, 1.5)
    assert len(cells) == len(set(cells)) == count
    if count > 3:
        diagonal = [
            (a, b)
            for a, b in zip(cells, [*cells[1:], cells[0]], strict=True)
            if a[0] != b[0] and a[1] != b[1]
        ]
        assert len(diagonal) <= 1


@pytest.mark.parametrize(("nodes", "ranks"), [(1, 1), (2, 2), (3, 1), (5, 9), (12, 4)])
def test_all_ranks_are_drawn(nodes, ranks):
    found = texts(cluster_picture(grown(nodes, ranks)))
    assert [text for text in found if text.isdigit()] == [str(r) for r in range(nodes * ranks)]
    assert sum(text.startswith("node ") for text in found) == nodes
    assert found.count("10.000") == (nodes - 1 if nodes > 1 else 0)


@pytest.mark.parametrize("nodes", [13, 33, 64])
def test_many_nodes_are_drawn_compactly(nodes):
    svg = cluster_picture(grown(nodes, 8))
    assert texts(svg).count("8 ranks") == nodes
    assert svg.count("url(#tip-q4)") == nodes - 1
    assert svg.count("url(#tip-q0)") == 1
    width = float(re.search(r'viewBox="0 0 (\d+)', svg).group(1))
    assert width < 1200


def test_beyond_that_a_part_is_drawn_and_said_to_be_one():
    result = grown(100, 1)
    assert texts(cluster_picture(result)).count("1 rank") == MOST_NODES
    assert f"Drawn are {MOST_NODES} of 100 nodes" in page("x", [("", result, sections(result))])


def test_what_stands_out_is_marked():
    slow = (
        Straggler("link", (0, 1), "bandwidth", 1, 10, True, "slow link"),
        Straggler("rank", (3,), "awaited", 1, 0, True, "slow rank"),
    )
    svg = cluster_picture(dataclasses.replace(grown(4, 2), stragglers=slow))
    assert "slow link" in svg
    assert "rank 3, keeps others waiting" in svg
    assert "keeps others waiting" not in cluster_picture(grown(4, 2))


def test_colours_of_links():
    assert [colour_class(v, 10) for v in (10, 9, 7, 5, 3, 1)] == [
        "q4",
        "q4",
        "q3",
        "q2",
        "q1",
        "q0",
    ]
    assert colour_class(None, 10) == colour_class(1, 0) == "qn"


class Scan(HTMLParser):
    """Gathers tags, and attributes that may fetch something."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.fetched: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        for name, value in attrs:
            assert not name.startswith("on"), (tag, name)
            if name in ("src", "href", "xlink:href", "srcset", "data") and value[:1] != "#":
                self.fetched.append(value)


@pytest.mark.parametrize("result", [SAMPLE, hostile()], ids=["sample", "hostile"])
def test_a_page_has_no_script_and_fetches_nothing(result):
    pytest.importorskip("matplotlib")
    text = page("a & b", [("", result, sections(result))])
    scan = Scan()
    scan.feed(text)
    assert scan.fetched == []
    assert not scan.tags & {"script", "link", "img", "iframe", "object"}
    assert {"svg", "table", "style"} <= scan.tags
    assert "<title>a &amp; b</title>" in text
    # Only names of XML remain of all addresses.
    assert set(re.findall(r"https?://[^\"' <]+", text)) <= {
        "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink",
    }  # fmt: skip
    assert "url(http" not in text
    assert not re.search("#0a0[bc]", text), "a colour that is no variable"


def test_hostile_text_is_shown_as_it_is():
    pytest.importorskip("matplotlib")
    result = hostile()
    text = page("x", [("", result, sections(result))])
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "<script" not in text


def test_the_page_holds_the_numbers_of_the_file():
    pytest.importorskip("matplotlib")
    text = page("x", [("", SAMPLE, sections(SAMPLE))])
    for section in sections(SAMPLE):
        for block in section.blocks:
            for row in getattr(block, "rows", ()):
                assert all(re.sub("[&<>\"'].*", "", cell) in text for cell in row)


def test_without_matplotlib_the_command_says_what_to_install(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert cli.main(["report", str(SAMPLE_FILE), "--html", str(tmp_path / "x.html")]) == 1
    assert "hierring[report]" in capsys.readouterr().err
    assert not (tmp_path / "x.html").exists()
