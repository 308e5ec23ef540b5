"""What every collective goes through: the lock, the sequence number, refusal, and the engine."""

from __future__ import annotations

import threading
import time
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

_LET_PASS_S = 50e-6


class Operating:
    """A communicator's state as far as operations need it. One thread at a time is inside."""

    _config: Config
    _engine: Engine
    #: `run` of the engine's WholeCall, where there can be whole calls.
    _run_whole: Callable[[Any, object, Any], int] | None = None

    def __init__(self, config: Config) -> None:
        self._config = config
        self._lock = threading.RLock()
        self._closed = False
        self._forked = False
        self._completed = 0

    def _operate(
        self, name: str, timeout: Timeout, prepare: Callable[..., Request], *arguments: Any
    ) -> Any:
        """One operation from arguments to result; `prepare` takes the engine and the arguments."""
        with self._entered(name, timeout) as (engine, call, check):
            request = self._prepared(
                engine, call, lambda: (check(), prepare(engine, *arguments))[1]
            )
            engine.run(call, request.descriptor, request.transfer)
            result = request.finish()
            self._completed += 1
            return result

    def _take_over(self, name: str, prepare: Callable[..., Request], *arguments: Any) -> Any:
        """Go on with an operation that `engine.whole` has entered, and claimed. The lock is held.

        Preparing refuses nothing: the same arguments have been looked at. After an exception comes
        `_abandon_claimed`.
        """
        engine = self._engine
        call = engine.take_over(name, self._config.timeout_s)
        request = prepare(engine, *arguments)
        engine.run(call, request.descriptor, request.transfer, arrived=True)
        result = request.finish()
        self._completed += 1
        engine.settle()
        self._leave_call()
        return result

    def _abandon_claimed(self, name: str, error: BaseException) -> None:
        """A call ends by an exception that may have come at any point of a whole call."""
        engine = self._engine
        if engine.whole.mine:
            try:
                engine.abandon(name, error, entered=True)
            finally:
                self._leave_call()
        elif engine.whole.done_here:
            self._completed -= 1  # not for the caller, who gets the exception instead of the result
            engine.abandon(name, error, entered=True, known=False)

    @contextmanager
    def _entered(
        self, name: str, timeout: Timeout
    ) -> Iterator[tuple[Engine, Call, Callable[[], Any]]]:
        """Take the lock and the next sequence number.

        Yields a check of the timeout too: a bad one must be refused like any other argument, after
        entering, so that the other ranks don't wait. A call that ends by an exception which the
        other ranks don't know of breaks the communicator, at whatever point it was.
        """
        with self._turn():
            self._check_usable(name)
            engine = self._engine
            before = engine.seq
            try:
                engine.whole.claim()
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
                self._leave_call()

    def _connect_whole_calls(self) -> None:
        engine = self._engine
        self._run_whole = engine.whole.run if engine.topology.num_nodes == 1 else None

    def _completed_in_all(self) -> int:
        return self._completed + sum(self._engine.whole.completed)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """The lock, while no other thread is inside. Not to be nested.

        A small whole call holds no lock while it runs; if it takes long, its thread claims it and
        asks for the lock. Whoever gets that first lets it pass.
        """
        while True:
            with self._lock:
                whole = self._engine.whole
                if not whole.claimed or whole.mine:
                    yield
                    return
            time.sleep(_LET_PASS_S)

    def _leave_call(self) -> None:
        self._engine.whole.release()
        self._engine.tally.clock.stop()

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
        if self._engine.whole.mine:
            raise HierringError(
                f"{name} was called from inside another collective of the same communicator (a "
                "signal handler?): set a flag there and call it afterwards"
            )


def _raiser(error: Exception) -> Callable[[], Any]:
    def check() -> Any:
        raise error

    return check
