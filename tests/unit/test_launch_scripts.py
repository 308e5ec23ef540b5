"""The batch scripts that come with the package; tests/cluster/test_slurm_scripts.py runs them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted((ROOT / "launch" / "scripts").iterdir())


def shown(name: str) -> str:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "hierring", "launch", "--script", name],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout


def test_all_scripts_can_be_printed_from_the_installed_package() -> None:
    assert [script.name for script in SCRIPTS] == ["container.sbatch", "cpu.sbatch", "gpu.sbatch"]
    for script in SCRIPTS:
        assert shown(script.stem) == script.read_text(encoding="utf-8")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_is_one_that_a_person_can_edit(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    subprocess.run(["bash", "-n", script], check=True, timeout=60)
    assert len(text.splitlines()) <= 40
    assert not re.search(r"(?<![\w~/.])/(home|usr|opt|work|tmp)/", text), "a machine's path"
    # What is easily forgotten.
    for line in ("#SBATCH --signal=TERM@60 ", "#SBATCH --open-mode=append ", "#SBATCH --requeue "):
        assert line in text
    assert "B:" not in text  # would signal the shell alone
    assert re.search(r'^exec srun --mpi="\$PMI" --kill-on-bad-exit=1 ', text, re.MULTILINE)
    assert '--cpus-per-task="$SLURM_CPUS_PER_TASK"' in text
