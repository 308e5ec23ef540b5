"""The probe: real files, real processes, and the cases where signs of sharing lie."""

from __future__ import annotations

import dataclasses
import os
import pickle
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, final

import pytest

from hierring._testing.machines import fake_facts
from hierring.topology import (
    Facts,
    Probe,
    ProbeToken,
    candidates,
    join_tables,
    local_facts,
    needs_name,
    needs_named_round,
    partition,
    readable,
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


# --- several processes ---------------------------------------------------------------------------


PEER = """
import pickle, sys
from hierring.topology import Probe, local_facts, readable

def answer(value):
    print(pickle.dumps(value).hex(), flush=True)

with Probe(named=sys.argv[1] == "named") as probe:
    calls = {
        "can_read": probe.can_read,
        "name_file": probe.name_file,
        "readable": lambda *table: readable(probe, *table),
    }
    answer((local_facts(0), probe.token))
    for line in sys.stdin:
        name, arguments = pickle.loads(bytes.fromhex(line))
        answer(calls[name](*arguments))
"""


@final
class Peer:
    """Another process with a probe, started through any command that starts programs."""

    def __init__(self, prefix: Sequence[str] = (), kind: str = "unnamed") -> None:
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-P", "-c", PEER, kind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.facts: Facts
        self.token: ProbeToken
        self.facts, self.token = self._answer()

    def call(self, name: str, *arguments: object) -> Any:
        print(pickle.dumps((name, arguments)).hex(), file=self.process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> Any:
        return pickle.loads(bytes.fromhex(self.process.stdout.readline()))

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stdin.close()
        try:
            assert self.process.wait(CHILD_TIMEOUT_S) == 0
        finally:
            self.process.kill()
            self.process.stdout.close()


@pytest.mark.slow
def test_processes_find_that_they_share_memory():
    """All the rounds, with the test as the all-gather."""
    everyone = frozenset(range(3))
    with ExitStack() as stack:
        peers = [stack.enter_context(Peer()) for _ in everyone]
        facts = [peer.facts for peer in peers]
        tokens = [peer.token for peer in peers]
        table = [peer.call("readable", facts, tokens, r) for r, peer in enumerate(peers)]
        assert table == [everyone] * 3
        assert not needs_named_round(facts, table)
        assert not needs_name(everyone, tokens, table)
        named = [peer.call("name_file") for peer in peers]
        assert all(Path(token.path).exists() for token in named)
        assert [peer.call("readable", facts, named, r) for r, peer in enumerate(peers)] == table
    assert partition(table) == [[0, 1, 2]]
    assert not any(Path(token.path).exists() for token in named)


def namespaces(*options: str) -> list[str]:
    """The command that starts a program in new namespaces; skips where that is refused."""
    command = ["unshare", *options]
    if shutil.which("unshare") is None:
        pytest.skip("unshare is not installed")
    tried = subprocess.run([*command, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"new namespaces are refused: {tried.stderr.strip()}")
    return command


def own_shm() -> list[str]:
    """A mount namespace of its own with its own /dev/shm; mounts made in it stay in it."""
    options = ("--mount",) if os.geteuid() == 0 else ("--map-root-user", "--mount")
    mount = 'mount -t tmpfs -o size=1m tmpfs /dev/shm && exec "$@"'
    return [*namespaces(*options, "--propagation", "private"), "sh", "-c", mount, "sh"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["unnamed", "named"])
def test_two_shm_on_one_machine_are_two_nodes(kind):
    """Boot id, hostname, user and pid namespace agree, /proc/PID/fd opens: only devices differ."""
    with Peer(own_shm(), kind) as peer, Probe(named=kind == "named") as probe:
        mine = local_facts(0)
        assert peer.facts.boot_id == mine.boot_id
        assert peer.facts.hostname == mine.hostname
        assert peer.facts.shm_device != mine.shm_device
        assert candidates([mine, peer.facts], 0) == (1,)
        assert not peer.call("can_read", probe.token)
        row = readable(probe, [mine, peer.facts], [probe.token, peer.token], 0)
        assert row == {0}
        assert not needs_named_round([mine, peer.facts], [row, frozenset({1})])
        assert partition([row, {1}]) == [[0], [1]]


@pytest.mark.slow
@pytest.mark.parametrize("options", [("--pid", "--fork", "--mount-proc"), ("--map-root-user",)])
def test_containers_over_one_shm_share_memory_by_name(options):
    """In another pid namespace /proc/PID/fd names strangers, in a user namespace it refuses."""
    if os.geteuid() != 0 and "--map-root-user" not in options:
        options = ("--map-root-user", *options)
    with Peer(namespaces(*options)) as peer, Probe() as probe:
        facts = [local_facts(0), peer.facts]
        tokens = [probe.token, peer.token]
        first = [readable(probe, facts, tokens, 0), peer.call("readable", facts, tokens, 1)]
        assert partition(first) == [[0], [1]]
        assert needs_named_round(facts, first)
        tokens = [probe.name_file(), peer.call("name_file")]
        second = [readable(probe, facts, tokens, 0), peer.call("readable", facts, tokens, 1)]
        assert partition(join_tables(first, second)) == [[0, 1]]
        assert needs_name([0, 1], tokens, first)


@pytest.mark.slow
def test_full_shm_is_a_reason_not_a_crash():
    fill = 'head -c 2000000 /dev/zero > /dev/shm/full 2>/dev/null; exec "$@"'
    with Peer([*own_shm(), "sh", "-c", fill, "sh"]) as peer, Probe() as probe:
        assert peer.token.path == ""
        assert "No space left" in peer.token.error
        assert not probe.can_read(peer.token)


@pytest.mark.slow
def test_killed_rank_leaves_nothing_unnamed():
    peer = Peer()
    peer.process.send_signal(signal.SIGKILL)
    peer.process.wait(CHILD_TIMEOUT_S)
    peer.process.stdin.close()
    peer.process.stdout.close()
    assert not peer.token.named
    assert not Path(peer.token.path).exists()
    with Probe() as probe:
        assert not probe.can_read(peer.token)
