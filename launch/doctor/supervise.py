"""Runs a rank of the examination in a process of its own, and outlives what MPI does to it.

A launch that does not fit the MPI library often ends in MPI_Init, by an abort or by a wait without
end. The process of the user then still has an answer: what the other was doing, and its last words.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

__all__ = ["Attempt", "attempt"]

# The child must find the very same packages: -c would put the current directory first.
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "from hierring.launch.doctor import meet; sys.exit(meet.main(sys.argv[1:]))"
)
#: Beyond the waits that the child ends itself; MPI's own start and end have none.
GRACE_S = 10.0
_LAST_LINES = 4


@dataclass
class Attempt:
    """What came of one child.

    Attributes:
        stage: what it was doing last.
        answer: all it told.
        trouble: how it failed, in words, or "".
        timed_out: whether the trouble is that it did not end.
        output: what it, or MPI inside it, printed.
    """

    stage: str = "starting Python"
    answer: dict[str, Any] = field(default_factory=dict)
    trouble: str = ""
    timed_out: bool = False
    output: str = ""

    def give_up(self, seconds: float) -> None:
        """Note that it did not end, nor say anything new, for so long."""
        self.trouble = f"no end after {seconds:.0f} s of {self.stage}"
        self.timed_out = True

    @property
    def cause(self) -> str:
        """The trouble with the last lines of what was printed."""
        lines = [" ".join(line.split()) for line in self.output.splitlines()]
        last = [line for line in lines if line][-_LAST_LINES:]
        return f"{self.trouble}{': ' if last else ''}{' / '.join(last)}"


def attempt(
    arguments: Sequence[str],
    seconds: float,
    environ: Mapping[str, str] = os.environ,
    hear: Callable[[dict[str, Any]], object] = lambda answer: None,
) -> Attempt:
    """Run a rank with these arguments of `meet.main`; always ends.

    Args:
        seconds: what the child waits for other ranks at most, in each of its stages.
        environ: its environment. Descriptors that a launcher has left open go with it.
        hear: is called with all that the child has told, each time that it tells something.
    """
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    with tempfile.TemporaryFile() as output, os.fdopen(reading, "rb", buffering=0) as pipe:
        command = [sys.executable, "-c", _START, json.dumps(sys.path)]
        command += ["--tell", str(writing), "--parent", str(os.getpid())]
        command += ["--seconds", str(seconds), *arguments]
        try:
            child = subprocess.Popen(
                command,
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                close_fds=False,  # the launcher's sockets are how MPI finds the other ranks
            )
        finally:
            os.close(writing)
        found = Attempt()
        try:
            _follow(child, pipe, found, seconds + GRACE_S, hear)
        finally:
            _end(child)
        output.seek(0)
        found.output = output.read().decode(errors="replace")
    return found


def _follow(
    child: subprocess.Popen[bytes],
    pipe: IO[bytes],
    found: Attempt,
    limit_s: float,
    hear: Callable[[dict[str, Any]], object],
) -> None:
    """Take in what the child tells until it ends, or is silent for too long."""
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        rest = b""
        while True:
            if not selector.select(limit_s):
                found.give_up(limit_s)
                return
            data = pipe.read(1 << 16)
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                told = json.loads(line)
                found.stage = told.pop("stage", found.stage)
                found.answer.update(told)
                hear(found.answer)
    # A process that MPI started may still hold the output, never the pipe's end of the child.
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(limit_s)
    if child.returncode is None:
        found.give_up(limit_s)
    elif "failed" in found.answer:
        found.trouble = str(found.answer["failed"])
    elif child.returncode < 0:
        found.trouble = f"{_signal_name(-child.returncode)} while {found.stage}"
    elif child.returncode not in (0, 1) or not found.answer:
        found.trouble = f"exit status {child.returncode} while {found.stage}"


def _signal_name(number: int) -> str:
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"


def _end(child: subprocess.Popen[bytes]) -> None:
    """Leave no child behind, also when Ctrl-C has come."""
    if child.poll() is None:
        child.kill()
    child.wait()
