"""What stands around a table of peers: where it comes from, how to read it, how to distrust it."""

from __future__ import annotations

import argparse
import datetime
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from hierring.benchmarks.contest import Job, Outcome
from hierring.benchmarks.machine import Machine, Watch
from hierring.benchmarks.standing import Place
from hierring.errors import ConfigurationError, HierringError

__all__ = ["Facts", "Stopwatch", "framed", "measure_and_print"]

#: More than this share of the cores at work for others, and times say more about these.
_BUSY = 0.1
_READ = """\
Figures are times of a peer over hierring's, call by call, both taken in turn in one job: above 1
hierring is faster. One size has the median and, in brackets, the quartiles (of several rounds the
median of medians, the lowest and the highest quartile); several sizes have the geometric mean. Each
MPI library has jobs of its own, so peers are compared by these ratios and never by times of
different jobs. "The fastest of all" is chosen anew at each size, after measuring: that favours the
peers, since it chooses their luck as well."""
_DISTRUST = """\
* **All nodes are one machine.** Virtual nodes have a network of their own, whose rate is limited,
  but share cores and memory. With more ranks than cores, times are also the scheduler's, and what a
  library does while it waits (spin, or give way) counts for more than its algorithm.
* **Medians hide the rare.** A median of a few calls says nothing of the longest one. The quartiles
  show what varies inside a run; what varies from day to day or from machine to machine they do not.
* **Warm buffers, nothing else to do.** Every call finds its input just written, and all ranks come
  at once. A program that computes in between has colder caches and ranks that come at different
  times.
* **Settings.** Peers get those listed below, which are the best that we know for this machine. On
  real clusters with fast networks all libraries behave differently: measure there.
* **Who measures.** These are our own figures of our own library. Each result is checked in the same
  run, the commands are below, and all of them take the peers from PyPI, as anybody may."""


@dataclass(frozen=True)
class Facts:
    """What a page says of its own making.

    Attributes:
        others, stolen: cores that other programs kept busy, or a hypervisor took, on average.
        source: what hierring was made from, if anybody said.
        commands: that measure the same again.
    """

    date: str
    seconds: float
    machine: Machine
    others: float
    stolen: float
    source: str
    commands: tuple[str, ...]


class Stopwatch:
    """Begins with a run, and tells the facts at its end."""

    def __init__(self) -> None:
        self._date = datetime.datetime.now(datetime.timezone.utc)
        self._machine, self._watch, self._began = Machine.here(), Watch(), time.monotonic()

    def facts(self, source: str, commands: Sequence[Sequence[str]]) -> Facts:
        """Of the run until now.

        Args:
            commands: that measure the same again.
        """
        others, stolen = self._watch.others()
        return Facts(
            f"{self._date:%Y-%m-%d %H:%M} UTC", time.monotonic() - self._began, self._machine,
            others, stolen, source, tuple(shlex.join(words) for words in commands),
        )  # fmt: skip


def framed(title: str, opening: str, body: Sequence[str], outcome: Outcome, facts: Facts) -> str:
    """A whole document, as Markdown.

    Args:
        opening: what it is about. body: tables of the jobs.
    """
    jobs = outcome.jobs
    lines = [f"# {title}", "", opening, *_circumstances(jobs, facts)]
    lines += ["", "## How to read it", "", _READ]
    lines += ["", "## How to distrust it", "", *_warnings(jobs, facts), _DISTRUST]
    if outcome.failures:
        lines += ["", "## What failed", "", "Jobs that are missing in the tables below.", ""]
        lines += [f"* {failure}" for failure in outcome.failures]
    lines += [*body, "", "## Settings of the peers", "", *_settings(jobs)]
    lines += ["", "## The same again", "", "```sh", *facts.commands, "```"]
    return "\n".join([*lines, ""])


def measure_and_print(
    parser: argparse.ArgumentParser,
    argv: Sequence[str] | None,
    run: Callable[[argparse.Namespace], Outcome],
    sections: Callable[[Sequence[Job]], Iterator[str]],
    opening: str,
) -> int:
    """A whole command; the exit status is 1 if a job failed, 2 for wrong usage."""
    words = list(sys.argv[1:] if argv is None else argv)
    stopwatch = Stopwatch()
    try:
        outcome = run(parser.parse_args(words))
    except HierringError as error:
        print(f"hierring: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigurationError) else 1
    facts = stopwatch.facts("", [[*parser.prog.split(), *words]])
    body = list(sections(outcome.jobs))
    print(framed("hierring beside its peers", opening, body, outcome, facts), end="", flush=True)
    return 1 if outcome.failures else 0


def _circumstances(jobs: Sequence[Job], facts: Facts) -> Iterator[str]:
    machine = facts.machine
    rows = [
        ("when", f"{facts.date}, {facts.seconds / 60:.0f} minutes"),
        ("machine", f"{machine.cpu}, {machine.cores} cores, {machine.memory / 2**30:.0f} GiB"),
        ("kernel", machine.kernel),
        ("load before", f"{machine.load:.2f}"),
        ("busy for others meanwhile", f"{facts.others:.2f} cores, {facts.stolen:.2f} stolen"),
    ]
    if jobs:
        environment = jobs[0].result.environment
        source = facts.source or environment.commit
        rows += [
            ("hierring", environment.hierring + (f" ({source})" if source else "")),
            ("SIMD level", environment.simd_level),
            ("MPI libraries", ", ".join(dict.fromkeys(job.environment.title for job in jobs))),
        ]
        torch = {str(job.result.environment.torch) for job in jobs} - {"None"}
        rows += [("torch (gloo)", ", ".join(sorted(torch)))] if torch else []
        rows += [("Python, NumPy", f"{environment.python}, {environment.numpy}")]
    yield from ["", "| | |", "|---|---|"]
    yield from (f"| {name} | {value} |" for name, value in rows)


def _warnings(jobs: Sequence[Job], facts: Facts) -> Iterator[str]:
    """What is wrong with these figures in particular."""
    cores = facts.machine.cores
    if max(facts.others, facts.stolen) > _BUSY * cores:
        yield (
            f"* **The machine was not quiet.** Others had {facts.others + facts.stolen:.1f} of its "
            f"{cores} cores meanwhile: distrust times, and ratios with wide quartiles."
        )
    crowded = sorted({job.layout.size for job in jobs if job.layout.size > cores})
    if crowded:
        yield (
            f"* **More ranks than cores.** {', '.join(map(str, crowded))} ranks had {cores} cores."
        )
    wrong = sum(job.result.wrong or 0 for job in jobs)
    if wrong:
        yield f"* **{wrong} elements were wrong.** Distrust everything."


def _settings(jobs: Sequence[Job]) -> Iterator[str]:
    """By MPI library: environment variables, and for which jobs."""
    found: dict[tuple[str, str], list[str]] = {}
    for job in jobs:
        text = " ".join(f"`{name}={value}`" for name, value in job.settings.items())
        layout = Place(job.layout, True).names[0]
        layouts = found.setdefault((job.environment.title, text), [])
        layouts += [] if layout in layouts else [layout]
    yield from ["| library | jobs | variables |", "|---|---|---|"]
    for (title, text), layouts in found.items():
        yield f"| {title} | {', '.join(layouts)} | {text} |"
    yield ""
    yield (
        "On virtual nodes Open MPI is also told the network (`btl_tcp_if_include`), and ranks that "
        "outnumber the cores are not bound to them."
    )
