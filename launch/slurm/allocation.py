"""What SLURM's variables say of the job, or of the step, that this process belongs to.

A job asks for so many tasks; each `srun` inside it is a step with numbers of its own, and the job's
variables stay visible in it. So the step's are read first. Even these are what SLURM was asked for
and not what runs: how many ranks there are, MPI alone knows.
"""

from __future__ import annotations

import itertools
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from hierring.errors import ConfigurationError

__all__ = ["Allocation", "expand_counts", "expand_nodes", "read_allocation"]

T = TypeVar("T")

# Each number by its names: the step's, the job's, and the job's old one, kept for old scripts.
_NODE_LIST = ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")
_NUM_NODES = ("SLURM_STEP_NUM_NODES", "SLURM_JOB_NUM_NODES", "SLURM_NNODES")
_NUM_TASKS = ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS")
_TASKS_PER_NODE = ("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")
_MAX_NODES = 1 << 17  # in one variable: a damaged range must not fill the memory
_SHOWN = 200  # characters of a damaged value that an error quotes
_TOO_MANY = f"more than {_MAX_NODES} nodes"


@dataclass(frozen=True)
class Allocation:
    """The nodes and tasks of a job, or of a step.

    Attributes:
        job_id: the job's number.
        in_step: whether `srun` started this process; else the batch script or `salloc` did.
        nodes: node names in SLURM's order, repeats kept; empty where it does not say.
        tasks_per_node: how many tasks each of `nodes` has; empty where SLURM does not say.
        num_tasks: how many tasks there are in all, or None. Without `--ntasks`, SLURM only says how
            many would fit on each node.
        cpus_per_task: what was asked for, or None.
        conflicts: sentences about variables that contradict each other.
    """

    job_id: str
    in_step: bool
    nodes: tuple[str, ...]
    tasks_per_node: tuple[int, ...]
    num_tasks: int | None
    cpus_per_task: int | None
    conflicts: tuple[str, ...]


def read_allocation(environ: Mapping[str, str] = os.environ) -> Allocation | None:
    """Read the variables; None outside any allocation.

    Raises:
        ConfigurationError: a variable is not what SLURM would write; names it and its value.
    """
    job_id = environ.get("SLURM_JOB_ID") or environ.get("SLURM_JOBID")
    if not job_id:
        return None
    in_step = "SLURM_STEP_ID" in environ
    nodes = _read(environ, _NODE_LIST, in_step, expand_nodes)
    counts = _read(environ, _TASKS_PER_NODE, in_step, expand_counts)
    num_nodes = _read(environ, _NUM_NODES, in_step, _positive)
    num_tasks = _read(environ, _NUM_TASKS, in_step, _positive)
    cpus = _read(environ, ("SLURM_CPUS_PER_TASK",), in_step, _positive)
    found = (nodes, counts, num_nodes, num_tasks)
    return Allocation(
        job_id=job_id,
        in_step=in_step,
        nodes=nodes.value if nodes else (),
        tasks_per_node=counts.value if counts else (),
        num_tasks=num_tasks.value if num_tasks else None,
        cpus_per_task=cpus.value if cpus else None,
        conflicts=(*_contradictions(*found), *_job_against_step(environ, in_step)),
    )


def expand_nodes(text: str) -> tuple[str, ...]:
    """Expand SLURM's host list, such as `gpu-[01-03,07],login`, in its order and with its repeats.

    The library would sort and drop repeats, and knows operators and groups that SLURM does not; so
    it is given one range at a time.

    Raises:
        ValueError: it is no host list.
    """
    names: list[str] = []
    for item in _split(text):
        names += _combine(item)
        if len(names) > _MAX_NODES:
            raise ValueError(_TOO_MANY)
    return tuple(names)


def expand_counts(text: str) -> tuple[int, ...]:
    """Expand SLURM's counts per node: `2(x3),1` is 2, 2, 2, 1.

    Raises:
        ValueError: it is no such list.
    """
    counts: list[int] = []
    for item in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:\(x(\d+)\))?\s*", item, re.ASCII)
        if match is None:
            raise ValueError("expected counts such as 2(x3),1")
        repeat = int(match[2] or 1)
        if len(counts) + repeat > _MAX_NODES:
            raise ValueError(_TOO_MANY)
        counts += [int(match[1])] * repeat
    return tuple(counts)


@dataclass(frozen=True)
class _Found(Generic[T]):
    """A variable that is set, and what it says."""

    name: str
    text: str
    value: T

    @property
    def of_step(self) -> bool:
        return self.name.startswith("SLURM_STEP_")


