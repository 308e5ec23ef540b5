"""Network interfaces, InfiniBand ports and GPUs, read from trees that the tests write."""

from __future__ import annotations

from hierring._testing.machines import write_tree
from hierring.topology.hardware import local_hardware


def test_nics_with_and_without_a_speed(tmp_path):
    net = "sys/class/net"
    tree = {f"{net}/bonding_masters": "bond0"}  # a file, not an interface
    for name, speed, state, kind in [
        ("eth0", "100000", "up", "1"),
        ("eth1", "-1", "down", "1"),
        ("eth2", "4294967295", "up", "1"),
        ("ib0", "200000", "up", "32"),
        ("lo", "", "unknown", "772"),
        ("veth9", "10000", "up", "1"),
    ]:
        entry = f"{net}/{name}"
        tree |= {f"{entry}/operstate": state, f"{entry}/type": kind, f"{entry}/mtu": "9000"}
        if speed:
            tree[f"{entry}/speed"] = speed
        if name.startswith(("eth", "ib")):
            tree[f"{entry}/device/numa_node"] = "-1" if name == "eth1" else "1"
    tree[f"{net}/lo/carrier"] = "1"
    found = {nic.name: nic for nic in local_hardware(write_tree(tmp_path, tree), {}).nics}
    assert list(found) == ["eth0", "eth1", "eth2", "ib0", "lo", "veth9"]
    speeds = {name: nic.speed_bits_per_s for name, nic in found.items()}
    assert speeds == {
        "eth0": 100_000_000_000,
        "eth1": None,
        "eth2": None,
        "ib0": 200_000_000_000,
        "lo": None,
        "veth9": 10_000_000_000,
    }
    assert {name: nic.up for name, nic in found.items()} == {
        "eth0": True,
        "eth1": False,
        "eth2": True,
        "ib0": True,
        "lo": True,
        "veth9": True,
    }
    kinds = {name: nic.kind for name, nic in found.items()}
    assert kinds["eth0"] == "ethernet"
    assert kinds["ib0"] == "infiniband"
    assert kinds["lo"] == "loopback"
    assert kinds["veth9"] == "virtual"
    assert (found["eth0"].numa_node, found["eth1"].numa_node, found["eth0"].mtu) == (1, None, 9000)


def test_infiniband_ports(tmp_path):
    ports = "sys/class/infiniband/mlx5_0/ports"
    tree = {
        f"{ports}/1/rate": "100 Gb/sec (4X EDR)",
        f"{ports}/1/state": "4: ACTIVE",
        f"{ports}/1/link_layer": "InfiniBand",
        f"{ports}/2/rate": "2.5 Gb/sec (1X SDR)",
        f"{ports}/2/state": "1: DOWN",
        f"{ports}/2/link_layer": "Ethernet",
        "sys/class/infiniband/mlx5_0/device/numa_node": "3",
    }
    first, second = local_hardware(write_tree(tmp_path, tree), {}).nics
    assert (first.name, first.kind, first.up, first.numa_node) == (
        "mlx5_0/1",
        "infiniband",
        True,
        3,
    )
    assert first.speed_bits_per_s == 100_000_000_000
    assert (second.kind, second.up, second.speed_bits_per_s) == ("ethernet", False, 2_500_000_000)


def test_gpus_but_not_the_management_chip(tmp_path):
    pci = "sys/bus/pci/devices"
    tree = {
        f"{pci}/0000:03:00.0/class": "0x030000",
        f"{pci}/0000:03:00.0/vendor": "0x1a03",  # the server's management chip
        f"{pci}/0000:17:00.0/class": "0x030200",
        f"{pci}/0000:17:00.0/vendor": "0x10de",
        f"{pci}/0000:17:00.0/numa_node": "0",
        f"{pci}/0000:65:00.0/class": "0x038000",
        f"{pci}/0000:65:00.0/vendor": "0x1002",
        f"{pci}/0000:00:1f.0/class": "0x060100",
        f"{pci}/0000:00:1f.0/vendor": "0x8086",
        "proc/driver/nvidia/gpus/0000:17:00.0/information": "Model: \t NVIDIA H200\nIRQ: 1",
    }
    found = local_hardware(write_tree(tmp_path, tree), {}).gpus
    assert [(g.address, g.vendor, g.model, g.numa_node) for g in found] == [
        ("0000:17:00.0", "NVIDIA", "NVIDIA H200", 0),
        ("0000:65:00.0", "AMD", "", None),
    ]


def test_gpu_of_a_container_that_hides_the_bus(tmp_path):
    tree = {"proc/driver/nvidia/gpus/0000:17:00.0/information": "Model: NVIDIA A100"}
    (found,) = local_hardware(write_tree(tmp_path, tree), {}).gpus
    assert (found.address, found.vendor, found.model) == ("0000:17:00.0", "NVIDIA", "NVIDIA A100")
