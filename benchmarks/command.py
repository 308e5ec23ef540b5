"""`hierring bench`: the command around a run."""

from __future__ import annotations

import argparse
import sys

from hierring.errors import HierringError

__all__ = ["run"]


def run(arguments: argparse.Namespace) -> int:
    """Measure, print and write; collective over all ranks of the job.

    Returns:
        The exit status: 1 if an element was wrong, else 0.
    """
    from hierring.benchmarks.options import Options
    from hierring.benchmarks.result import save
    from hierring.benchmarks.run import bench
    from hierring.benchmarks.table import write_csv

    options = Options.of(arguments)

    def say(text: str) -> None:
        print(text, flush=True)  # a launcher's pipe would hold lines back

    wrong, result = bench(options, sys.argv[1:], say)
    if result is not None:
        try:
            if options.json:
                save(result, options.json)
            if options.csv:
                write_csv(result, options.csv)
        except OSError as error:
            raise HierringError(f"the figures can't be written: {error}") from error
    return 1 if wrong else 0
