"""Handing a batch script to sbatch."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable

from hierring.errors import HierringError

__all__ = ["submit"]


def submit(script: str, submitted: Callable[[str], object], *, wait: bool = False) -> int:
    """Submit a script; SLURM keeps a copy of its own (`scontrol write batch_script JOB`).

    Args:
        script: its text.
        submitted: is told the job's number as soon as it is known.
        wait: wait for the job's end. A Ctrl-C ends the waiting and not the job.

    Returns:
        0, or with `wait` the job's exit code.

    Raises:
        HierringError: sbatch refuses it; quotes the reason.
    """
    process = subprocess.Popen(
        ["sbatch", "--parsable", *(["--wait"] if wait else [])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    with contextlib.suppress(BrokenPipeError):  # it has ended; why is read below
        process.stdin.write(script)
        process.stdin.close()
    job_id = process.stdout.readline().strip().partition(";")[0]  # NUMBER[;CLUSTER]
    if not job_id:
        reason = " ".join(process.stderr.read().split())
        raise HierringError(f"sbatch has refused the job ({process.wait()}): {reason}")
    submitted(job_id)
    try:
        warnings = process.stderr.read()
        code = process.wait()
    except KeyboardInterrupt:
        print(f"\njob {job_id} goes on; `scancel {job_id}` ends it", file=sys.stderr)
        return 130
    print(warnings, end="", file=sys.stderr)
    return code
