"""The options of `hierring bench`: nccl-tests' letters, and what only a hierarchy has."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from hierring.config import parse_algorithm, parse_seconds, parse_size
from hierring.errors import ConfigurationError

if TYPE_CHECKING:
    from hierring.dtypes import DType

__all__ = ["COLLECTIVES", "OPS", "PEERS", "Options", "add_arguments"]

COLLECTIVES = ("allreduce", "reduce_scatter", "allgather", "broadcast")
OPS = ("sum", "avg", "min", "max", "prod", "band", "bor", "bxor")
PEERS = ("mpi", "gloo")
#: What nccl-tests calls them.
_NICKNAMES = {"float": "float32", "double": "float64", "half": "float16"}

T = TypeVar("T")


@dataclass(frozen=True)
class Options:
    """What to measure, checked.

    Attributes:
        sizes: bytes, ascending.
        algorithms: empty for the configured one.
        leaders, cell_bytes: settings to compare; None is the configured one.
        max_seconds: after which no new calls begin; None for as long as it takes.
    """

    sizes: tuple[int, ...]
    iterations: int
    warmup: int
    dtypes: tuple[DType, ...]
    ops: tuple[str, ...]
    collectives: tuple[str, ...]
    check: bool
    algorithms: tuple[str, ...]
    leaders: tuple[int | None, ...]
    cell_bytes: tuple[int | None, ...]
    peers: tuple[str, ...]
    probe: bool
    json: str | None
    csv: str | None
    max_seconds: float | None

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> Options:
        """Check what the command line says.

        Raises:
            ConfigurationError: a value that makes no sense, by the option's name.
        """
        from hierring.dtypes import DType  # brings NumPy, which `--help` can do without

        names = (_NICKNAMES.get(name, name) for name in arguments.dtypes.split(","))
        known = tuple(str(dtype) for dtype in DType)
        algorithms = tuple(arguments.algorithms.split(",")) if arguments.algorithms else ()
        for text in algorithms:
            parse_algorithm(text, "--algorithms")
        return cls(
            sizes=_sizes(arguments),
            iterations=_number(arguments.iterations, "-n", 1),
            warmup=_number(arguments.warmup, "-w", 0),
            dtypes=tuple(DType[name.upper()] for name in _named(",".join(names), "-d", known)),
            ops=_named(arguments.ops, "-o", OPS),
            collectives=_named(arguments.collectives, "--collectives", COLLECTIVES),
            check=bool(_number(arguments.check, "-c", 0)),
            algorithms=algorithms,
            leaders=_listed(arguments.leaders, lambda text: _number(text, "--leaders", 1)),
            cell_bytes=_listed(arguments.cell_bytes, lambda text: parse_size(text, "--cell-bytes")),
            peers=_named(arguments.peers, "--peers", PEERS) if arguments.peers else (),
            probe=arguments.probe,
            json=arguments.json,
            csv=arguments.csv,
            max_seconds=None
            if arguments.max_seconds is None
            else parse_seconds(arguments.max_seconds, "--max-seconds"),
        )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what `Options.of` reads."""
    add = parser.add_argument
    add("-b", dest="begin", default="8", metavar="SIZE", help="smallest size (%(default)s)")
    add("-e", dest="end", default="16M", metavar="SIZE", help="largest size (%(default)s)")
    add("-f", dest="factor", default="8", metavar="N", help="step: times N (%(default)s)")
    add("-i", dest="step", metavar="SIZE", help="step: plus SIZE, instead of -f")
    add("-n", dest="iterations", default="20", metavar="N", help="timed calls (%(default)s)")
    add("-w", dest="warmup", default="5", metavar="N", help="calls before them (%(default)s)")
    add("-d", dest="dtypes", default="float32", metavar="TYPES", help="element types (%(default)s)")
    add("-o", dest="ops", default="sum", metavar="OPS", help="operations (%(default)s)")
    add("-c", dest="check", default="1", metavar="0|1", help="compare all results (%(default)s)")
    add(
        "--collectives",
        default="allreduce",
        metavar="NAMES",
        help=f"of {','.join(COLLECTIVES)} (%(default)s)",
    )
    add(
        "--algorithms",
        metavar="NAMES",
        help="of auto,hierarchical,ring,tree,naive (the configured one, else auto); others are "
        "compared to the first",
    )
    add("--leaders", metavar="N", help="rails between nodes; several, as 1,2, are compared")
    add("--cell-bytes", metavar="SIZE", help="staging cells; several, as 64K,128K, are compared")
    add("--peers", metavar="NAMES", help="of mpi,gloo: measured in turn with hierring")
    add("--json", metavar="FILE", help="write all figures, for `hierring report`")
    add("--csv", metavar="FILE", help="write the table")
    add("--max-seconds", metavar="SECONDS", help="begin no more calls after so long")
    add(
        "--no-probe",
        dest="probe",
        action="store_false",
        help="do not measure links and memory first; then there is no wire bound",
    )


def _named(text: str, option: str, known: tuple[str, ...]) -> tuple[str, ...]:
    names = tuple(text.split(","))
    for name in names:
        if name not in known:
            raise ConfigurationError(f"{option} {name!r} is not known: give {', '.join(known)}")
    return tuple(dict.fromkeys(names))


def _listed(text: str | None, convert: Callable[[str], T]) -> tuple[T | None, ...]:
    return (None,) if text is None else tuple(convert(word) for word in text.split(","))


def _number(text: str, option: str, least: int) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) < least:
        raise ConfigurationError(f"{option} {text!r}: give a whole number, {least} or more")
    return int(text)


def _sizes(arguments: argparse.Namespace) -> tuple[int, ...]:
    begin, end = parse_size(arguments.begin, "-b"), parse_size(arguments.end, "-e")
    if not 0 < begin <= end:
        raise ConfigurationError(
            f"-b {arguments.begin} -e {arguments.end}: sizes go upwards from 1"
        )
    if arguments.step is not None:
        step = parse_size(arguments.step, "-i")
        if step == 0:
            raise ConfigurationError("-i 0: a step leads somewhere")
        return tuple(range(begin, end + 1, step))
    factor = _number(arguments.factor, "-f", 2)
    sizes = [begin]
    while sizes[-1] * factor <= end:
        sizes.append(sizes[-1] * factor)
    return tuple(sizes)
