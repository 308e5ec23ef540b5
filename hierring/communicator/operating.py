"""What every collective goes through: the lock, the sequence number, refusal, and the engine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from hierring.communicator.descriptor import Descriptor
from hierring.config import Config, parse_seconds
from hierring.errors import CollectiveMismatchError, HierringError

if TYPE_CHECKING:
    from hierring.communicator.engine import Engine
    from hierring.communicator.generation import Call
    from hierring.communicator.requests import Request

__all__ = ["Operating", "Timeout"]

Timeout = float | timedelta | None


class Operating:
    """A communicator's state as far as operations need it. One thread at a time is inside."""

    _config: Config
    _engine: Engine

    def __init__(self, config: Config) -> None:
        self._config = config
        self._lock = threading.RLock()
        self._inside = False
        self._closed = False
        self._forked = False
        self._completed = 0

    def _operate(self, name: str, timeout: Timeout, prepare: Callable[[Engine], Request]) -> Any:
        """One operation from arguments to result."""
        with self._entered(name, timeout) as (engine, call, check):
            request = self._prepared(engine, call, lambda: (check(), prepare(engine))[1])
            engine.run(call, request.descriptor, request.transfer)
            result = request.finish()
            self._completed += 1
            return result

    @contextmanager
    def _entered(
        self, name: str, timeout: Timeout
    ) -> Iterator[tuple[Engine, Call, Callable[[], Any]]]:
        """Take the lock and the next sequence number.

        Yields a check of the timeout too: a bad one must be refused like any other argument, after
        entering, so that the other ranks don't wait. A call that ends by an exception which the
        other ranks don't know of breaks the communicator, at whatever point it was.
        """
        with self._lock:
            self._check_usable(name)
            engine = self._engine
            before = engine.seq
            try:
                self._inside = True
                seconds, check = self._config.timeout_s, lambda: None
                try:
                    seconds = self._seconds(timeout, seconds)
                except Exception as error:
                    check = _raiser(error)
                yield engine, engine.enter(name, seconds), check
                engine.settle()
            except BaseException as error:
                engine.abandon(name, error, entered=engine.seq != before)
                raise
            finally:
                self._inside = False
                engine.tally.clock.stop()

    def _prepared(self, engine: Engine, call: Call, prepare: Callable[[], Any]) -> Any:
        """What `prepare` returns; if it raises, the other ranks are told before this one raises."""
        try:
            return prepare()
        except BaseException as error:
            try:
                engine.run(call, Descriptor.refused(error), None)
            except CollectiveMismatchError:
                raise error from None
            raise AssertionError("a refused operation can't succeed") from error

    def _seconds(self, timeout: Timeout, default: float) -> float:
        if timeout is None:
            return default
        if isinstance(timeout, timedelta):
            timeout = timeout.total_seconds()
        return parse_seconds(timeout, "timeout")

    def _check_usable(self, name: str) -> None:
        if self._forked:
            raise HierringError(
                "this communicator belongs to the parent process: a forked child can't use it"
            )
        if self._closed:
            raise HierringError("this communicator is closed: make a new one")
        if self._inside:
            raise HierringError(
                f"{name} was called from inside another collective of the same communicator (a "
                "signal handler?): set a flag there and call it afterwards"
            )


def _raiser(error: Exception) -> Callable[[], Any]:
    def check() -> Any:
        raise error

    return check
