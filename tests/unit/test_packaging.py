"""What is in a wheel, and what importing the package costs."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import hierring

ROOT = Path(__file__).resolve().parents[2]
IMPORT_S = 0.3


def python(code: str, cwd: Path) -> str:
    """Run code in a fresh interpreter outside the tree and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-P", "-W", "error", "-c", code],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel that HIERRING_TEST_WHEEL names, else one built here, less the compiled module."""
    given = os.environ.get("HIERRING_TEST_WHEEL")
    if not given:
        target = tmp_path_factory.mktemp("wheel")
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation"]
        command += [
            "--no-deps",
            "--config-settings=wheel.cmake=false",
            "-w",
            str(target),
            str(ROOT),
        ]
        subprocess.run(command, check=True, timeout=120)
        (given,) = map(str, target.glob("*.whl"))
    return zipfile.ZipFile(given)


@pytest.mark.slow
def test_wheel_has_one_top_level_name(wheel: zipfile.ZipFile) -> None:
    tops = {name.split("/")[0] for name in wheel.namelist()}
    version = importlib.metadata.version("hierring")
    assert tops == {"hierring", f"hierring-{version}.dist-info"}


@pytest.mark.slow
def test_wheel_holds_every_module(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    for directory, package in (
        ("hierring", "hierring"),
        ("topology", "hierring/topology"),
        ("launch", "hierring/launch"),
        ("benchmarks", "hierring/benchmarks"),
        ("benchmarks", "hierring/benchmarks"),
    ):
        for file in (ROOT / directory).rglob("*.py"):
            assert f"{package}/{file.relative_to(ROOT / directory)}" in names
    assert {"hierring/py.typed", "hierring/_core.pyi"} <= names
    if os.environ.get("HIERRING_TEST_WHEEL"):
        assert any(name.startswith("hierring/_core.") and name.endswith(".so") for name in names)


def test_sdist_can_build_the_wheel(tmp_path: Path) -> None:
    """It has the sources of the compiled module and of every package, and no built file."""
    code = f"import scikit_build_core.build as b; print(b.build_sdist({str(tmp_path)!r}))"
    subprocess.run([sys.executable, "-P", "-c", code], cwd=ROOT, check=True, timeout=60)
    (path,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames()}
    wanted = {"CMakeLists.txt", "pyproject.toml", "LICENSE", "hierring/_version.py"}
    wanted |= {f"csrc/{file.name}" for file in (ROOT / "csrc").iterdir()}
    wanted |= {f"topology/{file.name}" for file in (ROOT / "topology").glob("*.py")}
    assert wanted <= names
    assert not [name for name in names if name.startswith(("build/", ".venv")) or "pycache" in name]


def test_version_is_the_installed_one() -> None:
    assert hierring.__version__ == importlib.metadata.version("hierring")


def test_import_is_quick_and_starts_nothing(tmp_path: Path) -> None:
    code = (
        "import sys, time; start = time.perf_counter(); import hierring;"
        "print(time.perf_counter() - start, sorted({'mpi4py.MPI', 'torch'} & set(sys.modules)))"
    )
    runs = [python(code, tmp_path).split(maxsplit=1) for _ in range(7)]
    assert {started.strip() for _, started in runs} == {"[]"}
    assert min(float(seconds) for seconds, _ in runs) < IMPORT_S


def test_importing_every_module_starts_nothing(tmp_path: Path) -> None:
    code = """
import importlib, json, pkgutil, sys
import hierring
names = [m.name for m in pkgutil.walk_packages(hierring.__path__, "hierring.")]
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)
print(json.dumps([names, [m for m in ("mpi4py.MPI", "torch") if m in sys.modules]]))
"""
    names, started = json.loads(python(code, tmp_path))
    assert {"hierring.topology", "hierring.communicator", "hierring._core"} <= set(names)
    assert started == []


def test_command_explains_itself(tmp_path: Path) -> None:
    script = Path(sys.executable).parent / "hierring"
    done = subprocess.run(
        [script, "--help"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    assert "topology" in done.stdout
