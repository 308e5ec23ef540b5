"""One run from options to a Result: communicators, contenders, rows, and what they say together."""

from __future__ import annotations

import contextlib
import datetime
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hierring.benchmarks import bounds, cases, circumstances, table
from hierring.benchmarks.contenders import Contender, Hierring, Mpi
from hierring.benchmarks.figures import Case
from hierring.benchmarks.measure import Clock, Measured, measure
from hierring.benchmarks.options import Options
from hierring.benchmarks.plan import Plan, Point, plan
from hierring.benchmarks.progress import Bar
from hierring.benchmarks.result import SCHEMA, Result, Settings, Skipped
from hierring.benchmarks.stragglers import find_stragglers
from hierring.config import Config
from hierring.dtypes import itemsize
from hierring.environment import check_launcher
from hierring.errors import ConfigurationError
from hierring.topology import LinkReport

if TYPE_CHECKING:
    from hierring.communicator import Communicator

__all__ = ["bench"]

Say = Callable[[str], None]


def bench(options: Options, command: Sequence[str], say: Say) -> tuple[int, Result | None]:
    """Measure; collective over all ranks of the job.

    Args:
        say: prints a line, called on rank 0 alone.

    Returns:
        How many elements were wrong on all ranks together, and on rank 0 all figures: in a large
        job, figures of all ranks on all ranks would fill the memory.
    """
    started, began = datetime.datetime.now(datetime.timezone.utc), time.monotonic()
    load = os.getloadavg()[0]
    config = Config.from_env()
    _check_launch(config)
    stack = contextlib.ExitStack()
    control = _communicator(config, stack)
    _check_files(options, control)
    topology, first = control.get_topology(), control.rank() == 0
    if first:
        say(topology.describe())
    contenders = list(_contenders(options, config, control, stack))
    environment = circumstances.environment_of(started, load, full=first)
    if first:
        who = f"{environment.mpi}; started by {environment.launcher}"
        say(f"{who}; SIMD {environment.simd_level}")
    probed = _probe(control) if options.probe else LinkReport(topology.num_nodes, (), (), ())
    ring = bounds.ring_bandwidth(probed.links, topology)
    run = _Run(options, config, control, contenders, ring)
    complete = run.rows(plan(options, control.size()), say)
    stack.close()
    if not first:
        return run.wrong, None
    result = Result(
        schema=SCHEMA,
        environment=replace(environment, seconds=time.monotonic() - began),
        topology=topology.to_dict(),
        settings=Settings(
            tuple(command), options.iterations, options.warmup, options.check,
            circumstances.settings_dict(config),
        ),
        method=circumstances.method_of(),
        tuning=None,
        cases=tuple(run.cases),
        skipped=tuple(Skipped(what, why) for what, why in run.skipped),
        links=probed.links,
        ring=probed.ring,
        memory=probed.memory,
        stragglers=find_stragglers(run.cases, probed.links, probed.memory),
        faster=cases.faster_of(run.cases),
        complete=complete,
        wrong=run.wrong if options.check else None,
    )  # fmt: skip
    say(table.closing(result))
    return run.wrong, result


def _check_launch(config: Config) -> None:
    """Refuse what `init` only warns of: one process alone in a job for several measures nothing."""
    from mpi4py import MPI

    if not config.check_launcher:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        try:
            check_launcher(MPI.COMM_WORLD.Get_size())
        except RuntimeWarning as warning:
            raise ConfigurationError(
                f"{warning} Its figures would be those of one process; "
                "HIERRING_CHECK_LAUNCHER=0 measures all the same."
            ) from None


def _check_files(options: Options, control: Communicator) -> None:
    """Refuse places that can't be written to before the first measurement, not after the last."""
    lost = ""
    if control.rank() == 0:  # who writes; other nodes may have other directories
        for name in filter(None, (options.json, options.csv)):
            if not Path(name).absolute().parent.is_dir():
                lost = name
    if control.broadcast(int(bool(lost))):
        if control.rank() != 0:
            raise SystemExit(2)  # rank 0 says why
        raise ConfigurationError(f"{lost}: there is no such directory")


def _communicator(config: Config, stack: contextlib.ExitStack) -> Communicator:
    from mpi4py import MPI

    from hierring.communicator import Communicator

    comm = Communicator(MPI.COMM_WORLD, config=config)
    _open.append(comm)
    stack.callback(_close, comm)
    return comm


