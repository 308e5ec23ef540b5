"""Which MPI is installed, found without starting it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hierring.errors import HierringError
from hierring.launch import mpi
from hierring.launch.mpi import VENDORS, Launcher, MpiLibrary, loaded_library, vendor_of


@pytest.mark.parametrize(
    ("text", "vendor"),
    [
        ("MPICH Version:      5.0.2 MPICH Release date: ...", "mpich"),
        ("HYDRA build details:  Version: 5.0.2", "mpich"),
        ("Intel(R) MPI Library 2021.18 for Linux* OS", "impi"),
        ("Open MPI v5.0.11, package: Open MPI", "openmpi"),
        ("mpiexec (OpenRTE) 4.1.4", "openmpi"),
        ("MVAPICH2 Version      :       2.3.7 (of MPICH)", "mvapich"),
        ("something else", ""),
    ],
)
def test_vendors_by_what_they_say(text: str, vendor: str) -> None:
    assert vendor_of(text) == vendor


def fake_mpiexec(folder: Path, version: str) -> Path:
    """An mpiexec beside a Python, which says this about itself."""
    program = folder / "mpiexec"
    program.write_text(f'#!/bin/sh\necho "{version}"\n')
    program.chmod(0o755)
    return folder / "python"


def test_the_mpiexec_beside_python_goes_before_that_of_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, version in (("own", "HYDRA"), ("path", "Open MPI")):
        (tmp_path / name).mkdir()
        fake_mpiexec(tmp_path / name, version)
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:/usr/bin:/bin")
    assert Launcher.beside(tmp_path / "own" / "python").vendor == "mpich"
    assert Launcher.beside(tmp_path / "other" / "python").vendor == "openmpi"


def test_no_mpiexec_is_an_error_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HierringError, match=r"pip install 'hierring\[mpich\]'"):
        Launcher.beside(tmp_path / "python")


def test_an_unknown_mpiexec_is_refused_unless_it_is_named(tmp_path: Path) -> None:
    python = fake_mpiexec(tmp_path, "SpecialMPI 1.0")
    with pytest.raises(HierringError, match="SpecialMPI"):
        Launcher.beside(python)
    assert Launcher.beside(python, "mpich").vendor == "mpich"


def test_library_and_mpiexec_of_this_environment_belong_together() -> None:
    library, launcher = loaded_library(), Launcher.beside()
    assert library.vendor in VENDORS
    launcher.check_library(library)


def test_a_mixed_installation_is_refused() -> None:
    launcher = Launcher("openmpi", Path("/usr/bin/mpiexec"))
    with pytest.raises(HierringError, match="every rank would be alone"):
        launcher.check_library(MpiLibrary("mpich", "MPICH Version: 5"))
    Launcher("impi", Path("mpiexec")).check_library(MpiLibrary("mpich", ""))


def test_a_python_without_mpi4py_says_so(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    python.chmod(0o755)
    with pytest.raises(HierringError, match="No module named 'mpi4py'"):
        loaded_library(python)


def test_a_job_with_more_ranks_than_cores_is_not_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpi, "usable_cpus", lambda: 2)
    monkeypatch.delenv("I_MPI_PIN", raising=False)
    openmpi = Launcher("openmpi", Path("mpiexec"))
    assert "--oversubscribe" in openmpi.command(3, ["prog"])
    assert "--oversubscribe" not in openmpi.command(2, ["prog"])
    impi = Launcher("impi", Path("mpiexec"))
    assert impi.command(3, ["prog"])[:2] == ["env", "I_MPI_PIN=0"]
    assert impi.command(2, ["prog"]) == ["mpiexec", "-n", "2", "prog"]
    assert Launcher("mpich", Path("m")).command(3, ["prog"]) == ["m", "-n", "3", "prog"]
