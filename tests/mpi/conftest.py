"""The harness of tests that run on every rank: ``mpiexec -n N python -P -m pytest tests/mpi``.

Each rank runs pytest over the same tests. After every phase of a test (setup, call, teardown) the
ranks exchange their outcomes over a duplicate of COMM_WORLD that no test sees, with non-blocking
messages only:

1. every rank sends (phase, test, outcome, text) to every other and polls for theirs;
2. all come to the same verdict from the same table: passed if all passed, failed if any failed;
3. each rank's report takes the verdict. So no rank starts the next test before all have left this
   one, and rank 0's terminal shows what went wrong anywhere. Other ranks print nothing.

A rank that does not answer hangs in its test. pytest's faulthandler dumps its stacks after
``faulthandler_timeout``; GRACE_S later the waiting ranks abort the job, naming it. If all hang,
nobody waits; then each one's alarm, another GRACE_S later, ends it even where the GIL is never
released.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    from mpi4py import MPI

GRACE_S = 5.0
TEXT_BYTES = 4000  # of a traceback, the end
MESSAGE_BYTES = 32768  # JSON writes at most 6 bytes for one
TAG = 7


class Ranks:
    """The exchange between the harness's ranks, and what each of them is doing now.

    All ranks must call `exchange` in the same order; each call carries a topic, so that a
    difference is reported and not taken for an answer.
    """

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        with self.limit():
            from mpi4py import MPI

            self.mpi = MPI
            self.comm = MPI.COMM_WORLD.Dup()
        self.rank, self.size = self.comm.rank, self.comm.size
        self.boxes = [bytearray(MESSAGE_BYTES) for _ in range(self.size - 1)]
        self.stderr_fd = os.dup(2)  # pytest's capture moves 2 elsewhere

    @contextlib.contextmanager
    def limit(self) -> Iterator[None]:
        """Give what is done inside its time; the alarm's default action ends the process."""
        self.started = time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, self.timeout_s + 2 * GRACE_S)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def abort(self, why: str) -> NoReturn:
        """End the job on all ranks."""
        os.write(self.stderr_fd, f"\nrank {self.rank} of {self.size} aborts: {why}\n".encode())
        self.comm.Abort(1)
        sys.exit(1)  # MPI_Abort may return while the launcher is at work

    def exchange(self, topic: str, value: Any) -> list[Any]:
        """Return every rank's value, by rank; aborts at the deadline, or if the topics differ."""
        message = json.dumps([topic, value]).encode()
        assert len(message) <= MESSAGE_BYTES
        peers = [peer for peer in range(self.size) if peer != self.rank]
        boxes = self.boxes[: len(peers)]
        receives = [
            self.comm.Irecv([box, self.mpi.BYTE], source=peer, tag=TAG)
            for peer, box in zip(peers, boxes, strict=True)
        ]
        sends = [self.comm.Isend([message, self.mpi.BYTE], dest=peer, tag=TAG) for peer in peers]
        lengths = self._wait(receives, peers, topic)
        self._wait(sends, peers, topic)
        table = {
            peer: json.loads(box[:nbytes])
            for peer, box, nbytes in zip(peers, boxes, lengths, strict=True)
        }
        table[self.rank] = [topic, value]
        for peer in peers:
            if table[peer][0] != topic:
                self.abort(f"it is at {topic}, but rank {peer} is at {table[peer][0]}")
        return [table[peer][1] for peer in range(self.size)]

    def _wait(self, requests: list[MPI.Request], peers: list[int], topic: str) -> list[int]:
        """Poll until all requests are done; asleep most of the time, since cores are few.

        Returns:
            How many bytes each has received.
        """
        pause_s = 0.0
        lengths = [-1] * len(requests)
        status = self.mpi.Status()
        while True:
            for i, request in enumerate(requests):
                if lengths[i] < 0 and request.Test(status):
                    lengths[i] = status.Get_count(self.mpi.BYTE)
            if -1 not in lengths:
                return lengths
            if time.monotonic() > self.started + self.timeout_s + GRACE_S:
                late = [peer for peer, n in zip(peers, lengths, strict=True) if n < 0]
                self.abort(
                    f"{topic}: no word from ranks {late} for {self.timeout_s + GRACE_S:.0f} s"
                )
            time.sleep(pause_s)
            pause_s = min(0.002, pause_s + 0.0001)


