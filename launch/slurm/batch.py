"""A job as SLURM takes it: the batch script, and the `srun` that starts its ranks.

Options have the names that sbatch and srun give them, so that a person who knows those has nothing
to learn and can look them up.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hierring._version import __version__
from hierring.errors import ConfigurationError

__all__ = [
    "JobOptions",
    "batch_script",
    "log_path",
    "rank_environment",
    "srun_command",
    "srun_sizes",
]


@dataclass(frozen=True)
class JobOptions:
    """What is asked of SLURM; None leaves it to the cluster's default.

    Attributes:
        nodes, ntasks, ntasks_per_node, cpus_per_task, gpus_per_node: numbers, at least 1.
        time: the limit, as SLURM writes it (`30`, `02:00:00`, `1-12`).
        partition, account, qos: names.
        job_name, output: of the log; `%x` is the job's name, `%j` its number.
        signal: what the ranks get before the time limit, and how many seconds before.
        requeue: whether SLURM may start the job again after a node failed or it was preempted.
        sbatch_args, srun_args: options that are passed on as they are; they win over all others.
    """

    nodes: int | None = None
    ntasks: int | None = None
    ntasks_per_node: int | None = None
    cpus_per_task: int | None = None
    gpus_per_node: int | None = None
    time: str | None = None
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    job_name: str = "hierring"
    output: str = "%x-%j.out"
    signal: str = "TERM@60"
    requeue: bool = False
    sbatch_args: tuple[str, ...] = ()
    srun_args: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, int) and not isinstance(value, bool) and value < 1:
                raise ConfigurationError(f"--{name.replace('_', '-')}={value} must be at least 1")
            if any("\n" in text for text in (value if isinstance(value, tuple) else [str(value)])):
                raise ConfigurationError(f"--{name.replace('_', '-')} must be on one line")
        nodes, ntasks = self.nodes, self.ntasks
        if ntasks is None or nodes is None:
            return
        if ntasks < nodes:
            raise ConfigurationError(
                f"{ntasks} ranks cannot be on {nodes} nodes: give --ntasks={nodes} or more, or "
                f"--nodes={ntasks}"
            )
        if self.ntasks_per_node is not None and ntasks > nodes * self.ntasks_per_node:
            raise ConfigurationError(
                f"--ntasks={ntasks} is more than {nodes} nodes with at most {self.ntasks_per_node} "
                "ranks each: raise --nodes or --ntasks-per-node, or leave --ntasks out"
            )

    @property
    def num_tasks(self) -> int | None:
        """How many ranks there will be; None if nothing says so."""
        if self.ntasks is not None:
            return self.ntasks
        if self.nodes is None and self.ntasks_per_node is None:
            return None
        return (self.nodes or 1) * (self.ntasks_per_node or 1)


def batch_script(options: JobOptions, plugin: str | None, program: Sequence[str]) -> str:
    """Write the script for sbatch; a person can save it and go on with it.

    The shell is replaced by srun: so srun's exit code is the job's, and no shell is in between that
    would put a signal off until srun has ended.
    """
    command = srun_command(options, plugin, [])
    settings = rank_environment(options.cpus_per_task)
    return "\n".join(
        [
            "#!/bin/bash",
            f"# Written by `hierring launch` {__version__}; saved, it can be edited and submitted.",
            *(f"#SBATCH {shlex.quote(line)}" for line in _directives(options)),
            "",
            *(f'export {name}="${{{name}:-{value}}}"' for name, value in settings.items()),
            f"exec {shlex.join(command)} \\",
            f"    {shlex.join(program)}",
            "",
        ]
    )


def srun_command(
    options: JobOptions, plugin: str | None, program: Sequence[str], sizes: Sequence[str] = ()
) -> list[str]:
    """Return the srun that starts the ranks.

    * A rank that fails ends the job (`--kill-on-bad-exit`): the others would wait for it.
    * Each rank is bound to the cores it was given, where the cluster binds at all.
    * `--cpus-per-task` is repeated, because srun no longer takes it from the job (since 22.05).

    Args:
        plugin: the PMI plugin, None for the cluster's default.
        sizes: `srun_sizes`, inside an allocation; in a batch script srun takes them from the job.
    """
    return [
        "srun",
        *([f"--mpi={plugin}"] if plugin else []),
        *sizes,
        "--kill-on-bad-exit=1",
        "--cpu-bind=cores",
        *([f"--cpus-per-task={options.cpus_per_task}"] if options.cpus_per_task else []),
        *options.srun_args,
        *program,
    ]


def srun_sizes(options: JobOptions) -> list[str]:
    """Return what a step needs to be smaller than its job: all numbers, none left to the job."""
    numbers = {
        "nodes": options.nodes,
        "ntasks": options.num_tasks,
        "ntasks-per-node": options.ntasks_per_node,
        "gpus-per-node": options.gpus_per_node,
    }
    return [f"--{name}={number}" for name, number in numbers.items() if number is not None]


def rank_environment(cpus_per_task: int | None) -> dict[str, str]:
    """Return variables that ranks are given where the user has not set them.

    Lines reach the log when they are printed, not when the job has been killed; and a rank uses as
    many threads as it has cores, not as the node has.
    """
    return {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": str(cpus_per_task or 1)}


def log_path(options: JobOptions, job_id: str) -> str:
    """Return where the log will be, with the patterns filled in that are known by now."""
    known = {"%x": options.job_name, "%j": job_id, "%A": job_id}
    path = options.output
    for pattern, text in known.items():
        path = path.replace(pattern, text)
    return path


def _directives(options: JobOptions) -> Iterator[str]:
    yield f"--job-name={options.job_name}"
    for name in (
        *("nodes", "ntasks", "ntasks_per_node", "cpus_per_task", "gpus_per_node"),
        *("time", "partition", "account", "qos", "output"),
    ):
        value = getattr(options, name)
        if value is not None:
            yield f"--{name.replace('_', '-')}={value}"
    yield "--open-mode=append"  # a job that is started again goes on in the same log
    yield f"--signal={options.signal}"  # to the ranks, not to the shell: no `B:`
    yield "--requeue" if options.requeue else "--no-requeue"
    yield from options.sbatch_args
