"""Judgements on the way between the nodes: interfaces, their speed and what hides them."""

from __future__ import annotations

import dataclasses

import pytest

from hierring._testing.examinations import fake_job, fake_nic, fake_view, healthy_job
from hierring.launch.doctor import check_network
from hierring.launch.doctor.findings import gather
from hierring.topology import Nic

DOCKER = Nic("docker0", "virtual", True, None, 1500, None, ("172.17.0.1",))
PORT = Nic("mlx5_0/1", "infiniband", True, 10**11, 0, 0)


def bad(check, job):
    """The one finding of a check that is not "ok"."""
    (finding,) = [found for found in gather(check(job)) if found.level != "ok"]
    return finding


def pair(first, second, **changes):
    """Two nodes of one rank each, with these interfaces."""
    views = [
        fake_view(rank, "ab"[rank], 2, nics=nics, **changes)
        for rank, nics in enumerate([first, second])
    ]
    return fake_job(views, [[0], [1]])


def alone(**changes):
    return fake_job([fake_view(**changes)])


@pytest.mark.parametrize("check", check_network.CHECKS)
def test_a_healthy_job_is_well(check):
    assert [found for found in check(healthy_job()) if found.level != "ok"] == []


def test_interfaces_are_named_with_speed_and_address():
    (found,) = check_network.interfaces(alone(nics=(fake_nic(address="10.0.0.1"), PORT)))
    assert "eth0, ethernet, 10 Gbit/s, 10.0.0.1; mlx5_0/1, infiniband, 100 Gbit/s" in found.what


UNREACHING = {
    "down": fake_nic(address="10.0.0.1", up=False),
    "loopback": fake_nic("lo", "127.0.0.1", kind="loopback"),
    "no address": fake_nic(),
    "link-local": fake_nic(address="fe80::1"),
}


@pytest.mark.parametrize("nic", UNREACHING.values(), ids=UNREACHING)
def test_no_interface_that_reaches_another_node(nic):
    found = bad(check_network.interfaces, pair((nic,), (nic,)))
    assert "no interface is up" in found.what
    assert list(check_network.interfaces(alone(nics=(nic,)))) == []


def test_slow_node():
    fast, slow = fake_nic(address="10.0.0.1"), fake_nic(address="10.0.0.2", speed_bits_per_s=10**9)
    found = bad(check_network.interfaces, pair((fast,), (slow,)))
    assert "1 Gbit/s, other nodes have up to 10 Gbit/s" in found.what
    assert found.ranks == (1,)


def test_interfaces_of_different_speed():
    def nics(rank):
        slow = fake_nic("eth1", f"10.1.0.{rank}", speed_bits_per_s=10**9)
        return (fake_nic(address=f"10.0.0.{rank}"), slow)

    found = bad(check_network.interfaces, pair(nics(0), nics(1)))
    assert found.level == "note"
    assert "MPI may also take eth1 with 1 Gbit/s" in found.what
    chosen = pair(nics(0), nics(1), environ={"FI_TCP_IFACE": "eth0"})
    assert {one.level for one in check_network.interfaces(chosen)} == {"ok"}


@pytest.mark.parametrize("variable", check_network.CHOICES)
@pytest.mark.parametrize(
    ("wanted", "state"), [("eth7", "is not on this machine"), ("eth1", "is down")]
)
def test_chosen_interface_that_does_not_serve(variable, wanted, state):
    nics = (fake_nic(address="10.0.0.1"), fake_nic("eth1", up=False))
    found = bad(check_network.choices, alone(nics=nics, environ={variable: wanted}))
    assert found.what == f"{variable} names {wanted}, which {state}"
    assert found.remedy == "It has: eth0."


@pytest.mark.parametrize("wanted", ["eth0", "10.0.0.0/16", "mlx5_0:1", "mlx5_0", "eth0,mlx5_0:1"])
def test_chosen_interface_that_serves(wanted):
    nics = (fake_nic(address="10.0.0.1"), PORT)
    found = list(check_network.choices(alone(nics=nics, environ={"UCX_NET_DEVICES": wanted})))
    assert {one.level for one in found} == {"ok"}


@pytest.mark.parametrize("wanted", ["all", "^lo,docker0", ""])
def test_choices_that_name_no_interface(wanted):
    environ = {"OMPI_MCA_btl_tcp_if_include": wanted.partition(",")[0]}
    assert list(check_network.choices(alone(environ=environ))) == []


def test_bridge_with_one_address_on_all_nodes():
    first, second = fake_nic(address="10.0.0.1"), fake_nic(address="10.0.0.2")
    found = bad(check_network.equal_addresses, pair((first, DOCKER), (second, DOCKER)))
    assert found.what == "interface docker0 has the address 172.17.0.1 on 2 nodes"
    assert "btl_tcp_if_include" in found.remedy
    assert found.ranks == (0, 1)


@pytest.mark.parametrize(
    ("wanted", "warned"),
    [("eth0", False), ("10.0.0.0/24", False), ("docker0", True), ("all", True)],
)
def test_bridge_that_mpi_is_kept_off(wanted, warned):
    first, second = fake_nic(address="10.0.0.1"), fake_nic(address="10.0.0.2")
    environ = {"OMPI_MCA_btl_tcp_if_include": wanted}
    job = pair((first, DOCKER), (second, DOCKER), environ=environ)
    assert bool(list(check_network.equal_addresses(job))) == warned


def test_containers_in_one_network_have_the_same_interfaces():
    views = [fake_view(rank, size=2, nics=(DOCKER,)) for rank in range(2)]
    assert list(check_network.equal_addresses(fake_job(views, [[0], [1]]))) == []


def test_infiniband_with_little_locked_memory():
    environ = {"RDMAV_FORK_SAFE": "1"}
    found = bad(
        check_network.infiniband, alone(nics=(PORT,), memlock_nbytes=1 << 16, environ=environ)
    )
    assert found.level == "warning"
    assert "lock 64 KiB" in found.what
    assert "ulimit -l unlimited" in found.remedy


def test_infiniband_and_fork():
    assert "fork safety" in bad(check_network.infiniband, alone(nics=(PORT,))).what


def test_without_infiniband_neither_matters():
    down = dataclasses.replace(PORT, up=False)
    assert list(check_network.infiniband(alone(nics=(down,), memlock_nbytes=1))) == []
