"""A job for test_link_probe: waits for a file before its probe, or in the first pair of it."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import hierring
from hierring.communicator import probe_links
from hierring.communicator.link_prober import Prober
from hierring.topology import Link

when, go = sys.argv[1], Path(sys.argv[2])
measure = Prober.pair


def wait_for_file() -> None:
    print("READY", flush=True)
    until = time.monotonic() + 60
    while not go.exists() and time.monotonic() < until:
        time.sleep(0.02)


def pair(prober: Prober, peer: int) -> Link:
    """Both sides of the first pair wait; all ranks have agreed on the round by then."""
    Prober.pair = measure  # type: ignore[method-assign]
    wait_for_file()
    prober._watch.moved()
    return measure(prober, peer)


comm = hierring.init()
comm.barrier()
if when == "before":
    wait_for_file()
elif comm.rank() < 2:
    Prober.pair = pair  # type: ignore[method-assign]
try:
    probe_links(comm, stall_s=1.0)
except hierring.HierringError as error:
    print(f"{type(error).__name__} on rank {comm.rank()}: {error}", flush=True)
    sys.exit(3)
