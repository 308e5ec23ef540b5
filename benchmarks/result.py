"""What one run of `hierring bench` found out: the dataclasses behind its JSON.

Units are those of `figures`: seconds, bytes, and GB/s = 1e9 bytes/s.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hierring.benchmarks import strict
from hierring.benchmarks.figures import Case
from hierring.topology import Link, NodeMemory, RingLink

__all__ = [
    "SCHEMA",
    "Environment",
    "Faster",
    "Method",
    "Result",
    "Settings",
    "Skipped",
    "Straggler",
    "load",
    "loads",
    "save",
]

SCHEMA = "hierring.bench/1"


@dataclass(frozen=True)
class Environment:
    """Where and when a run took place, and with which software.

    Attributes:
        date: UTC, ISO 8601, when it began; seconds: how long it took.
        commit: of the checkout that hierring was imported from, "+" appended if it had changes;
            None for an installed wheel.
        launcher: who started the ranks, as far as its variables tell.
        simd_level: of rank 0. load: of rank 0's machine in the minute before the run.
    """

    hostname: str
    date: str
    seconds: float
    hierring: str
    commit: str | None
    python: str
    numpy: str
    torch: str | None
    mpi: str
    launcher: str
    kernel: str
    simd_level: str
    load: float


@dataclass(frozen=True)
class Method:
    """How the figures came about, in words, so that a file explains itself.

    Attributes:
        definitions: of each figure, with its formula.
    """

    timed_region: str
    time: str
    buffers: str
    in_place: str
    check: str
    order: str
    definitions: dict[str, str]


@dataclass(frozen=True)
class Settings:
    """What was asked for.

    Attributes:
        command: the arguments of `hierring bench`.
        iterations, warmup: calls of each case; timed ones (unless time ran out) and before them.
        check: whether results were compared.
        config: the measured communicator's `hierring.Config`, by name; variants may differ in
            leaders and cell_bytes.
    """

    command: tuple[str, ...]
    iterations: int
    warmup: int
    check: bool
    config: dict[str, Any]


@dataclass(frozen=True)
class Skipped:
    """A combination that was asked for and can't be measured, and why."""

    what: str
    why: str


@dataclass(frozen=True)
class Straggler:
    """A rank, node or link that is slower than its kind, and how one can tell.

    Attributes:
        kind: "rank", "node" or "link". members: the rank; the node; of a link its
            (sender, receiver).
        evidence: "lateness" or "awaited" (see `RankFigures`), "bandwidth" (of a link, or of the
            best link of a node) or "memcpy" (of a node).
        value, median: its own and the usual one of its kind, in seconds per call or GB/s.
        stands_out: whether it is far enough from the others to be named as slow; the slowest rank
            and node are listed in any case.
        text: the same in a sentence.
    """

    kind: str
    members: tuple[int, ...]
    evidence: str
    value: float
    median: float
    stands_out: bool
    text: str


@dataclass(frozen=True)
class Faster:
    """A size at which another algorithm beat the one that `auto` chose.

    Attributes:
        better: that one's name. ratio: its time over auto's, the median.
    """

    collective: str
    dtype: str
    op: str
    nbytes: int
    in_place: bool
    chosen: str
    better: str
    ratio: float


@dataclass(frozen=True)
class Result:
    """A whole run.

    Attributes:
        topology: `Topology.to_dict()` of rank 0.
        tuning: digest of the tuning table in use, if any.
        links: between nodes, every pair that was probed; ring: of the leader ring, all at once;
            memory: of every node; see `hierring.topology`. All empty without a probe.
        complete: False if --max-seconds cut it short.
        wrong: elements that were wrong in all cases together; None if not checked.
    """

    schema: str
    environment: Environment
    topology: dict[str, Any]
    settings: Settings
    method: Method
    tuning: str | None
    cases: tuple[Case, ...]
    skipped: tuple[Skipped, ...]
    links: tuple[Link, ...]
    ring: tuple[RingLink, ...]
    memory: tuple[NodeMemory, ...]
    stragglers: tuple[Straggler, ...]
    faster: tuple[Faster, ...]
    complete: bool
    wrong: int | None


def save(result: Result, path: Path | str) -> None:
    """Write strict JSON."""
    Path(path).write_text(strict.to_json(result), encoding="utf-8")


def load(path: Path | str) -> Result:
    """Read what `save` wrote.

    Raises:
        BadFileError: it can't be read, is of another schema, or holds what the schema does not.
    """
    return loads(strict.read_text(path), str(path))


def loads(text: str, name: str) -> Result:
    """Read the text of a file; the name is for messages."""
    found = strict.schema_of(text, name)
    if found != SCHEMA:
        raise strict.BadFileError(
            f"{name}: schema {found!r}, but this hierring reads {SCHEMA!r}: measure again, or use "
            "the hierring that wrote it"
        )
    return strict.from_json(Result, text, name)
