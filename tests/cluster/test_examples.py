"""The demo and the examples, started as a user starts them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Launch = Callable[..., Any]
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
#: What an import of torch or scikit-learn by several ranks may take on a busy machine.
LIMIT_S = 240
LAYOUTS = [(4, "2x2", 2), (4, "1,1,2", 3), (1, None, 1)]  # ranks, layout, nodes

#: The demo with everything spoilt that it checks: too small steps, an algorithm that sends more, a
#: gradient that is too large, and one rank with a gradient of its own.
SPOILT = """
import sys
import hierring
from hierring.launch import demo

def spoilt(vector, factor):
    hierring.allreduce(vector, scale=1.5 * factor, algorithm="naive")
    vector += 1e-6 * hierring.rank()

demo.RATE = 1e-3
demo._allreduce = spoilt
sys.exit(demo.run())
"""


BYTES = re.compile(
    r"(\d+) bytes sent .* theory: (\d+), .* (\d+) all-reduces .*M = (\d+), bytes S = (\d+)"
)


def verdicts(output: str) -> dict[str, bool]:
    """What each check said, by its text."""
    found = re.findall(r"^(ok|FAILED)\s+(.*)$", output, re.MULTILINE)
    return {text: word == "ok" for word, text in found}


@pytest.mark.slow
@pytest.mark.parametrize(("size", "layout", "num_nodes"), LAYOUTS, ids=str)
def test_demo(
    launch: Launch, no_leftovers: None, size: int, layout: str | None, num_nodes: int
) -> None:
    job = launch(size, "demo", program=("-m", "hierring"), nodes=layout).wait(LIMIT_S).check()
    found = verdicts(job.stdout)
    assert len(found) == 4
    assert all(found.values()), job.stdout
    accuracy = next(text for text in found if text.startswith("accuracy"))
    assert float(accuracy.split()[1].rstrip("%")) > 95
    assert f"hierring: {size} rank" in job.stdout
    losses = [float(loss) for loss in re.findall(r"^epoch +\d+: loss ([\d.]+)$", job.stdout, re.M)]
    assert len(losses) == 12
    assert losses[-1] < losses[0] / 5
    sent, theory, calls, nodes, nbytes = map(int, BYTES.findall(job.stdout)[0])
    assert nodes == num_nodes
    assert sent == theory == 2 * (nodes - 1) * nbytes * calls
    assert nbytes > 64 * 1024
    assert "\r" not in job.stdout + job.stderr, "a progress bar in a log"


@pytest.mark.slow
def test_demo_finds_every_fault(launch: Launch, tmp_path: Path) -> None:
    program = tmp_path / "spoilt.py"
    program.write_text(SPOILT)
    job = launch(3, program=(str(program),), nodes="2,1").wait(LIMIT_S)
    assert job.code == 1, job.stdout + job.stderr
    assert list(verdicts(job.stdout).values()) == [False] * 4, job.stdout


@pytest.mark.slow
def test_demo_without_digits_says_what_to_install(launch: Launch, tmp_path: Path) -> None:
    """Once, though no rank can go on."""
    package = tmp_path / "sklearn"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('not installed')\n")
    settings = {"PYTHONPATH": str(tmp_path)}
    job = launch(3, "demo", program=("-m", "hierring"), settings=settings).wait(LIMIT_S)
    assert job.code == 1
    assert job.stderr.count("pip install 'hierring[demo]'") == 1
    assert "Traceback" not in job.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "layout", "least"), [("numpy", "2,1", 0.9), ("torch", "1,1", 0.94)]
)
def test_example(launch: Launch, no_leftovers: None, name: str, layout: str, least: float) -> None:
    pytest.importorskip("torch" if name == "torch" else "sklearn")
    program = (str(EXAMPLES / f"{name}_digits.py"),)
    size = sum(map(int, layout.split(",")))
    job = launch(size, program=program, nodes=layout).wait(LIMIT_S).check()
    (accuracy,) = re.findall(r"^accuracy ([\d.]+) after", job.stdout, re.MULTILINE)
    assert float(accuracy) > least


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.py")), ids=lambda file: file.name)
def test_example_fits_on_a_screen(file: Path) -> None:
    assert len(file.read_text().splitlines()) <= 50
