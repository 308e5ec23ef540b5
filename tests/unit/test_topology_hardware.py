"""Hardware facts, read from trees of kernel files that the tests write."""

from __future__ import annotations

import pytest

from hierring._testing.machines import write_tree
from hierring.topology import hardware as hardware_module
from hierring.topology import local_facts
from hierring.topology.hardware import local_hardware, switch_path
from hierring.topology.sysfs import format_ranges, parse_ranges

CPU = "sys/devices/system/cpu"
NUMA = "sys/devices/system/node"


def cpu_files(
    number: int, core: str, package: int, caches: list[tuple[str, ...]]
) -> dict[str, str]:
    """One CPU: its siblings, its socket and (level, type, size, sharers) of each cache."""
    base = f"{CPU}/cpu{number}"
    files = {
        f"{base}/topology/thread_siblings_list": core,
        f"{base}/topology/physical_package_id": str(package),
    }
    for index, (level, kind, size, sharers) in enumerate(caches):
        entry = f"{base}/cache/index{index}"
        files |= {
            f"{entry}/level": level,
            f"{entry}/type": kind,
            f"{entry}/size": size,
            f"{entry}/shared_cpu_list": sharers,
            f"{entry}/coherency_line_size": "64",
        }
    return files


def small_machine() -> dict[str, str]:
    """Two CPUs on one NUMA node."""
    files = {
        f"{CPU}/online": "0-1",
        f"{NUMA}/node0/cpulist": "0-1",
        f"{NUMA}/node0/distance": "10",
        f"{NUMA}/node0/meminfo": "Node 0 MemTotal:  1024 kB\nNode 0 MemFree: 1 kB",
        "proc/meminfo": "MemTotal:        1024 kB\nMemFree: 1 kB",
    }
    for cpu in (0, 1):
        files |= cpu_files(cpu, str(cpu), 0, [("1", "Data", "32K", str(cpu))])
    return files


def server() -> dict[str, str]:
    """Two sockets of two NUMA nodes of two cores of two threads: CPUs c, c+8 share core c."""
    files = {f"{CPU}/online": "0-15", "proc/meminfo": "MemTotal: 67108864 kB"}
    for cpu in range(16):
        core = cpu % 8
        threads = f"{core},{core + 8}"
        socket = core // 4
        llc = f"{socket * 4}-{socket * 4 + 3},{socket * 4 + 8}-{socket * 4 + 11}"
        caches = [
            ("1", "Data", "48K", threads),
            ("1", "Instruction", "32K", threads),
            ("2", "Unified", "1M", threads),
            ("3", "Unified", "32M", llc),
        ]
        files |= cpu_files(cpu, threads, socket, caches)
    for node in range(4):
        files |= {
            f"{NUMA}/node{node}/cpulist": format_ranges(2 * node + c for c in (0, 1, 8, 9)),
            f"{NUMA}/node{node}/distance": " ".join("10" if n == node else "21" for n in range(4)),
            f"{NUMA}/node{node}/meminfo": f"Node {node} MemTotal: 16777216 kB",
        }
    return files


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("", ()),
        ("0", (0,)),
        ("0-3,8", (0, 1, 2, 3, 8)),
        ("2,0-1", (0, 1, 2)),
        ("3-1,x,-2", ()),
        ("0\n", (0,)),
    ],
)
def test_range_lists_are_parsed(text, numbers):
    assert parse_ranges(text) == numbers


@pytest.mark.parametrize(
    ("numbers", "text"), [((), ""), ((5,), "5"), ((3, 0, 1, 1, 2, 8), "0-3,8"), ((1, 3), "1,3")]
)
def test_range_lists_are_written(numbers, text):
    assert format_ranges(numbers) == text
    assert parse_ranges(text) == tuple(sorted(set(numbers)))


def test_small_machine(tmp_path):
    hardware = local_hardware(write_tree(tmp_path, small_machine()), {})
    assert (hardware.cpus, hardware.num_cores, hardware.num_sockets) == ("0-1", 2, 1)
    assert hardware.memory_nbytes == 1 << 20
    assert [(n.number, n.cpus, n.memory_nbytes, n.distances) for n in hardware.numa_nodes] == [
        (0, "0-1", 1 << 20, (10,))
    ]
    assert [(c.level, c.kind, c.nbytes, c.groups) for c in hardware.caches] == [
        (1, "data", 32768, ("0", "1"))
    ]
    assert hardware.cpu_quota is None
    assert hardware.memory_limit_nbytes is None
    assert hardware.nics == hardware.gpus == ()


def test_two_sockets_of_two_numa_nodes(tmp_path):
    hardware = local_hardware(write_tree(tmp_path, server()), {})
    assert (hardware.cpus, hardware.num_cores, hardware.num_sockets) == ("0-15", 8, 2)
    assert [n.cpus for n in hardware.numa_nodes] == [
        "0-1,8-9",
        "2-3,10-11",
        "4-5,12-13",
        "6-7,14-15",
    ]
    assert hardware.numa_nodes[2].distances == (21, 21, 10, 21)
    found = {(c.level, c.kind): (c.nbytes, len(c.groups)) for c in hardware.caches}
    assert found == {
        (1, "data"): (48 << 10, 8),
        (1, "instruction"): (32 << 10, 8),
        (2, "unified"): (1 << 20, 8),
        (3, "unified"): (32 << 20, 2),
    }
    assert hardware.caches[-1].groups == ("0-3,8-11", "4-7,12-15")
    assert hardware.caches[-1].line_nbytes == 64


