"""Runs the command line: `python -m hierring`."""

from __future__ import annotations

import sys

from hierring.cli import main

if __name__ == "__main__":
    sys.exit(main())
