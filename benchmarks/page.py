"""`python -m hierring.benchmarks.page`: measures and writes a page of figures, `make bench`.

It has the tables of `peers` and `wire`, and what a reader needs to judge or repeat them. Nobody
edits it by hand, so no figure outlives its measurement.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from hierring.benchmarks import peers, wire
from hierring.benchmarks.contest import Outcome, say_on_stderr
from hierring.benchmarks.preface import Facts, Stopwatch, framed
from hierring.errors import HierringError

__all__ = ["main", "page"]

_SHORT = {
    "peers": "--ranks 2,4 --sizes 64,64M --factor 32 --calls 7 --rounds 3",
    "wire": "--rate 1gbit --sizes 64K,16M --factor 16 --calls 5",
}
_LONG = {
    "peers": "--ranks 2,4 --sizes 64,64M --factor 4 --calls 20 --warmup 5 --rounds 3",
    "wire": "--rate 1gbit --sizes 64K,16M --factor 4 --calls 11 --algorithms auto,ring --rounds 3",
}
_HEAD = "<!-- Written by `make bench` or `make bench-long`; what is changed by hand is lost. -->"
_OPENING = """\
hierring beside the all-reduce of MPICH, Open MPI and Intel MPI, and beside gloo: on one node, and
on virtual nodes with slow links. [benchmarking.md](benchmarking.md) says how it is measured."""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and write; the exit status is 1 if a job failed, 2 for wrong usage."""
    arguments = _parser().parse_args(argv)
    output = None if arguments.output is None else Path(arguments.output)
    if output is not None and not output.absolute().parent.is_dir():
        print(f"hierring: {output}: there is no such directory", file=sys.stderr)
        return 2
    stopwatch = Stopwatch()
    outcomes = {name: _outcome(name, words) for name, words in _commands(arguments).items()}
    arguments.keep = None  # is nobody else's
    commands = [
        ["python", "-m", f"hierring.benchmarks.{name}", *words]
        for name, words in _commands(arguments).items()
    ]
    text = page(outcomes["peers"], outcomes["wire"], stopwatch.facts(arguments.source, commands))
    if output is None:
        sys.stdout.write(text)
    else:
        output.write_text(text, encoding="utf-8")
        say_on_stderr(f"wrote {output}")
    return 1 if any(one.failures for one in outcomes.values()) else 0


def _outcome(name: str, words: Sequence[str]) -> Outcome:
    """Of one command; if it can't even begin, the other one may."""
    try:
        if name == "peers":
            return peers.run(peers.parser().parse_args(words))
        return wire.run(wire.parser().parse_args(words))
    except HierringError as error:
        say_on_stderr(str(error))
        return Outcome((), (f"{name}: {str(error).splitlines()[-1]}",))


def _parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="python -m hierring.benchmarks.page", description=__doc__)
    add = found.add_argument
    add("--output", metavar="FILE", help="where the page goes (stdout)")
    add("--long", action="store_true", help="more sizes and calls, and three rounds apart in time")
    add("--pause", default="600", metavar="SECONDS", help="between those rounds (%(default)s)")
    add("--source", default="", metavar="TEXT", help="what hierring was made from: a commit")
    for name in ("--python", "--environments", "--mpi", "--torch", "--keep"):
        action = "append" if name == "--python" else "store"
        add(name, action=action, metavar="WHAT", help="as of hierring.benchmarks.peers")
    return found


def _commands(arguments: argparse.Namespace) -> dict[str, list[str]]:
    """Arguments of `peers` and `wire`."""
    common = [f"--python={python}" for python in arguments.python or ()]
    for name in ("environments", "mpi", "torch"):
        value = getattr(arguments, name)
        common += [] if value is None else [f"--{name}={value}"]
    common += [f"--pause={arguments.pause}"] if arguments.long else []
    found = {}
    for name, words in (_LONG if arguments.long else _SHORT).items():
        keep = [] if arguments.keep is None else [f"--keep={Path(arguments.keep) / name}"]
        found[name] = [*words.split(), *common, *keep]
    return found


def page(one_node: Outcome, nodes: Outcome, facts: Facts) -> str:
    """The whole page, as Markdown."""
    both = Outcome(one_node.jobs + nodes.jobs, one_node.failures + nodes.failures)
    body: list[str] = []
    if one_node.jobs:
        body += ["", "## On one node", *peers.sections(one_node.jobs)]
    if nodes.jobs:
        body += ["", "## Between nodes", *wire.sections(nodes.jobs)]
    return f"{_HEAD}\n\n{framed('Benchmarks', _OPENING, body, both, facts)}"


if __name__ == "__main__":
    sys.exit(main())
