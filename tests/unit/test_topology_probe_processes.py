"""The probe between processes and between namespaces, where the signs of sharing lie."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, final

import pytest

from hierring._testing.processes import namespaces, own_shm
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

CHILD_TIMEOUT_S = 60

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


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["unnamed", "named"])
def test_two_shm_on_one_machine_are_two_nodes(kind):
    """Boot id, hostname, user and pid namespace agree, /proc/PID/fd opens: only devices differ."""
    with Peer(own_shm("1m"), kind) as peer, Probe(named=kind == "named") as probe:
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
    with Peer([*own_shm("1m"), "sh", "-c", fill, "sh"]) as peer, Probe() as probe:
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
