"""The locks of a segment tell which ranks live, and which named segments nobody holds any more."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hierring import _core
from hierring._testing.processes import Process, in_child

SHM = Path("/dev/shm")
NBYTES = 1 << 16


def names() -> set[str]:
    return {path.name for path in SHM.glob("hierring-*")}


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def segment() -> Iterator[_core.Segment]:
    made = _core.Segment.create(NBYTES)
    yield made
    made.close()


@pytest.fixture
def peer() -> Iterator[Process]:
    with Process() as process:
        yield process


def attach(peer: Process, segment: _core.Segment) -> None:
    """Let a peer map the segment under the name ``s``."""
    command = f"globals().update(s=_core.Segment.attach({segment.path!r}, {segment.nbytes}))"
    assert peer.ask(command) is None


def test_locks_tell_who_lives(segment: _core.Segment, peer: Process) -> None:
    attach(peer, segment)
    segment.lock(0)
    segment.lock(0)
    assert segment.alive(0)
    assert not segment.alive(1)
    assert peer.ask("(s.alive(0), s.alive(1), s.lock(1), s.alive(1))") == (True, False, None, True)
    assert segment.alive(1)
    assert peer.ask("s.lock(0)")["errno"] in (errno.EAGAIN, errno.EACCES)
    peer.kill()
    assert not segment.alive(1)
    segment.lock(1)


def test_another_descriptor_would_drop_the_locks(segment: _core.Segment, peer: Process) -> None:
    """Whoever closes any descriptor of a file loses all its locks on it, so there is only one."""
    attach(peer, segment)
    segment.lock(0)
    files = open_files()
    again = _core.Segment.attach(segment.path, NBYTES)
    assert open_files() == files
    again.close()
    assert _core.sweep() >= 0
    assert peer.ask("s.alive(0)")
    again = _core.Segment.attach(segment.path, NBYTES)
    again.lock(2)
    segment.close()
    assert again.alive(0)
    assert again.alive(2)
    assert peer.ask("(s.alive(0), s.alive(2))") == (True, True)
    again.close()
    assert peer.ask("(s.alive(0), s.alive(2))") == (False, False)


def test_a_child_neither_unlinks_nor_unlocks(peer: Process) -> None:
    before = names()
    peer.ask("globals().update(s=_core.Segment.create(4096, '/dev/shm', True))")
    peer.ask("s.lock(3)")
    mine = _core.Segment.attach(peer.ask("s.path"), 4096)
    child = "(s.alive(3), s.unlink(), s.close(), 'closed')"
    assert peer.ask(in_child(child)) == (True, None, None, "closed")
    assert peer.ask("s.alive(3)")
    assert mine.alive(3)
    assert Path(mine.path).exists()
    peer.ask("s.unlink()")
    assert names() == before


@pytest.mark.slow
def test_a_child_does_not_keep_its_parent_alive(segment: _core.Segment) -> None:
    with ExitStack() as stack:
        peer = stack.enter_context(Process())
        attach(peer, segment)
        peer.ask("s.lock(1)")
        child = peer.ask("[(time.sleep(60), os._exit(0)) if p == 0 else p for p in [os.fork()]][0]")
        stack.callback(os.kill, child, 9)
        assert segment.alive(1)
        peer.kill()
        assert not segment.alive(1)


def test_the_sweep_takes_what_nobody_holds(peer: Process) -> None:
    before = names()
    strangers = [SHM / "hierring-notes", SHM / "hierring-0123456789abcdeX"]
    held = _core.Segment.create(4096, "/dev/shm", True)
    peer.ask("globals().update(s=_core.Segment.create(4096, '/dev/shm', True))")
    path = Path(peer.ask("s.path"))
    try:
        for stranger in strangers:
            stranger.write_bytes(b"not ours")
        _core.sweep()
        assert path.exists()
        peer.kill()
        assert path.exists()
        assert _core.sweep() >= 1
        assert not path.exists()
        assert Path(held.path).exists()
        assert all(stranger.exists() for stranger in strangers)
    finally:
        for stranger in strangers:
            stranger.unlink()
    held.unlink()
    assert names() <= before


def test_the_sweep_spares_what_a_rank_still_holds(segment: _core.Segment) -> None:
    """The maker is gone, a rank is not: it may still be about to show the file to others."""
    with Process() as maker, Process() as rank:
        maker.ask("globals().update(s=_core.Segment.create(4096, '/dev/shm', True))")
        path = Path(maker.ask("s.path"))
        rank.ask(f"globals().update(s=_core.Segment.attach({str(path)!r}, 4096))")
        rank.ask("s.lock(1)")
        maker.kill()
        _core.sweep()
        assert path.exists()
        rank.kill()
        _core.sweep()
        assert not path.exists()


def test_an_absent_directory_cannot_be_swept() -> None:
    with pytest.raises(FileNotFoundError):
        _core.sweep("/nowhere")
