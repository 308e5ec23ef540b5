"""The bar is for terminals."""

from __future__ import annotations

import sys

from hierring.benchmarks.progress import Bar


def pretend_terminal(monkeypatch):
    """In the test itself: capsys has put its streams there by then."""
    for stream in (sys.stdout, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True)


def test_it_grows_and_goes(monkeypatch, capsys):
    pretend_terminal(monkeypatch)
    bar = Bar(4, True)
    bar.show(1, "8 bytes")
    bar.clear()
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("\r\x1b[K[#######....")
    assert err.endswith("1 of 4: 8 bytes\r\x1b[K")


def test_other_ranks_show_none(monkeypatch, capsys):
    pretend_terminal(monkeypatch)
    bar = Bar(4, False)
    bar.show(1, "8 bytes")
    bar.clear()
    assert capsys.readouterr() == ("", "")


def test_without_a_terminal_there_is_none(capsys):
    bar = Bar(4, True)
    bar.show(1, "8 bytes")
    bar.clear()
    assert capsys.readouterr() == ("", "")