RANKS = pytest.StashKey[Ranks]()
RESULTS = pytest.StashKey[dict[str, list[str]]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add where rank 0 leaves the results for the program that started the job."""
    parser.addoption("--spmd-results", default=None, help="write outcomes as JSON to this file")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Start MPI, and silence every rank but the first."""
    ranks = Ranks(timeout_s=float(config.getini("faulthandler_timeout") or 60.0))
    config.pluginmanager.register(Leaving(ranks))
    config.stash[RANKS] = ranks
    config.stash[RESULTS] = {}
    if ranks.rank != 0:
        reporter = config.pluginmanager.getplugin("terminalreporter")
        config.pluginmanager.unregister(reporter)
        quiet = type(reporter)(config, io.StringIO())
        config.pluginmanager.register(quiet, "terminalreporter")


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say which MPI runs how many ranks on which layout."""
    ranks = config.stash[RANKS]
    library = ranks.mpi.Get_library_version().splitlines()[0].split("\0")[0]
    pretended = os.environ.get("HIERRING_SIMULATE_NODES", "one node")
    layout = os.environ.get("HIERRING_TEST_NODES", pretended)
    return [f"{library.strip()}, {ranks.size} ranks, layout {layout}"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that ask for another number of ranks."""
    size = config.stash[RANKS].size
    fits = {
        item: (mark := item.get_closest_marker("world")) is None or size in mark.args
        for item in items
    }
    items[:] = [item for item in items if fits[item]]
    left_out = [item for item in fits if not fits[item]]
    for item in left_out:
        config.stash[RESULTS].setdefault("deselected", []).append(item.nodeid)
    if left_out:
        config.hook.pytest_deselected(items=left_out)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Compare the lists of tests, lest ranks meet in different ones."""
    names = "\n".join(item.nodeid for item in session.items)
    digest = hashlib.sha256(names.encode()).hexdigest()
    ranks = session.config.stash[RANKS]
    with ranks.limit():
        table = ranks.exchange("collection", [digest, len(session.items), session.testsfailed])
    if any(row != table[0] for row in table):
        pytest.exit(f"ranks collected different tests (digest, count, errors): {table}", 3)


def _verdict(report: pytest.TestReport, table: list[list[str]]) -> None:
    """Give this rank's report the outcome that all ranks agree on."""
    outcomes = [row[0] for row in table]
    failures = [
        f"---- rank {rank} of {len(table)}: {phase} failed\n{text}"
        for rank, (outcome, phase, text) in enumerate(table)
        if outcome == "failed"
    ]
    if not failures and len(set(outcomes)) > 1:
        failures = [f"the ranks disagree: {outcomes}"]
    if failures:
        report.outcome = "failed"
        report.longrepr = "\n".join(failures)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Make all ranks agree on this phase of this test before any of them goes on."""
    report = yield
    ranks = item.config.stash[RANKS]
    output = "".join(f"\n[{name}]\n{text[-1000:]}" for name, text in report.sections if text)
    text = (report.longreprtext + output)[-TEXT_BYTES:] if report.failed else ""
    text = text.encode(errors="replace")[-TEXT_BYTES:].decode(errors="replace")
    table = ranks.exchange(f"{item.nodeid} ({call.when})", [report.outcome, call.when, text])
    _verdict(report, table)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Time each test from its beginning."""
    with item.config.stash[RANKS].limit():
        return (yield)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Leave the results for the program that started the job."""
    path = session.config.getoption("--spmd-results")
    if path and session.config.stash[RANKS].rank == 0:
        reporter = session.config.pluginmanager.getplugin("terminalreporter")
        results = session.config.stash[RESULTS]
        for outcome in ("passed", "failed", "error", "skipped", "xfailed"):
            results[outcome] = [report.nodeid for report in reporter.stats.get(outcome, [])]
        Path(path).write_text(json.dumps(results), encoding="utf-8")


class Leaving:
    """Ends the job when a rank leaves pytest half-way, so that nobody waits for it."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks

    def pytest_internalerror(self, excrepr: object) -> None:
        """Report an error inside pytest or this harness."""
        self.ranks.abort(f"internal error\n{excrepr}")

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Report Ctrl-C; `pytest.exit` is an orderly end, which all ranks reach together."""
        if isinstance(excinfo.value, KeyboardInterrupt):
            self.ranks.abort("interrupted")


@pytest.fixture
def together(request: pytest.FixtureRequest) -> Callable[[], AbstractContextManager[None]]:
    """A check that fails on all ranks if it fails on one: ``with together(): assert ...``.

    Without it the ranks that passed would enter the test's next collective alone. Needed around
    the checks of a hypothesis test, whose failing example is run again. All ranks must use it the
    same number of times.
    """
    ranks = request.config.stash[RANKS]

    @contextlib.contextmanager
    def check() -> Iterator[None]:
        error: Exception | None = None
        try:
            yield
        except Exception as caught:
            error = caught
        table = ranks.exchange(f"{request.node.nodeid} (together)", error is not None)
        if error is not None:
            raise error
        if any(table):
            failed = [rank for rank, bad in enumerate(table) if bad]
            pytest.fail(f"passed here, failed on ranks {failed}", pytrace=False)

    return check
