"""The command `hierring model`."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hierring.errors import ConfigurationError, HierringError

if TYPE_CHECKING:
    from hierring.benchmarks.model.forecast import Check, Forecast
    from hierring.benchmarks.model.parameters import Model
    from hierring.benchmarks.model.shape import Shape

__all__ = ["SCHEMA", "add_arguments", "run"]

SCHEMA = "hierring.prediction/1"


@dataclass(frozen=True)
class Answer:
    """What `--json` writes."""

    schema: str
    model: Model
    predictions: tuple[Forecast, ...]
    checks: tuple[Check, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add files, the grid of predictions, and outputs."""
    add = parser.add_argument
    add("--calibrate", nargs="+", metavar="FILE", help="from hierring bench --json, on one cluster")
    add("--parameters", metavar="FILE", help="a calibration that --save wrote")
    add("--save", metavar="FILE", help="write the calibration")
    add("--nodes", default="", metavar="N", help="numbers of nodes to predict, as 2,64,10000")
    add("--ranks", metavar="N", help="ranks on each (those of the calibration)")
    add("--sizes", default="64K,16M", metavar="SIZE", help="as 8,64K,1G (%(default)s)")
    add("--cores", metavar="N", help="usable on a machine (as in the calibration)")
    add(
        "--machines",
        choices=("one", "each"),
        help="whether virtual nodes share one machine's cores, or each node has its own (as in the "
        "calibration)",
    )
    add(
        "--check",
        nargs="+",
        default=[],
        metavar="FILE",
        help="set what hierring bench measured beside its prediction",
    )
    add("--json", action="store_true", help="print JSON instead of Markdown")
    add("--plot", metavar="FILE", help="write a picture, .svg or .html (needs hierring[report])")


def run(arguments: argparse.Namespace) -> int:
    """Calibrate or read a calibration, predict, compare, write; needs no MPI."""
    from hierring.benchmarks import strict
    from hierring.benchmarks.model.forecast import check, forecast
    from hierring.benchmarks.model.measured import points_of
    from hierring.benchmarks.model.parameters import save_model
    from hierring.benchmarks.model.sections import sections
    from hierring.benchmarks.report.markdown import markdown
    from hierring.benchmarks.result import load

    if arguments.plot:
        _drawable(arguments.plot)
    model = _model(arguments)
    shapes, sizes = _shapes(arguments, model), _sizes(arguments.sizes)
    predictions = tuple(forecast(model, shape, size) for shape in shapes for size in sizes)
    measured = [point for file in arguments.check for point in points_of(load(file))]
    checks = tuple(check(model, measured))
    if arguments.save:
        try:
            save_model(model, arguments.save)
        except OSError as error:
            raise HierringError(f"the calibration can't be written: {error}") from error
    parts = sections(model, predictions, checks)
    if arguments.plot:
        from hierring.benchmarks.model.plots import write_plot

        write_plot(Path(arguments.plot), model, shapes, sizes, checks, parts)
    if arguments.json:
        sys.stdout.write(strict.to_json(Answer(SCHEMA, model, predictions, checks)))
    else:
        sys.stdout.write(markdown("What an all-reduce would take", parts))
    return 0


def _drawable(file: str) -> None:
    """Find out before the work that there is nothing to draw with."""
    from hierring.benchmarks.report.plots import require_matplotlib

    if Path(file).suffix not in (".svg", ".html"):
        raise ConfigurationError(f"--plot {file}: give a name that ends with .svg or .html")
    require_matplotlib("--plot")


def _model(arguments: argparse.Namespace) -> Model:
    from hierring.benchmarks.model.calibrate import calibrate
    from hierring.benchmarks.model.parameters import load_model
    from hierring.benchmarks.result import load

    if (arguments.calibrate is None) == (arguments.parameters is None):
        raise ConfigurationError(
            "give either --calibrate with files of `hierring bench --json`, or --parameters with "
            "what --save wrote"
        )
    if arguments.parameters is not None:
        return load_model(arguments.parameters)
    return calibrate([load(file) for file in arguments.calibrate])


def _shapes(arguments: argparse.Namespace, model: Model) -> list[Shape]:
    from hierring.benchmarks.model.shape import Shape

    reach = model.reach
    ranks = dict.fromkeys(reach.ranks)
    if arguments.ranks is not None:
        ranks = dict.fromkeys(_numbers(arguments.ranks, "--ranks"))
    cores = reach.cores
    if arguments.cores is not None:
        cores, *others = _numbers(arguments.cores, "--cores")
        if others:
            raise ConfigurationError(f"--cores {arguments.cores!r}: all machines have equally many")
    one = reach.one_machine if arguments.machines is None else arguments.machines == "one"
    nodes = _numbers(arguments.nodes, "--nodes") if arguments.nodes else []
    return [Shape(count, on_each, cores, one) for on_each in ranks for count in nodes]


def _numbers(text: str, option: str) -> list[int]:
    words = text.split(",")
    if not all(word.isascii() and word.isdigit() and int(word) > 0 for word in words):
        raise ConfigurationError(f"{option} {text!r}: give whole numbers above 0, as 2,64,10000")
    return [int(word) for word in words]


def _sizes(text: str) -> list[int]:
    from hierring.config import parse_size

    sizes = [parse_size(word, "--sizes") for word in text.split(",")]
    if 0 in sizes:
        raise ConfigurationError("--sizes 0: nothing is sent for a tensor of no bytes")
    return sizes
