"""The probe: real files, real processes, and the cases where signs of sharing lie."""

from __future__ import annotations

import dataclasses
import os
import stat
from pathlib import Path

import pytest

from hierring._testing.machines import fake_facts
from hierring.topology import (
    Probe,
    ProbeToken,
    candidates,
    join_tables,
    needs_name,
    needs_named_round,
)

SHM = Path("/dev/shm")
CHILD_TIMEOUT_S = 60


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.mark.parametrize("named", [False, True])
def test_two_probes_read_each_other(named):
    with Probe(named=named) as one, Probe(named=named) as other:
        assert one.token.named == other.token.named == named
        assert one.token.error == ""
        assert one.can_read(other.token)
        assert other.can_read(one.token)
        assert one.can_read(one.token)


def test_unnamed_probe_leaves_no_name(tmp_path):
    with Probe(str(tmp_path)) as probe:
        assert not probe.token.named
        assert names_in(tmp_path) == []


def test_named_probe_has_a_private_file_while_it_lives(tmp_path):
    with Probe(str(tmp_path), named=True) as probe:
        (name,) = names_in(tmp_path)
        found = (tmp_path / name).stat()
        assert name.startswith("hierring-")
        assert probe.token.path == str(tmp_path / name)
        assert stat.S_IMODE(found.st_mode) == 0o600
    assert names_in(tmp_path) == []


def test_close_twice_and_after_a_sweep(tmp_path):
    probe = Probe(str(tmp_path), named=True)
    (tmp_path / names_in(tmp_path)[0]).unlink()
    probe.close()
    probe.close()


def test_closed_probe_is_unreadable():
    with Probe() as reader:
        for named in (False, True):
            probe = Probe(named=named)
            probe.close()
            assert not reader.can_read(probe.token)


def test_another_nonce_is_not_read():
    with Probe(named=True) as reader, Probe(named=True) as writer:
        assert not reader.can_read(dataclasses.replace(writer.token, nonce=bytes(32)))


def test_other_device_is_not_shared_though_proc_opens_it(tmp_path):
    """The kernel opens /proc/PID/fd across mounts, but a node is one /dev/shm."""
    if tmp_path.stat().st_dev == SHM.stat().st_dev:
        pytest.skip("the temporary directory lies in /dev/shm itself")
    with Probe() as here, Probe(str(tmp_path)) as elsewhere:
        assert elsewhere.token.error == ""
        assert not here.can_read(elsewhere.token)
        assert not elsewhere.can_read(here.token)


def test_missing_directory_gives_a_token_with_the_reason(tmp_path):
    with Probe(str(tmp_path / "none")) as lost, Probe() as other:
        assert lost.token.path == ""
        assert "No such file" in lost.token.error
        assert not other.can_read(lost.token)
        assert not lost.can_read(other.token)
        assert lost.name_file() == lost.token


def test_unnamed_files_refused_fall_back_to_named_ones(tmp_path, monkeypatch):
    real = os.open

    def refuse(path, flags, *rest, **named):
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(95, "Operation not supported")
        return real(path, flags, *rest, **named)

    monkeypatch.setattr(os, "open", refuse)
    with Probe(str(tmp_path)) as probe, Probe(str(tmp_path)) as reader:
        assert probe.token.named
        assert reader.can_read(probe.token)
    assert names_in(tmp_path) == []


def test_clashing_name_is_not_opened_but_avoided(tmp_path, monkeypatch):
    taken = "hierring-" + "00" * 8
    (tmp_path / taken).write_text("someone else's")
    tokens = iter(["00" * 8, "00" * 8, "11" * 8])
    monkeypatch.setattr("hierring.topology.probe.secrets.token_hex", lambda n: next(tokens))
    with Probe(str(tmp_path), named=True) as probe:
        assert probe.token.path == str(tmp_path / ("hierring-" + "11" * 8))
    assert (tmp_path / taken).read_text() == "someone else's"


def test_name_file_replaces_the_unnamed_one(tmp_path):
    with Probe(str(tmp_path)) as probe, Probe(str(tmp_path)) as reader:
        old = probe.token
        new = probe.name_file()
        assert new.named
        assert new == probe.token == probe.name_file()
        assert reader.can_read(new)
        assert new.nonce == old.nonce
    assert names_in(tmp_path) == []


def test_paths_that_are_no_regular_files_are_not_opened(tmp_path):
    """Opening a FIFO for reading and writing would not even block; it must not be opened at all."""
    os.mkfifo(tmp_path / "fifo")
    with Probe() as probe:
        for path in (str(tmp_path / "fifo"), "/dev/null", str(tmp_path), ""):
            assert not probe.can_read(ProbeToken(path, bytes(32), True))


@pytest.mark.parametrize("content", [b"", b"short", bytes(33)])
def test_file_of_another_length_is_not_read(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    with Probe(str(tmp_path)) as probe:
        assert not probe.can_read(ProbeToken(str(tmp_path / "file"), content, True))


def test_candidates_are_the_ranks_under_one_kernel():
    facts = [fake_facts(r, host) for r, host in enumerate("abab")]
    assert candidates(facts, 0) == (2,)
    assert candidates(facts, 3) == (1,)


def test_candidates_where_a_kernel_hides_its_id():
    facts = [fake_facts(0), fake_facts(1, boot_id=""), fake_facts(2, "b")]
    assert candidates(facts, 0) == (1,)
    assert candidates(facts, 1) == (0, 2)


def test_named_round_is_for_ranks_of_one_device_that_cannot_read():
    facts = [fake_facts(r) for r in range(3)]
    assert not needs_named_round(facts, [{0, 1, 2}] * 3)
    assert needs_named_round(facts, [{0, 1}, {0, 1, 2}, {0, 1, 2}])


def test_named_round_is_not_for_separate_devices_or_kernels():
    facts = [fake_facts(0), fake_facts(1, shm_device=5), fake_facts(2, "b")]
    assert not needs_named_round(facts, [{0}, {1}, {2}])
    nothing = [fake_facts(r, shm_device=-1) for r in range(2)]
    assert not needs_named_round(nothing, [{0}, {1}])


def test_join_tables():
    assert join_tables([{0}, {1, 0}], [{0, 1}, {1}]) == [frozenset({0, 1}), frozenset({0, 1})]


def test_segment_needs_a_name_where_the_probe_did():
    unnamed = ProbeToken("/proc/1/fd/3", b"", named=False)
    named = ProbeToken("/dev/shm/x", b"", named=True)
    everyone = [frozenset({0, 1})] * 2
    assert not needs_name([0, 1], [unnamed, unnamed], everyone)
    assert needs_name([0, 1], [unnamed, named], everyone)
    assert needs_name([0, 1], [unnamed, unnamed], [{0}, {0, 1}])
