"""Ranks of a node as processes of their own, steered line by line from a test."""

from __future__ import annotations

import ast
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Final, final

import pytest

from hierring import _core

ANSWER_S: Final = 60
CELL_BYTES: Final = 1024
WINDOW_CELLS: Final = 3
SMALL_BYTES: Final = 256

# Evaluates one expression a line, and answers with its value or the name of its exception.
PROGRAM = """
import os, signal, sys, threading, time
import numpy as np
from hierring import _core
from hierring._testing.node import Rank

def attempt(expression):
    try:
        eval(expression, globals())
    except BaseException as error:
        return type(error).__name__

for line in sys.stdin:
    try:
        answer = eval(line, globals())
    except BaseException as error:
        answer = {"error": type(error).__name__, "errno": getattr(error, "errno", None)}
    print(repr(answer), flush=True)
"""


@final
class Process:
    """A Python process that evaluates expressions; ``hierring._testing.node.Rank`` is at hand.

    Args:
        prefix: a command that starts the program it is given, in a namespace, say.
    """

    def __init__(self, prefix: Sequence[str] = ()) -> None:
        self._process = subprocess.Popen(
            [*prefix, sys.executable, "-P", "-u", "-c", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.pid = self._process.pid

    def start(self, expression: str) -> None:
        """Begin to evaluate; ``answer`` brings the value."""
        assert self._process.stdin is not None
        self._process.stdin.write(expression.encode() + b"\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        """Return the value; an exception is the dictionary of its name and errno."""
        assert self._process.stdout is not None
        assert select.select([self._process.stdout], [], [], ANSWER_S)[0], "no answer"
        return ast.literal_eval(self._process.stdout.readline().decode())

    def ask(self, expression: str) -> Any:
        """Evaluate an expression and return its value."""
        self.start(expression)
        return self.answer()

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """End the process by SIGKILL, and wait until it is gone."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()


def node(
    stack: ExitStack, size: int, *, ring: bool = False, start: tuple[int, int] = (1, 0)
) -> list[Process]:
    """Start the ranks of a node, each with its ``Rank`` under the name ``rank``.

    Args:
        stack: ends the processes and the segment.
        start: numbers of the first operation and piece, see ``_core.Channel.start_at``.
    """
    nbytes = _core.Channel.layout_nbytes(size, CELL_BYTES, WINDOW_CELLS, SMALL_BYTES)
    segment = _core.Segment.create(nbytes)
    stack.callback(segment.close)
    ranks = [stack.enter_context(Process()) for _ in range(size)]
    sizes = (CELL_BYTES, WINDOW_CELLS, SMALL_BYTES)
    together(
        ranks,
        [
            f"globals().update(rank=Rank({segment.path!r}, {nbytes}, {i}, {size}, {sizes}, {ring},"
            f" {start}))"
            for i in range(size)
        ],
    )
    return ranks


def together(ranks: Sequence[Process], expressions: str | Iterable[str]) -> list[Any]:
    """Evaluate on all ranks at once: the same, or one expression for each."""
    if isinstance(expressions, str):
        expressions = [expressions] * len(ranks)
    for rank, expression in zip(ranks, expressions, strict=True):
        rank.start(expression)
    return [rank.answer() for rank in ranks]


def in_child(expression: str) -> str:
    """Return an expression for what this one comes to in a forked child.

    It knows ``attempt``: the name of the exception that an expression raises, or None.
    """
    child = f"(os.write(pipe[1], repr({expression}).encode()), os._exit(0))"
    parent = "[os.waitpid(pid, 0), eval(os.read(pipe[0], 4096))][1]"
    return f"[{child} if pid == 0 else {parent} for pipe in [os.pipe()] for pid in [os.fork()]][0]"


def namespaces(*options: str) -> list[str]:
    """Return the command that starts a program in new namespaces; skip where that is refused."""
    command = ["unshare", *options]
    if shutil.which("unshare") is None:
        pytest.skip("unshare is not installed")
    tried = subprocess.run([*command, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"new namespaces are refused: {tried.stderr.strip()}")
    return command


def own_shm(nbytes: str) -> list[str]:
    """Return the command that starts a program with a /dev/shm of its own, of this size."""
    options = ("--mount",) if os.geteuid() == 0 else ("--map-root-user", "--mount")
    mount = f'mount -t tmpfs -o size={nbytes} tmpfs /dev/shm && exec "$@"'
    return [*namespaces(*options, "--propagation", "private"), "sh", "-c", mount, "sh"]
