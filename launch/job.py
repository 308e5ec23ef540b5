"""`hierring launch`: one command that starts the ranks, wherever it is called.

Outside an allocation it submits a batch job, inside one it runs srun, and on a machine without
SLURM it runs mpiexec. The last two replace this process: so signals and the exit code pass.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from hierring.errors import ConfigurationError, HierringError

if TYPE_CHECKING:
    from hierring.launch.slurm import Allocation
    from hierring.launch.slurm.batch import JobOptions

    Subparsers: TypeAlias = argparse._SubParsersAction[argparse.ArgumentParser]

__all__ = ["add_parser"]

_SCRIPTS = ("cpu", "gpu", "container")  # scripts/*.sbatch
# What only sbatch uses; where it is given in vain, that is said.
_FOR_SBATCH = ("time", "partition", "account", "qos", "requeue", "wait", "sbatch_args")
# From where srun takes sizes that it is not told; the job's, or an outer step's, when ours are due.
_SIZE_VARIABLES = (
    *("SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NTASKS_PER_NODE", "SLURM_NNODES"),
    *("SLURM_JOB_NUM_NODES", "SLURM_CPUS_PER_TASK", "SLURM_GPUS_PER_NODE"),
)
_DESCRIPTION = """\
Start a program on many ranks. Outside a SLURM allocation this submits a batch job, inside one it
runs srun with the PMI that fits the installed MPI library, and on a machine without SLURM it runs
mpiexec.
"""
_EPILOG = """\
examples:
  hierring launch -N 2 --ntasks-per-node 4 --time 30 train.py --epochs 3
  hierring launch -n 5 -m my_package.train
  hierring launch -N 4 --dry-run train.py     print the batch script
Options go before the program; what comes after it is the program's. Other options of sbatch
and srun: --sbatch-arg=--constraint=ib, --srun-arg=--distribution=cyclic.
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add `hierring launch`."""
    parser = subparsers.add_parser(
        "launch",
        help="start a program on many ranks: sbatch, srun or mpiexec, whichever is right here",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="%(prog)s [OPTIONS] (SCRIPT.py | -m MODULE | PROGRAM) [ARGUMENT ...]",
        allow_abbrev=False,
    )
    sizes = parser.add_argument_group("size, as in SLURM")
    sizes.add_argument("-N", "--nodes", type=int, metavar="N")
    sizes.add_argument("-n", "--ntasks", type=int, metavar="N", help="ranks in all")
    sizes.add_argument("--ntasks-per-node", type=int, metavar="N", help="ranks on each node")
    sizes.add_argument("-c", "--cpus-per-task", type=int, metavar="N", help="cores of each rank")
    sizes.add_argument("--gpus-per-node", type=int, metavar="N")
    job = parser.add_argument_group("batch job, as in SLURM")
    job.add_argument("-t", "--time", help="limit: minutes, or [DAYS-]HH:MM:SS")
    for name in ("-p --partition", "-A --account", "-q --qos"):
        job.add_argument(*name.split(), metavar="NAME")
    job.add_argument("-J", "--job-name", metavar="NAME", help="default: the program's")
    job.add_argument("-o", "--output", default="%x-%j.out", metavar="LOG", help="%(default)s")
    job.add_argument(
        "--signal",
        default="TERM@60",
        metavar="SIGNAL@SECONDS",
        help="what all ranks get, and how long before the time limit; default %(default)s",
    )
    job.add_argument("--requeue", action="store_true", help="start again after a node failed")
    job.add_argument("--wait", action="store_true", help="wait for the end, return its exit code")
    parser.add_argument("--mpi", metavar="PLUGIN", help="PMI plugin of srun, if not the usual one")
    for tool in ("sbatch", "srun"):
        parser.add_argument(
            *(f"--{tool}-arg",),
            dest=f"{tool}_args",
            action="append",
            default=[],
            metavar="OPTION",
            help=f"an option of {tool}'s, as --{tool}-arg=--OPTION=VALUE; may be repeated",
        )
    parser.add_argument("--dry-run", action="store_true", help="print what would be run")
    parser.add_argument(
        "--script",
        choices=_SCRIPTS,
        help="print a ready batch script, to be edited, and do no more",
    )
    program = parser.add_argument_group("program")
    program.add_argument(
        "-m", dest="module", nargs=argparse.REMAINDER, help="a module, as for python -m"
    )
    program.add_argument(
        "program", nargs=argparse.REMAINDER, help="a Python script or any program, and arguments"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Start the job.

    Returns:
        The exit status: of sbatch or, with --wait, of the job. Inside an allocation and without
        SLURM it does not return.

    Raises:
        HierringError: it cannot be started here; says why, and what can.
    """
    from hierring.launch.slurm import read_allocation

    if arguments.script:
        script = Path(__file__).with_name("scripts") / f"{arguments.script}.sbatch"
        print(script.read_text(encoding="utf-8"), end="")
        return 0
    name, program = _program(arguments)
    options = _options(arguments, name)
    allocation = read_allocation()
    if allocation is not None:
        if options.cpus_per_task is None and not allocation.in_step:
            options = dataclasses.replace(options, cpus_per_task=allocation.cpus_per_task)
        command = _inside(allocation, options, arguments, program)
    elif shutil.which("sbatch"):
        return _batch(options, arguments, program)
    else:
        command = _local(options, arguments, program)
    if arguments.dry_run:
        print(shlex.join(command))
        return 0
    return _replace_this_process(command, options)


