"""Ranks of one machine, one hostname and one boot id, but of several /dev/shm."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
#: MPI itself takes them for one host: it must not use its own shared memory.
OPTIONS = {
    "mpich": ["-env", "MPIR_CVAR_NOLOCAL", "1"],
    "openmpi": ["--mca", "pml", "ob1", "--mca", "btl", "self,tcp", "--mca", "coll", "^xhc,sm"],
}


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="making a mount namespace needs root")
@pytest.mark.parametrize(
    ("hosts", "nodes"),
    [
        ("AABB", [[0, 1], [2, 3]]),
        ("ABAB", [[0, 2], [1, 3]]),
        ("ABBB", [[0], [1, 2, 3]]),
        ("ABC", [[0], [1], [2]]),
    ],
)
def test_who_shares_memory_is_found_out_and_not_guessed(
    launch: Callable[..., Any], tmp_path: Path, hosts: str, nodes: list[list[int]]
) -> None:
    mounts = []
    for letter in sorted(set(hosts)):
        folder = tmp_path / letter
        folder.mkdir()
        mounts.append(f"mount -t tmpfs -o size=64m tmpfs {folder}")
    script = f'{" && ".join(mounts)} && exec "$@"'
    job = launch(
        len(hosts),
        tmp_path,
        hosts,
        options=OPTIONS,
        around=("unshare", "--mount", "sh", "-c", script, "sh"),
        program=(str(HERE / "separate_shm.py"),),
    )
    job.wait(60).check()
    assert len(job.results) == len(hosts)
    for row in job.results:
        assert row["right"]
        assert row["nodes"] == nodes
    assert any("share no memory" in text for text in job.results[0]["warnings"])
