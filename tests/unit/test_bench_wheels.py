"""A wheel of the hierring that runs: built from a checkout, or packed together again."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

from hierring.benchmarks.wheels import Source, repack
from hierring.errors import HierringError

FILES = {
    "some/__init__.py": "x = 1\n",
    "some/__pycache__/__init__.cpython-311.pyc": "compiled",
    "some-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: some\nVersion: 1.0\n",
    "some-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "some-1.0.dist-info/INSTALLER": "pip\n",
    "some-1.0.dist-info/direct_url.json": "{}",
}


@pytest.fixture
def installed(tmp_path):
    """A package as pip leaves it."""
    site = tmp_path / "site-packages"
    for name, text in FILES.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    record = [*FILES, "../../../bin/some", "some-1.0.dist-info/RECORD"]
    info = site / "some-1.0.dist-info"
    (info / "RECORD").write_text("".join(f"{name},,\n" for name in record))
    return importlib.metadata.PathDistribution(info)


@pytest.mark.slow
def test_pip_installs_what_was_packed_again(installed, tmp_path):
    wheel = repack(installed, tmp_path)
    assert wheel.name == "some-1.0-py3-none-any.whl"
    target = tmp_path / "target"
    subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet",
         "--no-index", "--no-deps", "--no-compile", "--target", str(target), str(wheel)],
        check=True, timeout=60, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert (target / "some/__init__.py").read_text() == "x = 1\n"
    assert not list(target.rglob("*.pyc"))


def test_what_is_not_whole_is_refused(installed, tmp_path):
    (tmp_path / "site-packages/some/__init__.py").unlink()
    with pytest.raises(HierringError, match="not whole"):
        repack(installed, tmp_path)


def test_what_came_from_no_wheel_is_refused(installed, tmp_path):
    (tmp_path / "site-packages/some-1.0.dist-info/WHEEL").unlink()
    with pytest.raises(HierringError, match="did not come from a wheel"):
        repack(installed, tmp_path)


def test_a_changed_file_is_another_hierring(installed, tmp_path):
    before = Source(None, installed).digest
    assert Source(None, installed).digest == before
    (tmp_path / "site-packages/some/__init__.py").write_text("x = 2\n")
    assert Source(None, installed).digest != before


def test_a_checkout_is_built_once(tmp_path):
    for name in ("CMakeLists.txt", "csrc/a.cpp"):
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / name).write_text(name)
    asked = []

    def run(command):
        asked.append(command)
        Path(command[command.index("-w") + 1], "a.whl").touch()

    for _ in range(2):
        wheel = Source(tmp_path / "tree", None).wheel(tmp_path / "wheels", ["pip"], run)
        assert wheel.is_file()
    assert len(asked) == 1
    (tmp_path / "tree/csrc/a.cpp").write_text("changed")
    Source(tmp_path / "tree", None).wheel(tmp_path / "wheels", ["pip"], run)
    assert len(asked) == 2
