"""Which PMI plugin of srun fits which MPI library, in the lists that releases of SLURM print."""

from __future__ import annotations

from pathlib import Path

import pytest

from hierring.errors import ConfigurationError, HierringError
from hierring.launch.slurm.pmi import available_plugins, choose_plugin, parse_list

NEW = """MPI plugin types are...
\tpmix
\tnone
\tcray_shasta
\tpmi2
specific pmix plugin versions available: pmix_v3,pmix_v4
"""
OLD = """srun: MPI types are...
srun: none
srun: openmpi
srun: pmi2
srun: pmix_v2
srun: pmix_v10
"""


def test_lists_of_old_and_new_releases() -> None:
    assert parse_list(NEW) == ("pmix", "none", "cray_shasta", "pmi2", "pmix_v3", "pmix_v4")
    assert parse_list(OLD) == ("none", "openmpi", "pmi2", "pmix_v2", "pmix_v10")
    assert parse_list("srun: error: something else entirely") == ()


@pytest.mark.parametrize(
    ("vendor", "plugin"),
    [("mpich", "pmi2"), ("impi", "pmi2"), ("openmpi", "pmix"), ("something else", None)],
)
def test_the_plugin_that_fits(vendor: str, plugin: str | None) -> None:
    assert choose_plugin(vendor, parse_list(NEW)) == plugin


def test_without_plain_pmix_the_newest_version_is_taken() -> None:
    assert choose_plugin("openmpi", parse_list(OLD)) == "pmix_v10"


@pytest.mark.parametrize(("vendor", "needed"), [("openmpi", "pmix"), ("mpich", "pmi2")])
def test_a_cluster_without_it_is_refused_with_the_way_out(vendor: str, needed: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        choose_plugin(vendor, ("none", "cray_shasta"))
    text = str(caught.value)
    assert f"({vendor}) needs srun's PMI plugin {needed}" in text
    assert "none, cray_shasta" in text
    assert "mpiexec" in text


def fake_srun(folder: Path, body: str) -> str:
    program = folder / "srun"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    return str(program)


def test_srun_is_asked_and_may_answer_on_either_stream(tmp_path: Path) -> None:
    srun = fake_srun(
        tmp_path, '[ "$1" = --mpi=list ] && printf "\\tnone\\n"; printf "\\tpmix\\n" >&2'
    )
    assert available_plugins(srun) == ("none", "pmix")


def test_an_srun_that_fails_is_quoted(tmp_path: Path) -> None:
    srun = fake_srun(tmp_path, "echo 'srun: fatal: no configuration' >&2; exit 1")
    with pytest.raises(HierringError, match="no configuration; is this machine part of a SLURM"):
        available_plugins(srun)
    with pytest.raises(HierringError, match="No such file"):
        available_plugins(str(tmp_path / "absent"))
