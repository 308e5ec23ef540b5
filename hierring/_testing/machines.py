"""Made-up machines: facts of ranks that never ran, and files of hardware nobody owns."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from hierring.topology import Facts, Hardware

__all__ = ["fake_facts", "write_tree"]

_HARDWARE = Hardware(
    cpus="0-3",
    num_cores=4,
    num_sockets=1,
    memory_nbytes=1 << 34,
    cpu_quota=None,
    memory_limit_nbytes=None,
    numa_nodes=(),
    caches=(),
    nics=(),
    gpus=(),
    switch_path=(),
)


def fake_facts(rank: int, host: str = "a", **changes: object) -> Facts:
    """Facts of a rank bound to CPU `rank` of a machine with its own kernel and /dev/shm.

    Args:
        rank: its rank.
        host: name of the machine, from which boot id and /dev/shm device follow.
        changes: fields of Facts, or of its Hardware, that differ.
    """
    facts = Facts(
        rank=rank,
        pid=1000 + rank,
        hostname=host,
        boot_id=f"boot-{host}",
        shm_device=sum(host.encode()),
        shm_nbytes=1 << 33,
        shm_free_nbytes=1 << 32,
        pid_namespace=1,
        uid=1,
        cpus=(rank,),
        usable_cpus=1,
        hardware=_HARDWARE,
    )
    own = {name: value for name, value in changes.items() if hasattr(facts, name)}
    below = {name: value for name, value in changes.items() if name not in own}
    hardware = dataclasses.replace(_HARDWARE, **below)  # type: ignore[arg-type]
    return dataclasses.replace(facts, hardware=hardware, **own)  # type: ignore[arg-type]


def write_tree(root: Path, files: dict[str, str]) -> Path:
    """Write files of the given paths and texts under `root`, as the kernel would; returns it."""
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text + "\n")
    return root
