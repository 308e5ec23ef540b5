"""What the doctor has to say: findings, how equal ones of many ranks become one, how they print."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from hierring.topology.sysfs import format_ranges

__all__ = ["Finding", "Level", "Report", "gather"]

Level: TypeAlias = Literal["ok", "note", "warning", "error"]
LEVELS: tuple[Level, ...] = ("error", "warning", "note", "ok")

WIDTH = 100
INDENT = " " * 8


@dataclass(frozen=True)
class Finding:
    """One judgement.

    Attributes:
        level: "error" if a job will break or do the wrong thing, "warning" if it will be slow or
            may break, "note" for what is worth knowing, "ok" for what was looked at and is good.
        topic: what it is about, in a word or two; for programs that read the JSON.
        what: the fact, one sentence without a full stop.
        why: why it matters, "" where the fact says it.
        remedy: what to do, "" where there is nothing to do.
        ranks: whom it holds for; empty for the job as a whole.
    """

    level: Level
    topic: str
    what: str
    why: str = ""
    remedy: str = ""
    ranks: tuple[int, ...] = ()


def gather(findings: Iterable[Finding]) -> list[Finding]:
    """Make one of those that differ only in their ranks; the worst come first, else in order."""
    ranks: dict[Finding, set[int]] = {}
    for finding in findings:
        ranks.setdefault(dataclasses.replace(finding, ranks=()), set()).update(finding.ranks)
    joined = [
        dataclasses.replace(finding, ranks=tuple(sorted(whom))) for finding, whom in ranks.items()
    ]
    return sorted(joined, key=lambda finding: LEVELS.index(finding.level))


@dataclass(frozen=True)
class Report:
    """All that was found in one job.

    Attributes:
        headline: what was examined.
        hostnames: of each rank.
        findings: from `gather`.
    """

    headline: str
    hostnames: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def exit_code(self) -> int:
        """1 if something will break."""
        return int(bool(self.errors))

    @property
    def errors(self) -> list[str]:
        """What is wrong, without why and what to do."""
        return [finding.what for finding in self.findings if finding.level == "error"]

    def describe(self) -> str:
        """Text for people: what is wrong first, the count of it last."""
        lines = [f"hierring doctor: {self.headline}", ""]
        for finding in self.findings:
            lines += self._entry(finding)
        return "\n".join([*lines, "", self._summary()])

    def to_dict(self) -> dict[str, Any]:
        """The same for programs, as JSON holds it."""
        return {
            "headline": self.headline,
            "size": len(self.hostnames),
            "hostnames": list(self.hostnames),
            "exit_code": self.exit_code,
            "findings": [
                dataclasses.asdict(finding)
                | {"ranks": list(finding.ranks), "where": self._where(finding)}
                for finding in self.findings
            ],
        }

    def _entry(self, finding: Finding) -> Iterator[str]:
        where = self._where(finding)
        head = f"{finding.what} ({where})" if where else finding.what
        yield from _wrapped(head, f"{finding.level:8}", INDENT)
        if finding.why:
            yield from _wrapped(finding.why, INDENT, INDENT)
        if finding.remedy:
            yield from _wrapped(finding.remedy, f"{INDENT}-> ", f"{INDENT}   ")

    def _where(self, finding: Finding) -> str:
        """The ranks by host: "ranks 0-3 on node0, rank 4 on node1"; "" where all is one."""
        if not finding.ranks or len(self.hostnames) == 1:
            return ""
        if len(finding.ranks) == len(self.hostnames):
            return "all ranks"
        by_host: dict[str, list[int]] = {}
        for rank in finding.ranks:
            by_host.setdefault(self.hostnames[rank], []).append(rank)
        return ", ".join(f"{_ranks(ranks)} on {host}" for host, ranks in by_host.items())

    def _summary(self) -> str:
        counts = []
        for level in LEVELS[:3]:
            number = sum(finding.level == level for finding in self.findings)
            if number:
                counts.append(f"{number} {level}{'' if number == 1 else 's'}")
        return ", ".join(counts) if counts else "nothing to complain of"


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {format_ranges(ranks)}"


def _wrapped(text: str, first: str, rest: str) -> list[str]:
    """Broken between words only: paths and commands are there to be copied."""
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
