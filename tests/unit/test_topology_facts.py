"""The facts of a rank: on this machine, and where little or nothing is visible."""

from __future__ import annotations

import pickle
from pathlib import Path

from hierring._testing.machines import write_tree
from hierring.topology import Facts, local_facts
from hierring.topology.sysfs import parse_ranges


def test_facts_of_this_process():
    facts = local_facts(3, environ={"SLURM_CPUS_PER_TASK": "1"}, mpi_node=2)
    assert (facts.rank, facts.mpi_node, facts.usable_cpus) == (3, 2, 1)
    assert facts.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert facts.shm_device == Path("/dev/shm").stat().st_dev
    assert 0 < facts.shm_free_nbytes <= facts.shm_nbytes
    assert set(facts.cpus) <= set(parse_ranges(facts.hardware.cpus))
    assert "lo" in [nic.name for nic in facts.hardware.nics]


def test_facts_are_small_and_picklable():
    facts = local_facts(0)
    carried = pickle.dumps(facts)
    assert pickle.loads(carried) == facts
    assert len(carried) < 16384


def test_facts_under_a_root(tmp_path):
    tree = {"proc/sys/kernel/random/boot_id": "b00t", "proc/meminfo": "MemTotal: 1024 kB"}
    (write_tree(tmp_path, tree) / "dev/shm").mkdir(parents=True)
    facts = local_facts(0, tmp_path)
    assert facts.boot_id == "b00t"
    assert facts.shm_device == (tmp_path / "dev/shm").stat().st_dev
    assert facts.hardware.memory_nbytes == 1 << 20


def test_facts_where_nothing_is_visible(tmp_path):
    facts = local_facts(0, tmp_path)
    assert isinstance(facts, Facts)
    assert (facts.boot_id, facts.shm_device, facts.shm_nbytes, facts.pid_namespace) == (
        "",
        -1,
        0,
        0,
    )