def test_numa_nodes_are_ordered_by_number_not_by_text(tmp_path):
    tree = {f"{NUMA}/node{n}/cpulist": str(n) for n in (0, 2, 10)}
    assert [n.number for n in local_hardware(write_tree(tmp_path, tree), {}).numa_nodes] == [
        0,
        2,
        10,
    ]


def test_machine_that_shows_nothing(tmp_path):
    hardware = local_hardware(tmp_path, {})
    assert hardware.cpus == ""
    assert (hardware.num_cores, hardware.num_sockets, hardware.memory_nbytes) == (0, 0, 0)
    assert hardware.numa_nodes == hardware.caches == hardware.nics == hardware.gpus == ()


def test_cpus_without_an_online_file(tmp_path):
    tree = {f"{CPU}/cpu{n}/uevent": "" for n in (0, 1, 2)} | {f"{CPU}/cpufreq/uevent": ""}
    assert local_hardware(write_tree(tmp_path, tree), {}).cpus == "0-2"


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "150000 100000"}, 1.5),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "max 100000"}, None),
        (
            {
                "proc/self/cgroup": "0::/job/task",
                "sys/fs/cgroup/job/task/cpu.max": "max 100000",
                "sys/fs/cgroup/job/cpu.max": "400000 100000",
            },
            4.0,
        ),
        (
            {
                "proc/self/cgroup": "0::/job/task",
                "sys/fs/cgroup/job/task/cpu.max": "200000 100000",
                "sys/fs/cgroup/job/cpu.max": "400000 100000",
            },
            2.0,
        ),
        # A container: the path is the one outside, the mount is its own cgroup.
        ({"proc/self/cgroup": "0::/outside/x", "sys/fs/cgroup/cpu.max": "50000 100000"}, 0.5),
        (
            {
                "proc/self/cgroup": "3:cpu,cpuacct:/job",
                "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us": "300000",
                "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us": "100000",
            },
            3.0,
        ),
        (
            {
                "proc/self/cgroup": "3:cpu,cpuacct:/job",
                "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000",
            },
            None,
        ),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "nonsense"}, None),
    ],
)
def test_cpu_quota(tmp_path, files, quota):
    assert local_hardware(write_tree(tmp_path, files), {}).cpu_quota == quota


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": "max"}, None),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": "1048576"}, 1 << 20),
        (
            {
                "proc/self/cgroup": "9:name=systemd:/\n4:memory:/job",
                "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "9223372036854771712",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "4096",
            },
            4096,
        ),
        (
            {
                "proc/self/cgroup": "4:memory:/",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
            },
            None,
        ),
    ],
)
def test_memory_limit(tmp_path, files, limit):
    assert local_hardware(write_tree(tmp_path, files), {}).memory_limit_nbytes == limit


@pytest.mark.parametrize(
    ("address", "pattern", "path"),
    [
        (None, None, ()),
        ("node7", "node", ()),
        ("s0.s4.node7", "switch.switch.node", ("s0", "s4")),
        ("s0.s4.node7.example.org", "switch.switch.node", ("s0", "s4")),
        ("s0.node7", None, ("s0",)),
        ("s[0-1].s4.node7", "switch.switch.node", ("s[0-1]", "s4")),
        ("s0", "switch.switch.node", ()),
    ],
)
def test_switch_path_from_slurm(address, pattern, path):
    environ = {"SLURM_TOPOLOGY_ADDR": address, "SLURM_TOPOLOGY_ADDR_PATTERN": pattern}
    assert switch_path({k: v for k, v in environ.items() if v is not None}) == path


@pytest.mark.slow
def test_each_cache_of_a_large_machine_is_read_once(tmp_path, monkeypatch):
    """256 CPUs in 32 L3 groups: 800 caches; reading each for every CPU would cost 1024 looks."""
    tree = {f"{CPU}/online": "0-255"}
    for cpu in range(256):
        own = str(cpu)
        llc = f"{cpu // 8 * 8}-{cpu // 8 * 8 + 7}"
        sizes = [("1", "Data", "32K", own), ("1", "Instruction", "32K", own)]
        tree |= cpu_files(
            cpu, own, 0, [*sizes, ("2", "Unified", "1M", own), ("3", "Unified", "32M", llc)]
        )
    write_tree(tmp_path, tree)
    looks = []
    real = hardware_module.read_text
    monkeypatch.setattr(hardware_module, "read_text", lambda p: looks.append(str(p)) or real(p))
    facts = local_facts(0, tmp_path)
    assert len(facts.hardware.caches[-1].groups) == 32
    assert sum(look.endswith("shared_cpu_list") for look in looks) == 3 * 256 + 32