def _close(comm: Communicator) -> None:
    comm.close()
    _open.remove(comm)


#: Closed at a good end only. A broken communicator that is still there ends the whole job when this
#: process exits, and so also a rank that hangs.
_open: list[Communicator] = []


def _probe(control: Communicator) -> LinkReport:
    from hierring.communicator import probe_links

    return probe_links(control)


def _contenders(
    options: Options, config: Config, control: Communicator, stack: contextlib.ExitStack
) -> Iterator[Contender]:
    """Everybody who is measured, the reference first."""
    for leaders in options.leaders:
        for cell_bytes in options.cell_bytes:
            changes = {"leaders": leaders, "cell_bytes": cell_bytes}
            given: dict[str, Any] = {k: v for k, v in changes.items() if v is not None}
            comm = _communicator(replace(config, **given), stack)
            for algorithm in options.algorithms or (config.algorithm,):
                yield Hierring("hierring", algorithm, leaders, cell_bytes, comm)
    if "mpi" in options.peers:
        from mpi4py import MPI

        duplicate = MPI.COMM_WORLD.Dup()
        stack.callback(duplicate.Free)
        yield Mpi("mpi", comm=duplicate)
    if "gloo" in options.peers:
        from hierring.benchmarks.gloo import start_gloo, stop_gloo

        yield start_gloo(control)
        stack.callback(stop_gloo)


class _Run:
    """The rows of one run so far.

    Attributes:
        wrong: elements, of all ranks. cases: on rank 0 only.
    """

    def __init__(
        self, options: Options, config: Config, control: Communicator,
        contenders: Sequence[Contender], ring: float | None,
    ) -> None:  # fmt: skip
        self._options, self._config, self._control = options, config, control
        self._contenders, self._ring = contenders, ring
        self._memory = bounds.MemoryBound(control)
        self.wrong = 0
        self.cases: list[Case] = []
        self.skipped: dict[tuple[str, str], None] = {}

    def rows(self, todo: Plan, say: Say) -> bool:
        """Measure them all; returns whether there was time to."""
        for what, why in todo.refused:
            self.skipped[what, why] = None
        clock = Clock(self._control, self._options.max_seconds)
        first = self._control.rank() == 0
        bar = Bar(len(todo.points), first)
        head, complete = "", True
        for done, point in enumerate(todo.points):
            if done and clock.over():
                complete = False
                break
            bar.show(done, f"{point.collective} {point.dtype} {point.op} {point.nbytes} bytes")
            measured, memory = self._row(point, clock)
            bar.clear()
            self.wrong += sum(one.wrong or 0 for one in measured)
            complete &= all(one.seconds.shape[1] == self._options.iterations for one in measured)
            if first:
                new = [self._case(point, one, measured, memory) for one in measured]
                lines = list(table.rows(new))
                if point.collective != head:
                    head = point.collective
                    lines.insert(0, table.header(head))
                for line in lines:
                    say(line)
                self.cases += new
        return complete

    def _row(self, point: Point, clock: Clock) -> tuple[list[Measured], float]:
        taking_part = []
        for in_place in (False, True):
            for who in self._contenders:
                why = who.refusal(point, in_place)
                if why:
                    where = "in place" if in_place else "out of place"
                    what = f"{who.name} {point.collective} {point.dtype} {point.op} {where}"
                    self.skipped[what, why] = None
                else:
                    taking_part.append((who, in_place))
        measured = measure(
            self._control, point, taking_part, warmup=self._options.warmup,
            iterations=self._options.iterations, check=self._options.check, clock=clock,
        )  # fmt: skip
        return measured, self._memory.seconds(point.nbytes)

    def _case(
        self, point: Point, one: Measured, measured: Sequence[Measured], memory: float
    ) -> Case:
        first = next(other for other in measured if other.in_place == one.in_place)
        reference = None if first is one or first.contender.library != "hierring" else first
        topology = self._control.get_topology()
        on_wire = point.count * itemsize(point.wire(self._config))
        limits = bounds.bounds_of(
            point.collective, on_wire, memory, self._ring,
            cases.median_of(one), topology.num_nodes,
        )  # fmt: skip
        return cases.make_case(one, reference, limits, topology, self._config)
