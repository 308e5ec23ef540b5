"""Launchers: which one started a process, and which ones a user would call."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hierring.launch.doctor import launchers

CLAIMS = {
    "alone": ({}, None),
    "mpiexec of Open MPI": (
        {"OMPI_COMM_WORLD_RANK": "3", "PMIX_RANK": "3"},
        ("OMPI_COMM_WORLD_RANK", 3),
    ),
    "mpiexec inside a batch script": ({"SLURM_PROCID": "0", "PMI_RANK": "2"}, ("PMI_RANK", 2)),
    "srun": ({"SLURM_PROCID": "5"}, ("SLURM_PROCID", 5)),
    "no number": ({"PMI_RANK": "x", "RANK": "1"}, ("RANK", 1)),
}


@pytest.mark.parametrize(("environ", "claim"), CLAIMS.values(), ids=CLAIMS)
def test_claimed_rank(environ, claim):
    assert launchers.claimed_rank(environ) == claim


def test_environment_without_the_launcher():
    kept = {"PATH": "/bin", "OMPI_MCA_btl": "tcp,self", "HIERRING_LEADERS": "2", "RANK": "0"}
    taken = {"PMI_FD": "9", "PMIX_RANK": "0", "OMPI_COMM_WORLD_SIZE": "4", "SLURM_JOB_ID": "7"}
    assert launchers.without_launcher(kept | taken) == kept


def write_mpiexec(folder: Path, answer: str) -> Path:
    """An mpiexec that says this about its version."""
    folder.mkdir()
    program = folder / "mpiexec"
    program.write_text(f"#!/bin/sh\necho '{answer}'\n")
    program.chmod(0o755)
    return program


def test_mpiexec_on_path_comes_before_the_one_beside_python(tmp_path, monkeypatch):
    first = write_mpiexec(tmp_path / "bin", "mpiexec (Open MPI) 5.0.11")
    beside = write_mpiexec(tmp_path / "venv", "HYDRA build details: Version: 5.0.2")
    monkeypatch.setattr(sys, "executable", str(beside.with_name("python")))
    found = launchers.mpiexecs({"PATH": f"{first.parent}:/nowhere"})
    assert [(one.path, one.vendor, one.version) for one in found] == [
        (str(first), "openmpi", "5.0.11"),
        (str(beside), "mpich", "5.0.2"),
    ]


def test_one_mpiexec_is_named_once(tmp_path, monkeypatch):
    beside = write_mpiexec(tmp_path / "venv", "Intel(R) MPI Library for Linux, Version 2021.18")
    monkeypatch.setattr(sys, "executable", str(beside.with_name("python")))
    (found,) = launchers.mpiexecs({"PATH": str(beside.parent)})
    assert (found.vendor, found.version) == ("impi", "2021.18")


def test_mpiexec_that_cannot_answer(tmp_path, monkeypatch):
    broken = write_mpiexec(tmp_path / "bin", "")
    broken.write_text("#!/nowhere/sh\n")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    (found,) = launchers.mpiexecs({"PATH": str(broken.parent)})
    assert (found.vendor, found.version) == ("", "")
