"""Segments: their names, files and memory."""

from __future__ import annotations

import errno
import gc
import os
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hierring import _core
from hierring._testing.processes import Process, own_shm

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


def test_a_segment_is_zero_and_writable(segment: _core.Segment) -> None:
    array = np.asarray(segment.buffer())
    assert array.nbytes == segment.nbytes == NBYTES
    assert array.ctypes.data == segment.address
    assert not array.any()
    array[-1] = 7
    assert segment.buffer()[-1] == 7


def test_a_peer_sees_what_is_written(segment: _core.Segment, peer: Process) -> None:
    attach(peer, segment)
    segment.buffer()[5] = 42
    assert peer.ask("s.buffer()[5]") == 42
    assert peer.ask("s.buffer().__setitem__(6, 43)") is None
    assert segment.buffer()[6] == 43


def test_an_unnamed_segment_has_no_name(segment: _core.Segment) -> None:
    before = names()
    other = _core.Segment.create(NBYTES)
    assert names() == before
    assert other.path != segment.path
    assert os.stat(other.path).st_mode & 0o777 == 0o600
    assert os.stat(other.path).st_nlink == 0
    other.unlink()


def test_a_named_segment_is_private_until_unlinked() -> None:
    before = names()
    umask = os.umask(0o777)
    try:
        segment = _core.Segment.create(NBYTES, "/dev/shm", True)
    finally:
        os.umask(umask)
    path = Path(segment.path)
    assert names() - before == {path.name}
    assert re.fullmatch(r"hierring-[0-9a-f]{16}", path.name)
    assert path.stat().st_mode & 0o777 == 0o600
    segment.unlink()
    segment.unlink()
    assert names() == before
    segment.buffer()[0] = 1


def test_a_forgotten_name_goes_with_its_owner() -> None:
    before = names()
    segment = _core.Segment.create(NBYTES, "/dev/shm", True)
    assert names() != before
    del segment
    gc.collect()
    assert names() == before


def test_names_differ() -> None:
    segments = [_core.Segment.create(64, "/dev/shm", True) for _ in range(50)]
    assert len({segment.path for segment in segments}) == 50


@pytest.mark.parametrize(
    ("directory", "number"), [("/nowhere", errno.ENOENT), ("/proc/self", None)]
)
def test_a_bad_directory_is_an_os_error(directory: str, number: int | None) -> None:
    for named in (False, True):
        with pytest.raises(OSError, match=re.escape(directory)) as caught:
            _core.Segment.create(NBYTES, directory, named)
        assert number is None or caught.value.errno == number


def test_what_cannot_be_attached(segment: _core.Segment, tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(b"x")
    cases = {
        (segment.path, NBYTES * 2): errno.EINVAL,
        (str(tmp_path / "short"), NBYTES): errno.EINVAL,
        (str(tmp_path), NBYTES): errno.EISDIR,
        (str(tmp_path / "absent"), NBYTES): errno.ENOENT,
    }
    for arguments, number in cases.items():
        with pytest.raises(OSError, match=r".") as caught:
            _core.Segment.attach(*arguments)
        assert caught.value.errno == number


def test_a_view_keeps_the_memory(segment: _core.Segment) -> None:
    view = segment.buffer()
    view[0] = 9
    segment.close()
    segment.close()
    assert view[0] == 9
    for use in (segment.buffer, segment.unlink, lambda: segment.nbytes):
        with pytest.raises(ValueError, match="closed"):
            use()
    files = open_files()
    view.release()
    assert open_files() == files - 1


def test_a_channel_keeps_the_memory() -> None:
    segment = _core.Segment.private(_core.Channel.layout_nbytes(1, 64, 2, 64))
    channel = _core.Channel(segment, 0, 1, 64, 2, 64)
    channel.reserve()
    segment.close()
    channel.arrive(1, 5, b"still here")
    assert channel.descriptor(0) == b"still here"


def test_reserving_takes_the_blocks_and_keeps_the_content(segment: _core.Segment) -> None:
    assert os.stat(segment.path).st_blocks == 0
    segment.reserve(4096, 8192)
    assert os.stat(segment.path).st_blocks * 512 == 8192
    segment.buffer()[5000] = 3
    segment.reserve(0, NBYTES)
    segment.reserve(NBYTES, 0)
    assert os.stat(segment.path).st_blocks * 512 == NBYTES
    assert segment.buffer()[5000] == 3
    for range_ in ((0, NBYTES + 1), (NBYTES + 1, 0), (1, 2**64 - 1)):
        with pytest.raises(OSError, match="Invalid"):
            segment.reserve(*range_)


@pytest.mark.slow
def test_a_full_file_system_is_an_error_not_a_signal() -> None:
    with Process(own_shm("64k")) as process:
        process.ask("globals().update(s=_core.Segment.create(1 << 20))")
        assert process.ask("s.reserve(0, 1 << 20)") == {"error": "OSError", "errno": errno.ENOSPC}
        assert process.ask("s.reserve(0, 1 << 15)") is None
        sizes = "1, 65536, 2, 64"
        process.ask(f"globals().update(c=_core.Channel(s, 0, {sizes}))")
        assert process.ask("c.reserve()") == {"error": "OSError", "errno": errno.ENOSPC}


def test_a_private_segment() -> None:
    segment = _core.Segment.private(NBYTES)
    assert segment.path == ""
    segment.lock(4)
    assert segment.alive(9)
    segment.reserve(0, NBYTES)
    segment.unlink()
    assert not any(segment.buffer())
    with pytest.raises(OSError, match="Invalid"):
        _core.Segment.private(0)


def test_segments_are_given_back() -> None:
    files = open_files()
    for _ in range(100):
        segment = _core.Segment.create(NBYTES)
        segment.buffer()
        del segment
    gc.collect()
    assert open_files() == files
