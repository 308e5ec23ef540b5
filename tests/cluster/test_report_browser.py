"""The page of `hierring report` in a real browser: quiet, alone, and readable everywhere.

HIERRING_TEST_SCREENSHOTS=DIRECTORY keeps the pictures, for people to look at.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hierring import cli
from hierring._testing import browser as chromium

pytest.importorskip("matplotlib", reason="matplotlib draws the page's plots")
if chromium.EXECUTABLE is None:
    pytest.skip("chromium is missing (Debian's package chromium)", allow_module_level=True)

SAMPLE = Path(__file__).resolve().parents[1] / "data" / "bench-2x2.json"
HOSTILE = "<img src='http://192.0.2.1/x' onerror=alert(1)><script>alert(2)</script>"
#: Whether something sticks out of the page, and what.
STICKING_OUT = """
[...document.querySelectorAll('body *')].filter(e =>
    !e.closest('.scroll') && e.getBoundingClientRect().right > innerWidth + 1)
    .map(e => e.outerHTML.slice(0, 80))
"""
#: WCAG's contrast of text on its background, for the least readable of some elements.
CONTRAST = """
(() => {
  const channels = c => c.match(/[\\d.]+/g).map(Number);
  const light = c => { const [r, g, b] = channels(c).slice(0, 3).map(v => (v /= 255) <= 0.03928 ?
      v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const back = e => { for (; e; e = e.parentElement) {
      const c = getComputedStyle(e).backgroundColor;
      if (channels(c)[3] !== 0) return c; } return 'rgb(255, 255, 255)'; };
  return Math.min(...[...document.querySelectorAll('h1,h2,p,a,th,td:not(.hot),figcaption,text')]
    .map(e => { const s = getComputedStyle(e);
      const [a, b] = [light(e.tagName === 'text' ? s.fill : s.color), light(back(e))];
      return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05); }));
})()
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, the second from hosts with hostile names."""
    directory = tmp_path_factory.mktemp("report")
    tree = json.loads(SAMPLE.read_text())
    for node in tree["topology"]["nodes"]:
        node["hostname"] = HOSTILE
    tree["environment"]["hostname"] = HOSTILE
    (directory / "other.json").write_text(json.dumps(tree))
    file = directory / "report.html"
    assert (
        cli.main(["report", str(SAMPLE), str(directory / "other.json"), "--html", str(file)]) == 0
    )
    return file


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Browser]:
    with chromium.browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("width", "dark", "medium"),
    [
        (1280, False, "screen"),
        (1280, True, "screen"),
        (390, False, "screen"),
        (390, True, "screen"),
        (1000, False, "print"),
    ],
)
def test_page(page, browser, tmp_path, width, dark, medium):
    browser.requests.clear()
    browser.complaints.clear()
    browser.look(width, dark=dark, medium=medium)
    browser.open(page)
    shot = tmp_path / f"report-{width}-{'dark' if dark else 'light'}-{medium}.png"
    browser.screenshot(shot)
    assert shot.read_bytes()[:4] == b"\x89PNG"
    assert shot.stat().st_size > 50_000, "an empty page"
    if os.environ.get("HIERRING_TEST_SCREENSHOTS"):
        kept = Path(os.environ["HIERRING_TEST_SCREENSHOTS"])
        (kept / shot.name).write_bytes(shot.read_bytes())

    assert browser.complaints == []
    assert browser.requests == [page.as_uri()], "the page asked for something"
    assert browser.evaluate("document.scripts.length + document.images.length") == 0
    assert browser.evaluate("document.body.textContent").count("<script>alert(2)") > 2
    if medium == "screen":
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
        assert browser.evaluate(STICKING_OUT) == []
    background = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(15, 18, 22)") is dark
    assert browser.evaluate(CONTRAST) >= 4.5
    assert browser.evaluate("document.querySelectorAll('.plots svg').length") >= 8


@pytest.mark.slow
def test_a_script_or_a_request_would_be_seen(browser, tmp_path):
    """The watch itself works: a page that misbehaves is caught."""
    bad = tmp_path / "bad.html"
    bad.write_text("<img src='nothing.png'><script>console.error('x'); throw Error('y')</script>")
    browser.requests.clear()
    browser.complaints.clear()
    browser.open(bad)
    assert len(browser.requests) == 2
    assert len(browser.complaints) >= 2


@pytest.mark.slow
def test_print(page, browser, tmp_path):
    browser.look(1000)
    browser.open(page)
    browser.pdf(tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").read_bytes()[:5] == b"%PDF-"