def _program(arguments: argparse.Namespace) -> tuple[str, list[str]]:
    """Return a job's name and the command of one rank; scripts and modules run with this Python."""
    if arguments.module is not None:
        if not arguments.module:
            raise ConfigurationError("-m needs the name of a module")
        return arguments.module[0], [sys.executable, "-m", *arguments.module]
    program: list[str] = arguments.program
    if program[:1] == ["--"]:
        program = program[1:]
    if not program:
        raise ConfigurationError(
            "say what to run: a Python script, -m MODULE or a program, after all options"
        )
    if program[0].endswith(".py"):
        if not os.path.isfile(program[0]):  # pathlib would raise at a name that is too long
            raise ConfigurationError(f"{program[0][:200]}: there is no such script in here")
        return Path(program[0]).stem, [sys.executable, *program]
    if shutil.which(program[0]) is None:
        raise ConfigurationError(
            f"{program[0]}: no such program on PATH (Python scripts end in .py; ./NAME is a "
            "program of the current directory)"
        )
    return Path(program[0]).name, program


def _options(arguments: argparse.Namespace, name: str) -> JobOptions:
    """Gather the options, which have the same names in both places."""
    from hierring.launch.slurm.batch import JobOptions

    given: dict[str, Any] = {
        field.name: getattr(arguments, field.name) for field in dataclasses.fields(JobOptions)
    }
    given["job_name"] = arguments.job_name or name
    given["sbatch_args"] = tuple(arguments.sbatch_args)
    given["srun_args"] = tuple(arguments.srun_args)
    return JobOptions(**given)


# ---- outside an allocation


def _batch(options: JobOptions, arguments: argparse.Namespace, program: Sequence[str]) -> int:
    """Submit a batch script, or print it."""
    from hierring.launch.slurm.batch import batch_script, log_path
    from hierring.launch.slurm.submit import submit

    _require_size(options)
    script = batch_script(options, _plugin(arguments), program)
    if arguments.dry_run:
        print(script, end="")
        return 0

    def submitted(job_id: str) -> None:
        log = Path.cwd() / log_path(options, job_id)
        print(f"submitted job {job_id}; its log: {log}", flush=True)

    return submit(script, submitted, wait=arguments.wait)


def _require_size(options: JobOptions) -> int:
    if options.num_tasks is None:
        raise ConfigurationError(
            "say how many ranks: -N NODES --ntasks-per-node RANKS, or -n RANKS"
        )
    return options.num_tasks


# ---- inside an allocation


def _inside(
    allocation: Allocation,
    options: JobOptions,
    arguments: argparse.Namespace,
    program: Sequence[str],
) -> list[str]:
    """Return the srun that starts a step."""
    from hierring.launch.slurm.batch import srun_command, srun_sizes

    if shutil.which("srun") is None:
        raise HierringError(
            f"this is SLURM job {allocation.job_id}, but srun is not on PATH: call `hierring "
            "launch` outside the container, or load SLURM's module"
        )
    if allocation.in_step and (allocation.num_tasks or 1) > 1:
        raise ConfigurationError(
            f"srun has already started {allocation.num_tasks} tasks, and each would start a job: "
            "run the program under srun itself, or `hierring launch` without srun"
        )
    for conflict in allocation.conflicts:
        _note(f"SLURM's variables contradict each other: {conflict}")
    _note_unused(arguments, "inside an allocation")
    # A shell started by srun holds what it runs on, which a step in it would wait for; and the
    # cores of that shell's one task are there for all ranks.
    overlap = ["--overlap"] if allocation.in_step else []
    return srun_command(options, _plugin(arguments), program, [*overlap, *srun_sizes(options)])


def _plugin(arguments: argparse.Namespace) -> str | None:
    """Return the PMI plugin for the MPI library of this Python."""
    from hierring.launch.mpi import loaded_library
    from hierring.launch.slurm.pmi import available_plugins, choose_plugin

    if arguments.mpi:
        return str(arguments.mpi)
    library = loaded_library()
    plugin = choose_plugin(library.vendor, available_plugins())
    if plugin is None:
        _note(f"srun's default PMI is used for {library.version[:60]}; --mpi chooses another")
    return plugin


# ---- without SLURM


def _local(options: JobOptions, arguments: argparse.Namespace, program: Sequence[str]) -> list[str]:
    """Return the mpiexec that starts the ranks on this machine."""
    from hierring.launch.mpi import Launcher, loaded_library

    ranks, nodes = _require_size(options), options.nodes or 1
    if nodes > 1:
        raise ConfigurationError(
            f"--nodes={nodes} needs SLURM, and there is no sbatch on PATH. To rehearse on virtual "
            f"nodes: `hierring cluster run --nodes {nodes} --ranks-per-node "
            f"{-(-ranks // nodes)} -- ...`; to use other machines: mpiexec with --host (Open MPI) "
            "or -hosts (MPICH, Intel MPI)"
        )
    _note_unused(arguments, "without SLURM")
    launcher = Launcher.beside()
    launcher.check_library(loaded_library())
    return list(launcher.command(ranks, program))


# ---- common


def _note_unused(arguments: argparse.Namespace, where: str) -> None:
    given = [f"--{name.replace('_', '-')}" for name in _FOR_SBATCH if getattr(arguments, name)]
    if given:
        _note(f"{', '.join(given)}: of no effect {where}")


def _note(text: str) -> None:
    print(f"hierring: note: {text}", file=sys.stderr, flush=True)


def _replace_this_process(command: Sequence[str], options: JobOptions) -> NoReturn:
    """Become the launcher."""
    from hierring.launch.slurm.batch import rank_environment

    environment = {**rank_environment(options.cpus_per_task), **os.environ}
    if options.num_tasks is not None:
        for name in _SIZE_VARIABLES:
            environment.pop(name, None)
    sys.stdout.flush()
    sys.stderr.flush()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and exec would hand that on
    os.execvpe(command[0], list(command), environment)
