"""SLURM's variables, in the spellings that have been misread before."""

from __future__ import annotations

import time

import pytest

from hierring.errors import ConfigurationError
from hierring.launch.slurm import expand_counts, expand_nodes, read_allocation

JOB = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NODELIST": "node[0-3]",
    "SLURM_JOB_NUM_NODES": "4",
    "SLURM_NTASKS": "7",
    "SLURM_TASKS_PER_NODE": "2(x3),1",
}
STEP = JOB | {
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "node[0-1]",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_STEP_TASKS_PER_NODE": "2,1",
    "SLURM_NTASKS": "3",  # srun writes it again for its tasks
}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("alpha,beta,gamma", "alpha beta gamma"),
        ("login", "login"),
        ("linux[1,2]", "linux1 linux2"),
        ("c[1-2]", "c1 c2"),
        ("host-[001-002]", "host-001 host-002"),
        ("node[01-03,07]", "node01 node02 node03 node07"),
        ("n[8-11]", "n8 n9 n10 n11"),
        ("nodeA,nodeB[001,003],nodeC", "nodeA nodeB001 nodeB003 nodeC"),
        (
            "node1g[0010,0011],node2g0005,node3g0007",
            "node1g0010 node1g0011 node2g0005 node3g0007",
        ),
        (
            "gpu-compute-on-demand-dy-g4dnxlarge-[1-4]",
            " ".join(f"gpu-compute-on-demand-dy-g4dnxlarge-{i}" for i in range(1, 5)),
        ),
        ("r[1-2]n[3,5]-ib", "r1n3-ib r1n5-ib r2n3-ib r2n5-ib"),
        ("b2,b1,b2", "b2 b1 b2"),
        ("n[7,3]", "n7 n3"),
        ("a.site.org,b.site.org", "a.site.org b.site.org"),
    ],
)
def test_host_lists_keep_order_repeats_and_zeros(text: str, names: str) -> None:
    assert expand_nodes(text) == tuple(names.split())


def test_a_host_list_with_spaces_and_repeats() -> None:
    names = expand_nodes("compute-b24-[1-3,5-9], compute-b25-[1,4,8],compute-b25-[2-9,13]")
    assert len(names) == 20
    assert names[:4] == tuple(f"compute-b24-{i}" for i in (1, 2, 3, 5))
    assert names[8:12] == tuple(f"compute-b25-{i}" for i in (1, 4, 8, 2))


@pytest.mark.parametrize(
    "text",
    [
        *("n[1-", "n[3-1]", "n[1-]", "a&b", "@rack", "", "a,,b", "n[1]]", "n[-5]", "n[1-2-3]"),
        *("n[-99999999999-1]", "n[1,]", "n[1,2", "n]1["),
    ],
)
def test_what_is_no_host_list_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        expand_nodes(text)


@pytest.mark.parametrize(
    "text",
    [
        *("n[1-99999999999]", "a[1-9999]b[1-9999]", ",".join(["n[1-99999]"] * 9), "9(x99999999)"),
    ],
)
def test_a_damaged_range_does_not_fill_the_memory(text: str) -> None:
    with pytest.raises(ValueError, match="more than 131072 nodes"):
        (expand_counts if "x" in text else expand_nodes)(text)


@pytest.mark.parametrize("text", [",".join(["n1"] * 30_000), f"n[{'1,' * 30_000}1]"])
def test_a_long_list_is_read_in_one_pass(text: str) -> None:
    started = time.process_time()
    assert len(expand_nodes(text)) >= 30_000
    assert time.process_time() - started < 1  # it was several seconds, each comma looking ahead


def test_an_error_quotes_the_beginning_of_a_damaged_value() -> None:
    with pytest.raises(ConfigurationError, match=r"SLURM_JOB_NODELIST='&&&") as caught:
        read_allocation({"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "&" * 100_000})
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("4", (4,)),
        ("1(x2)", (1, 1)),
        ("2(x3),1", (2, 2, 2, 1)),
        ("40,8", (40, 8)),
        ("36(x2), 4", (36, 36, 4)),
    ],
)
def test_counts_per_node(text: str, counts: tuple[int, ...]) -> None:
    assert expand_counts(text) == counts


