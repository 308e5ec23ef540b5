"""Waiting for quiet, and repeating what was disturbed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from hierring.benchmarks.model import watch
from hierring.benchmarks.model.watch import LIMIT, undisturbed


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """A function that sets which share of the cores others use in each run; returns the log."""

    def play(*shares: float) -> list[str]:
        log: list[str] = []
        cores, clock, used = 4, [0.0], [0.0]
        left: Iterator[float] = iter(shares)

        def measure() -> str:
            clock[0] += 10.0
            used[0] += next(left) * 10.0 * cores
            log.append(f"run {len(log)}")
            return log[-1]

        monkeypatch.setattr(watch.time, "monotonic", lambda: clock[0])
        monkeypatch.setattr(watch.os, "cpu_count", lambda: cores)
        monkeypatch.setattr(watch, "_clock", lambda: used[0])
        monkeypatch.setattr(watch, "_await_quiet", lambda deadline: None)
        found = undisturbed(measure, tries=3)
        return [found.value, f"{found.others:.2f}", f"{len(log)} runs"]

    return play


def test_a_quiet_run_is_made_once(played: Callable[..., list[str]]) -> None:
    assert played(LIMIT / 2) == ["run 0", "0.03", "1 runs"]


def test_a_disturbed_run_is_repeated(played: Callable[..., list[str]]) -> None:
    assert played(0.5, 0.01) == ["run 1", "0.01", "2 runs"]


def test_of_disturbed_runs_the_quietest_counts(played: Callable[..., list[str]]) -> None:
    assert played(0.5, 0.2, 0.3) == ["run 1", "0.20", "3 runs"]


def test_own_children_are_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """What they use is taken off the machine's time, which stands still here."""
    frozen = watch.psutil.cpu_times()
    monkeypatch.setattr(watch.psutil, "cpu_times", lambda: frozen)
    program = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
    before = watch._clock()
    subprocess.run([sys.executable, "-c", program], check=True)
    assert watch._clock() - before < -0.3