def _read(
    environ: Mapping[str, str], names: tuple[str, ...], in_step: bool, parse: Callable[[str], T]
) -> _Found[T] | None:
    """The first of the names that is set; a step's only inside one."""
    for name in names:
        text = environ.get(name, "").strip()
        if not text or (name.startswith("SLURM_STEP_") and not in_step):
            continue
        try:
            return _Found(name, text, parse(text))
        except ValueError as error:
            raise ConfigurationError(
                f"{name}={_brief(repr(text))} is not what SLURM writes ({_brief(str(error))}): "
                "start the job anew without setting it"
            ) from error
    return None


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise ValueError("expected a number above 0")
    return int(text)


def _contradictions(
    nodes: _Found[tuple[str, ...]] | None,
    counts: _Found[tuple[int, ...]] | None,
    num_nodes: _Found[int] | None,
    num_tasks: _Found[int] | None,
) -> Iterator[str]:
    """Compare variables of one level; a step may well be smaller than its job."""
    if nodes and num_nodes and nodes.of_step == num_nodes.of_step:
        named = len(nodes.value)
        if named != num_nodes.value:
            yield f"{_show(nodes)} names {named} nodes, but {_show(num_nodes)}"
    if nodes and counts and nodes.of_step == counts.of_step:
        counted = len(counts.value)
        if counted != len(nodes.value):
            yield f"{_show(counts)} counts {counted} nodes, but {_show(nodes)}"
    if counts and num_tasks and counts.of_step == num_tasks.of_step:
        total = sum(counts.value)
        # A job may have room for more tasks than it asked for; a step has the tasks it has.
        if total < num_tasks.value or (counts.of_step and total != num_tasks.value):
            yield f"{_show(counts)} adds up to {total} tasks, but {_show(num_tasks)}"


def _job_against_step(environ: Mapping[str, str], in_step: bool) -> Iterator[str]:
    """`srun` sets both in its tasks; where they differ, somebody has set the job's since."""
    step = _read(environ, _NUM_TASKS[:1], in_step, _positive)
    job = _read(environ, _NUM_TASKS[1:], in_step, _positive)
    if step and job and step.value != job.value:
        yield f"{_show(job)}, but {_show(step)}, which counts inside a step"


def _brief(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _show(found: _Found[T]) -> str:
    return f"{found.name}={_brief(found.text)}"


def _split(text: str) -> Iterator[str]:
    """Split at the commas outside brackets."""
    for item in _items(text):
        if not re.fullmatch(r"(?:[\w.-]|\[[\d,-]+\])+", item.strip(), re.ASCII):
            raise ValueError(f"{item.strip()!r} is no node name")
        yield item.strip()


def _items(text: str) -> Iterator[str]:
    """The same, of any text; in one pass, for a list may have many thousand commas."""
    parts: list[str] = []
    is_open = False
    for part in text.split(","):
        parts.append(part)
        if "[" in part or "]" in part:
            is_open = part.rfind("[") > part.rfind("]")
        if not is_open:
            yield ",".join(parts)
            parts = []
    if parts:
        yield ",".join(parts)


def _combine(item: str) -> Iterator[str]:
    """`r[1-2]n[5,7-8]` becomes r1n5, r1n7, r1n8, r2n5 and so on."""
    parts = re.split(r"\[([\d,-]+)\]", item)  # text, ranges, text, ranges, ... , text
    texts = parts[::2]
    numbers = [list(_numbers(part.split(","))) for part in parts[1::2]]
    if math.prod(map(len, numbers)) > _MAX_NODES:
        raise ValueError(_TOO_MANY)
    for chosen in itertools.product(*numbers):
        yield texts[0] + "".join(map(str.__add__, chosen, texts[1:]))


def _numbers(ranges: list[str]) -> Iterator[str]:
    """Expand each range, leading zeros kept."""
    # Imported by those alone who have a list to read: it takes longer than all of the rest.
    from ClusterShell.RangeSet import RangeSet, RangeSetException

    for one in ranges:
        # The library would take more, such as negative numbers, which have no place in a host list.
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", one, re.ASCII)
        if match is None:
            raise ValueError(f"{one!r} is no number and no range")
        if match[2] is None:
            yield one  # long lists are of these, and the library is slow
            continue
        if int(match[2]) - int(match[1]) >= _MAX_NODES:
            raise ValueError(_TOO_MANY)
        try:
            yield from RangeSet(one).striter()
        except RangeSetException as error:
            raise ValueError(str(error)) from error