@pytest.mark.parametrize("text", ["", "x", "2(x)", "2(3)", "2x3", "-1", "1.5"])
def test_what_is_no_count_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected counts"):
        expand_counts(text)


def test_no_job_is_no_allocation() -> None:
    assert read_allocation({"SLURM_CONF": "/etc/slurm.conf"}) is None


def test_a_job() -> None:
    found = read_allocation(JOB | {"SLURM_CPUS_PER_TASK": "4"})
    assert found is not None
    assert (found.job_id, found.in_step) == ("7", False)
    assert found.nodes == ("node0", "node1", "node2", "node3")
    assert found.tasks_per_node == (2, 2, 2, 1)
    assert (found.num_tasks, found.cpus_per_task) == (7, 4)
    assert found.conflicts == ()


def test_the_step_goes_before_the_job() -> None:
    found = read_allocation(STEP)
    assert found is not None
    assert found.in_step
    assert found.nodes == ("node0", "node1")
    assert found.tasks_per_node == (2, 1)
    assert found.num_tasks == 3
    # The job's own nodes and counts are larger, as they may be.
    assert found.conflicts == ()


def test_left_over_step_variables_do_not_count_outside_a_step() -> None:
    found = read_allocation(JOB | {"SLURM_STEP_NUM_TASKS": "3"})
    assert found is not None
    assert found.num_tasks == 7


def test_the_old_names_are_known() -> None:
    old = {"SLURM_JOBID": "9", "SLURM_NODELIST": "a,b", "SLURM_NNODES": "2", "SLURM_NPROCS": "2"}
    found = read_allocation(old)
    assert found is not None
    assert (found.job_id, found.nodes, found.num_tasks) == ("9", ("a", "b"), 2)


def test_a_job_that_said_no_number_of_tasks() -> None:
    found = read_allocation({"SLURM_JOB_ID": "7", "SLURM_TASKS_PER_NODE": "64"})
    assert found is not None
    assert found.num_tasks is None  # 64 is how many would fit
    assert found.nodes == ()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"SLURM_JOB_NUM_NODES": "5"}, "SLURM_JOB_NODELIST=node[0-3] names 4 nodes, but"),
        ({"SLURM_TASKS_PER_NODE": "4(x2)"}, "SLURM_TASKS_PER_NODE=4(x2) counts 2 nodes, but"),
        ({"SLURM_NTASKS": "9"}, "adds up to 7 tasks, but SLURM_NTASKS=9"),
    ],
)
def test_contradictions_are_reported(changes: dict[str, str], said: str) -> None:
    found = read_allocation(JOB | changes)
    assert found is not None
    assert len(found.conflicts) == 1
    assert said in found.conflicts[0]


def test_room_for_more_tasks_is_no_contradiction() -> None:
    found = read_allocation(JOB | {"SLURM_NTASKS": "4"})
    assert found is not None
    assert found.conflicts == ()


def test_job_variables_that_lie_inside_a_step_are_reported_and_not_believed() -> None:
    found = read_allocation(STEP | {"SLURM_NTASKS": "64"})
    assert found is not None
    assert found.num_tasks == 3
    assert found.conflicts == (
        "SLURM_NTASKS=64, but SLURM_STEP_NUM_TASKS=3, which counts inside a step",
    )


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SLURM_JOB_NODELIST", "node[0-"),
        ("SLURM_TASKS_PER_NODE", "two"),
        ("SLURM_NTASKS", "0"),
        ("SLURM_CPUS_PER_TASK", "all"),
    ],
)
def test_a_variable_that_slurm_would_not_write_is_named(variable: str, value: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_allocation(JOB | {variable: value})
    assert f"{variable}={value!r}" in str(caught.value)
