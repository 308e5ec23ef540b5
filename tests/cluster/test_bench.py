"""`hierring bench` as a whole job: its figures agree with each other, and faults are found."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from hierring.benchmarks.result import Result, load

FAULTY = str(Path(__file__).resolve().parent / "bench_with_faults.py")
BENCH = ("-m", "hierring", "bench")
#: Small, and one size of each way to run.
SHORT = ("-b", "256", "-e", "256K", "-f", "32", "-n", "4", "-w", "1")
LIMIT_S = 100


@pytest.fixture
def run(launch, tmp_path):
    """Run a bench job to its end; returns the job and what it wrote."""

    def start(size, *options, program=BENCH, nodes=None, code=0):
        folder = tmp_path / f"out{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        files = ("--json", folder / "a.json", "--csv", folder / "a.csv")
        job = launch(size, *options, *files, nodes=nodes, program=program).wait(LIMIT_S)
        assert (job.code == 0) == (code == 0), job.stdout[-3000:] + job.stderr[-3000:]
        return job, load(folder / "a.json"), folder / "a.csv"

    return start


def faulty(kind, rank):
    return (FAULTY, kind, str(rank))


def phases_add_up(result: Result) -> None:
    for case in result.cases:
        for rank in case.ranks:
            if rank.phases is not None:
                parts = dataclasses.asdict(rank.phases)
                total = parts.pop("total")
                assert sum(parts.values()) == pytest.approx(total, rel=1e-9)
                # By two clocks: the library's, and the benchmark's around it.
                assert total <= max(case.times.max, rank.median) * 1.05


def bytes_are_those_of_theory(result: Result) -> None:
    for case in result.cases:
        if case.bytes is None:
            continue
        found = dataclasses.asdict(case.bytes)
        for name in ("between_nodes", "mpi", "shared_memory"):
            if found[f"{name}_theory"] is not None:
                assert found[name] == found[f"{name}_theory"], (case.name, case.nbytes, name)


def test_four_ranks_on_two_nodes(run, no_leftovers):
    """All algorithms, MPI beside them; every figure agrees with the others."""
    options = ("--algorithms", "auto,ring,tree,naive", "--peers", "mpi", *SHORT)
    job, result, table = run(4, *options, nodes="2x2")
    assert (result.topology["num_nodes"], result.topology["simulated"]) == (2, True)
    assert (result.wrong, result.complete) == (0, True)
    assert len(result.cases) == 3 * 5 * 2
    for case in result.cases:
        assert case.wrong == 0
        assert case.busbw / case.algbw == pytest.approx(1.5, rel=1e-12)
        assert case.algbw * 1e9 == pytest.approx(case.nbytes / case.times.median, rel=1e-12)
        assert case.times.min <= case.times.median <= case.times.p99 <= case.times.max
        assert case.iterations == 4
        assert case.bounds.memory > 0
    assert {case.chosen for case in result.cases if case.algorithm == "auto"} == {
        "small", "staged, exchange",
    }  # fmt: skip
    phases_add_up(result)
    bytes_are_those_of_theory(result)

    with table.open(newline="") as file:
        assert [float(row["median_s"]) for row in csv.DictReader(file)] == [
            case.times.median for case in result.cases
        ]
    for case in result.cases:
        assert f"{case.times.median * 1e6:.2f}" in job.stdout
    assert "\r" not in job.stdout + job.stderr, "a progress bar is for terminals"


def test_one_rank_alone(tmp_path):
    """Without any launcher."""
    done = subprocess.run(
        [sys.executable, "-P", *BENCH, *SHORT, "--json", tmp_path / "a.json"],
        capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = load(tmp_path / "a.json")
    assert {(case.busbw, case.intra_busbw, case.inter_busbw) for case in result.cases} == {
        (0.0, None, None)
    }
    assert result.stragglers == ()
    phases_add_up(result)


def test_other_collectives_types_and_operations(run):
    options = (
        "--collectives", "allreduce,reduce_scatter,allgather,broadcast", "--peers", "mpi",
        "-d", "float16,bfloat16,int32", "-o", "sum,avg,bxor", "-b", "128K", "-e", "128K",
        "-n", "2", "-w", "0",
    )  # fmt: skip
    _, result, _ = run(4, *options, nodes="3,1")
    assert result.wrong == 0
    measured = {(case.collective, case.dtype, case.op) for case in result.cases}
    assert {("allreduce", "bfloat16", "avg"), ("reduce_scatter", "int32", "bxor")} <= measured
    assert {("allgather", "float16", "none"), ("broadcast", "bfloat16", "none")} <= measured
    why = {one.what: one.why for one in result.skipped}
    assert why["int32 avg"].startswith("op='avg' is not supported for int32")
    assert why["mpi allreduce float16 sum in place"] == "MPI can't reduce float16"
    bytes_are_those_of_theory(result)
    phases_add_up(result)


def test_settings_are_compared(run):
    options = ("--leaders", "1,2", "--cell-bytes", "16K,64K", "-b", "256K", "-e", "256K", "-n", "3")
    _, result, _ = run(4, *options, nodes="2x2")
    assert {(case.leaders, case.cell_bytes) for case in result.cases} == {
        (1, 16384), (1, 65536), (2, 16384), (2, 65536),
    }  # fmt: skip
    references = [case for case in result.cases if case.ratio is None]
    assert {(case.leaders, case.cell_bytes) for case in references} == {(1, 16384)}
    bytes_are_those_of_theory(result)


def test_gloo_takes_part(run):
    pytest.importorskip("torch")
    _, result, _ = run(2, "--peers", "gloo,mpi", "-b", "8", "-e", "64K", "-f", "8192", "-n", "3")
    assert {case.library for case in result.cases} == {"hierring", "mpi", "gloo"}
    assert all(case.in_place for case in result.cases if case.library == "gloo")
    assert "gloo works in place only" in {one.why for one in result.skipped}
    assert result.wrong == 0


def test_a_wrong_element_makes_it_fail(run):
    job, result, _ = run(4, *SHORT, program=faulty("corrupt", 2), nodes="2x2", code=1)
    assert result.wrong == 1
    assert sum(case.wrong for case in result.cases) == 1
    assert "# wrong elements: 1" in job.stdout


def test_a_late_rank_is_named(run):
    options = ("-b", "64K", "-e", "64K", "-n", "5", "-w", "1")
    job, result, _ = run(4, *options, program=faulty("late", 2), nodes="2x2")
    assert all(case.times.min >= 0.05 for case in result.cases)
    (found,) = (one for one in result.stragglers if one.kind == "rank")
    assert (found.members, found.stands_out) == ((2,), True)
    assert found.value >= 0.04
    assert "# slow: rank 2 (node 1)" in job.stdout


def test_a_stopped_rank_is_named(run):
    options = ("-b", "64K", "-e", "64K", "-n", "5", "-w", "1")
    _, result, _ = run(4, *options, program=faulty("stopped", 1), nodes="2x2")
    assert max(case.times.max for case in result.cases) >= 0.4
    (found,) = (one for one in result.stragglers if one.kind == "rank")
    assert (found.members, found.stands_out) == ((1,), True)


def test_a_rank_that_never_comes_ends_the_job(launch, no_leftovers):
    job = launch(
        4, *SHORT, program=faulty("absent", 3), nodes="2x2", settings={"HIERRING_TIMEOUT_S": "2"}
    ).wait(60)
    assert job.code != 0
    assert "timed out" in job.stderr
    assert "rank 3" in job.stderr


def test_the_configured_algorithm_is_measured(launch, tmp_path):
    settings = {"HIERRING_ALGORITHM": "tree", "HIERRING_WIRE_DTYPE": "float16"}
    file = tmp_path / "a.json"
    options = ("-b", "64K", "-e", "64K", "-n", "2", "-w", "0", "-o", "sum,avg", "--json", file)
    launch(3, *BENCH, *options, program=(), nodes="2,1", settings=settings).wait(LIMIT_S).check()
    result = load(file)
    assert {case.chosen for case in result.cases} == {"flat tree"}
    assert result.settings.config["wire_dtype"] == "float16"
    assert result.wrong == 0
    bytes_are_those_of_theory(result)


def test_time_that_is_up(run):
    options = ("-b", "64K", "-e", "1M", "-f", "2", "-n", "1000000", "--max-seconds", "2")
    job, result, _ = run(2, *options)
    assert not result.complete
    assert result.cases
    assert "cut short by --max-seconds" in job.stdout
    assert job.seconds < 60


@pytest.mark.parametrize(
    ("variable", "job"), [("SLURM_NTASKS", {}), ("SLURM_STEP_NUM_TASKS", {"SLURM_STEP_ID": "0"})]
)
def test_one_process_of_a_job_for_two_is_refused(variable, job):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PMI", "OMPI", "SLURM"))}
    done = subprocess.run(
        [sys.executable, "-P", *BENCH, *SHORT], env=kept | job | {variable: "2"},
        capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stdout == ""
    assert f"{variable}=2" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_place_that_is_not_there_is_refused_before_measuring(launch, tmp_path):
    job = launch(2, *BENCH, "--json", tmp_path / "absent" / "a.json", program=()).wait(LIMIT_S)
    assert job.code != 0
    assert "# allreduce" not in job.stdout
    assert job.stderr.count("there is no such directory") == 1


def test_sigterm_to_a_comparison_ends_its_job() -> None:
    program = [sys.executable, "-P", "-m", "hierring.benchmarks.peers", "--python", sys.executable]
    endless = ("--ranks", "2", "--sizes", "8,8", "--peers", "mpi", "--calls", "100000000")
    running = psutil.Popen([*program, *endless], stdin=subprocess.DEVNULL)
    family: list[psutil.Process] = []
    try:
        family = wait_for_ranks(running)
        running.terminate()
        assert running.wait(LIMIT_S) == 128 + signal.SIGTERM
        _, alive = psutil.wait_procs(family, timeout=10)
        assert not alive
    finally:
        for process in (running, *family):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def wait_for_ranks(running: psutil.Popen) -> list[psutil.Process]:
    """All processes of the comparison, once two of them run `hierring bench`."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        with contextlib.suppress(psutil.NoSuchProcess):
            family = running.children(recursive=True)
            lines = [process.cmdline() for process in family]
            if sum("bench" in line and "-n" not in line[:3] for line in lines) >= 2:
                return family
        assert running.poll() is None, "it ended by itself"
        time.sleep(0.05)
    pytest.fail("no ranks in time")
