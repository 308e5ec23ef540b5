"""Leftovers: old files of MPI libraries in /dev/shm that no process has mapped."""

from __future__ import annotations

import mmap
import os
import time

import pytest

from hierring.launch.doctor.leftovers import OLD_S, find_leftovers

SIZE = 1 << 16


@pytest.fixture
def write(tmp_path):
    """A function that leaves a file of some name and age."""

    def make(name, age_s=2 * OLD_S):
        path = tmp_path / name
        path.write_bytes(b"x" * SIZE)
        os.utime(path, (time.time() - age_s,) * 2)
        return path

    return make


def left(folder, many_nbytes=1):
    found = find_leftovers(str(folder), many_nbytes)
    return found.prefixes, found.nbytes


def test_old_files_of_mpi_libraries(tmp_path, write):
    for name in ("mpich_shm_1a_0", "mpich_shm_2b_0", "sm_segment.host.0.1.0", "train-data"):
        write(name)
    assert left(tmp_path) == (("mpich_shm_", "sm_segment."), 3 * SIZE)


def test_files_of_jobs_that_come_up(tmp_path, write):
    write("mpich_shm_1a_0", age_s=1)
    assert left(tmp_path) == ((), 0)


def test_files_that_are_mapped(tmp_path, write):
    path = write("ucx_shm_posix_1a")
    write("ucx_shm_posix_2b")
    with path.open("r+b") as file, mmap.mmap(file.fileno(), SIZE):
        assert left(tmp_path) == (("ucx_shm_posix_",), SIZE)
    assert left(tmp_path) == (("ucx_shm_posix_",), 2 * SIZE)


def test_a_few_are_not_worth_a_word(tmp_path, write):
    write("hierring-1a")
    assert left(tmp_path, SIZE + 1) == ((), 0)
    assert left(tmp_path, SIZE) == (("hierring-",), SIZE)


def test_no_directory(tmp_path):
    assert left(tmp_path / "missing", 0) == ((), 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: to give a file away")
def test_files_of_other_users(tmp_path, write):
    os.chown(write("mpich_shm_1a_0"), 12345, 12345)
    assert left(tmp_path) == ((), 0)
