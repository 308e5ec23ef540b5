"""What hangs on the machine's buses: network interfaces, InfiniBand ports, GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hierring.topology.sysfs import listdir, read_int, read_text

__all__ = ["Gpu", "Nic", "gpus", "nics"]

_LOOPBACK = 772  # ARPHRD_LOOPBACK
_INFINIBAND = 32  # ARPHRD_INFINIBAND

_GPU_VENDORS = {"0x10de": "NVIDIA", "0x1002": "AMD", "0x8086": "Intel"}
# VGA, 3D and other display controllers, and processing accelerators. A server's management chip is
# a VGA controller too, but of none of the vendors above.
_GPU_CLASSES = ("0x0300", "0x0302", "0x0380", "0x1200")


@dataclass(frozen=True)
class Nic:
    """A network interface, or one InfiniBand port.

    Attributes:
        kind: "ethernet", "infiniband", "loopback" or "virtual" (no device behind it: a bridge).
        speed_bits_per_s: of the link, or None where nobody knows: it is down, or virtual.
        addresses: IP addresses, only of this machine, not of a recorded tree.
    """

    name: str
    kind: str
    up: bool
    speed_bits_per_s: int | None
    mtu: int
    numa_node: int | None
    addresses: tuple[str, ...] = ()

    @property
    def rdma(self) -> bool:
        """Whether it is a port that needs no TCP: "mlx5_0/1"; no interface has a slash."""
        return "/" in self.name


@dataclass(frozen=True)
class Gpu:
    """A GPU on the PCI bus; `model` is empty where no driver tells it."""

    address: str
    vendor: str
    model: str
    numa_node: int | None


def nics(root: Path) -> tuple[Nic, ...]:
    """All network interfaces and InfiniBand ports under `root`, by name."""
    live = root == Path("/")
    addresses, speeds = _live_nics() if live else ({}, {})
    directory = root / "sys/class/net"
    # bonding_masters is a plain file among the interfaces.
    names = [name for name in listdir(directory) if (directory / name).is_dir()]
    return (
        *(_nic(directory / n, addresses.get(n, ()), speeds.get(n, 0)) for n in names),
        *_infiniband_ports(root),
    )


def _nic(entry: Path, addresses: tuple[str, ...], live_mbit: int) -> Nic:
    """One interface; sysfs knows its speed in Mbit/s, -1 or an error while it has none."""
    hardware_type = read_int(entry / "type")
    if hardware_type == _LOOPBACK:
        kind = "loopback"
    elif hardware_type == _INFINIBAND:
        kind = "infiniband"
    else:
        kind = "ethernet" if (entry / "device").exists() else "virtual"
    mbit = read_int(entry / "speed")
    if not 0 < mbit < 0xFFFFFFFF:  # some drivers print their "unknown" as 2^32 - 1
        mbit = live_mbit
    return Nic(
        name=entry.name,
        kind=kind,
        # Loopback and tunnels stay "unknown" while they work; then the carrier tells.
        up=read_text(entry / "operstate") == "up" or read_int(entry / "carrier") == 1,
        speed_bits_per_s=mbit * 1_000_000 if mbit > 0 else None,
        mtu=read_int(entry / "mtu", 0),
        numa_node=_numa_node(entry / "device"),
        addresses=addresses,
    )


def _live_nics() -> tuple[dict[str, tuple[str, ...]], dict[str, int]]:
    """IP addresses and speeds in Mbit/s of this machine's interfaces, as psutil asks the kernel."""
    import socket

    import psutil  # 20 ms of import that only this question needs

    families = (socket.AF_INET, socket.AF_INET6)
    try:
        addresses = {
            name: tuple(a.address.partition("%")[0] for a in entries if a.family in families)
            for name, entries in psutil.net_if_addrs().items()
        }
        speeds = {name: int(stats.speed) for name, stats in psutil.net_if_stats().items()}
    except OSError:  # a sandbox without netlink or without ioctl
        return {}, {}
    return addresses, speeds


def _infiniband_ports(root: Path) -> list[Nic]:
    """One entry per port of each host channel adapter: "mlx5_0/1"."""
    found = []
    adapters = root / "sys/class/infiniband"
    for adapter in listdir(adapters):
        for port in listdir(adapters / adapter / "ports"):
            entry = adapters / adapter / "ports" / port
            rate = read_text(entry / "rate").split()  # "100 Gb/sec (4X EDR)"
            try:
                speed = int(float(rate[0]) * 1_000_000_000) or None
            except (IndexError, ValueError):
                speed = None
            link_layer = read_text(entry / "link_layer").lower()
            found.append(
                Nic(
                    name=f"{adapter}/{port}",
                    kind="ethernet" if link_layer == "ethernet" else "infiniband",
                    up=read_text(entry / "state").endswith("ACTIVE"),
                    speed_bits_per_s=speed,
                    mtu=0,
                    numa_node=_numa_node(adapters / adapter / "device"),
                )
            )
    return found


def gpus(root: Path) -> tuple[Gpu, ...]:
    """GPUs by PCI address, with the model's name where NVIDIA's driver tells it."""
    found = []
    devices = root / "sys/bus/pci/devices"
    for address in listdir(devices):
        entry = devices / address
        vendor = _GPU_VENDORS.get(read_text(entry / "vendor"))
        if vendor and read_text(entry / "class").startswith(_GPU_CLASSES):
            found.append(Gpu(address, vendor, _nvidia_model(root, address), _numa_node(entry)))
    if not found:  # a container may hide the bus and show the driver
        driver = listdir(root / "proc/driver/nvidia/gpus")
        found = [Gpu(address, "NVIDIA", _nvidia_model(root, address), None) for address in driver]
    return tuple(found)


def _nvidia_model(root: Path, address: str) -> str:
    text = read_text(root / "proc/driver/nvidia/gpus" / address / "information")
    for line in text.splitlines():
        if line.startswith("Model:"):
            return line.partition(":")[2].strip()
    return ""


def _numa_node(device: Path) -> int | None:
    number = read_int(device / "numa_node")
    return number if number >= 0 else None
