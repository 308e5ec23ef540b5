"""Options and the list of rows they stand for."""

from __future__ import annotations

import argparse
import subprocess
import sys

import pytest

from hierring.benchmarks.options import Options, add_arguments
from hierring.benchmarks.plan import Point, chosen, plan
from hierring.config import Config
from hierring.dtypes import DType
from hierring.errors import ConfigurationError


def options(*words):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return Options.of(parser.parse_args(words))


def test_sizes_grow_by_a_factor_or_a_step():
    assert options("-b", "8", "-e", "16M", "-f", "8").sizes[-1] == 16 * 2**20
    assert options("-b", "1K", "-e", "64K", "-f", "4").sizes == (1024, 4096, 16384, 65536)
    assert options("-b", "1K", "-e", "3K", "-i", "1K").sizes == (1024, 2048, 3072)
    assert options("-b", "5", "-e", "5").sizes == (5,)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("-b", "0"), "-b"),
        (("-b", "2K", "-e", "1K"), "-b"),
        (("-b", "many"), "-b"),
        (("-f", "1"), "-f"),
        (("-i", "0"), "-i"),
        (("-n", "0"), "-n"),
        (("-w", "-1"), "-w"),
        (("-n", "3.5"), "-n"),
        (("-c", "yes"), "-c"),
        (("-d", "float31"), "-d"),
        (("-o", "sum,mean"), "-o"),
        (("--collectives", "alltoall"), "--collectives"),
        (("--algorithms", "auto,fast"), "--algorithms"),
        (("--peers", "nccl"), "--peers"),
        (("--leaders", "0"), "--leaders"),
        (("--cell-bytes", "big"), "--cell-bytes"),
        (("--max-seconds", "-1"), "--max-seconds"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(words, name):
    # argparse would take "-1" for an option.
    joined = [f"{words[0]}={words[1]}"] if words[0].startswith("--") else ["".join(words)]
    with pytest.raises(ConfigurationError, match=name):
        options(*joined)


def test_nicknames_and_repeats():
    found = options("-d", "float,half,float32", "--peers", "mpi,mpi")
    assert found.dtypes == (DType.FLOAT32, DType.FLOAT16)
    assert found.peers == ("mpi",)


def test_every_pair_of_type_and_operation_is_measured_or_explained():
    found = plan(options("-b", "8", "-e", "8", "-d", "float32,int32", "-o", "sum,avg,bxor"), 2)
    assert [(str(one.dtype), one.op) for one in found.points] == [
        ("float32", "sum"), ("float32", "avg"), ("int32", "sum"), ("int32", "bxor"),
    ]  # fmt: skip
    assert [what for what, _ in found.refused] == ["float32 bxor", "int32 avg"]
    assert all("not supported" in why for _, why in found.refused)


def test_blocks_divide_among_ranks_and_nothing_is_reduced_by_a_gather():
    found = plan(options("-b", "8", "-e", "8", "--collectives", "allgather,reduce_scatter"), 3)
    assert [(one.collective, one.op, one.count) for one in found.points] == [
        ("allgather", "none", 3), ("reduce_scatter", "sum", 3),
    ]  # fmt: skip


def test_a_tensor_has_an_element():
    found = plan(options("-b", "1", "-e", "8", "-f", "2", "-d", "float64"), 2)
    assert [(one.count, one.nbytes) for one in found.points] == [(1, 8)]


@pytest.mark.parametrize(
    ("nbytes", "algorithm", "nodes", "expected"),
    [
        (4096, "auto", 1, "small"),
        (4096, "hierarchical", 2, "small"),
        (4100, "auto", 1, "staged"),
        (4100, "auto", 2, "staged, exchange"),
        (32768, "auto", 3, "staged, doubling"),
        (32772, "auto", 3, "staged, ring"),
        (8, "ring", 2, "flat ring"),
        (8, "tree:0-4K;hierarchical:4K-max", 2, "flat tree"),
        (8192, "tree:0-4K;hierarchical:4K-max", 2, "staged, exchange"),
    ],
)
def test_what_runs(nbytes, algorithm, nodes, expected):
    point = Point("allreduce", DType.FLOAT32, "sum", nbytes // 4)
    assert chosen(point, algorithm, Config(), nodes) == expected


def test_what_runs_depends_on_the_type_that_travels():
    """avg of float16 travels as float32, twice as long."""
    point = Point("allreduce", DType.FLOAT16, "avg", 12_000)
    assert chosen(point, "auto", Config(), 3) == "staged, ring"
    assert chosen(Point("allreduce", DType.FLOAT16, "sum", 12_000), "auto", Config(), 3) == (
        "staged, doubling"
    )


@pytest.mark.slow
def test_help_needs_neither_mpi_nor_numpy():
    code = (
        "import sys, hierring.cli\n"
        "try: hierring.cli.main(['bench', '--help'])\n"
        "except SystemExit: pass\n"
        "assert not {'mpi4py.MPI', 'torch', 'numpy'} & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "--algorithms" in done.stdout
