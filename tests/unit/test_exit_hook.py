"""What the end of the process does, with a stand-in for MPI."""

from __future__ import annotations

import io
import sys
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from hierring.communicator import exit_hook


@pytest.fixture
def aborts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The exit codes that the hook aborts with; two ranks, MPI running."""
    codes: list[int] = []
    world = SimpleNamespace(Get_size=lambda: 2, Abort=codes.append)
    mpi = SimpleNamespace(Is_initialized=lambda: True, Is_finalized=lambda: False, COMM_WORLD=world)
    monkeypatch.setitem(sys.modules, "mpi4py", SimpleNamespace(MPI=mpi))
    monkeypatch.setattr(exit_hook, "_alive", weakref.WeakSet())
    monkeypatch.setattr(exit_hook, "_orphaned", [])
    monkeypatch.setattr(exit_hook, "FLUSH_S", 0.0)
    return codes


def closed() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize("stream", [None, closed()], ids=["gone", "closed"])
def test_an_uncaught_error_ends_the_job_whatever_became_of_the_streams(
    aborts: list[int], monkeypatch: pytest.MonkeyPatch, stream: Any
) -> None:
    monkeypatch.setattr(exit_hook, "_uncaught", True)
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", stream)
    exit_hook._at_exit()
    assert aborts == [1]


def test_a_forked_child_of_the_job_leaves_it_alone(
    aborts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exit_hook, "_uncaught", True)
    monkeypatch.setattr(exit_hook, "_in_fork", True)
    exit_hook._at_exit()
    assert not aborts


class Busy:
    """The lock of a communicator that a thread never leaves."""

    def acquire(self, timeout: float) -> bool:
        return False


def test_a_thread_that_is_still_inside_ends_the_job(
    aborts: list[int], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    engine = SimpleNamespace(cause=lambda: None)
    busy = SimpleNamespace(_closed=False, _engine=engine, _lock=Busy())
    monkeypatch.setattr(exit_hook, "_uncaught", False)
    monkeypatch.setattr(exit_hook, "_alive", [busy])
    monkeypatch.setattr(exit_hook, "say_goodbye", lambda engines: None)
    exit_hook._at_exit()
    assert aborts == [1]
    assert "a thread is still inside a communicator" in capfd.readouterr().err


def test_an_orderly_end_says_goodbye(aborts: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    gone: list[object] = []
    lock = SimpleNamespace(acquire=lambda timeout: True)
    engine = SimpleNamespace(cause=lambda: None)
    one = SimpleNamespace(_closed=False, _engine=engine, _lock=lock)
    monkeypatch.setattr(exit_hook, "_uncaught", False)
    monkeypatch.setattr(exit_hook, "_alive", [one, SimpleNamespace(_closed=True)])
    monkeypatch.setattr(exit_hook, "say_goodbye", gone.extend)
    exit_hook._at_exit()
    assert gone == [engine]
    assert one._closed
    assert not aborts


class Communicator:
    """What the hook looks at."""

    def __init__(self, text: str | None) -> None:
        self._closed = False
        self.change(text)

    def change(self, text: str | None) -> None:
        cause = None if text is None else SimpleNamespace(text=text)
        self._engine = SimpleNamespace(cause=lambda: cause)


def test_a_broken_communicator_that_nobody_holds_ends_the_job(
    aborts: list[int], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(exit_hook, "_uncaught", False)
    broken = Communicator(None)
    exit_hook.watch(broken)  # type: ignore[arg-type]
    broken.change("rank 1 did not arrive")
    del broken
    exit_hook._at_exit()
    assert aborts == [1]
    assert "rank 1 did not arrive" in capfd.readouterr().err


@pytest.mark.parametrize("end", ["healthy", "rebuilt", "closed"])
def test_other_communicators_may_go(
    aborts: list[int], monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr(exit_hook, "_uncaught", False)
    one = Communicator(None if end == "healthy" else "rank 1 did not arrive")
    exit_hook.watch(one)  # type: ignore[arg-type]
    if end == "rebuilt":
        one.change(None)
    one._closed = end == "closed"
    del one
    exit_hook._at_exit()
    assert not aborts
