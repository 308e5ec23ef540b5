"""The process above a rank: whatever the child does, there is an answer, and soon."""

from __future__ import annotations

import os
import time

import psutil
import pytest

from hierring.launch.doctor import supervise

# In place of the real child: its code is the first argument, and `tell` writes to the pipe.
CHILD = (
    "import json, os, signal, sys, time\n"
    "fd = int(sys.argv[sys.argv.index('--tell') + 1])\n"
    "tell = lambda **values: os.write(fd, (json.dumps(values) + '\\n').encode())\n"
    "exec(sys.argv[-1])"
)
pytestmark = pytest.mark.slow


@pytest.fixture
def attempt(monkeypatch):
    """A function that runs some code as the child."""
    monkeypatch.setattr(supervise, "_START", CHILD)
    monkeypatch.setattr(supervise, "GRACE_S", 1.0)

    def run(code, patience_s=30.0, **options):
        return supervise.attempt([code], patience_s, **options)

    return run


def test_answers_are_put_together(attempt):
    found = attempt("tell(stage='one', size=1); print('hello'); tell(stage='two', text='t')")
    assert (found.stage, found.answer) == ("two", {"size": 1, "text": "t"})
    assert (found.trouble, found.output) == ("", "hello\n")


def test_long_answer(attempt):
    found = attempt("tell(text='x' * 10**6)")
    assert found.answer["text"] == "x" * 10**6


def test_exit_status_1_after_an_answer_is_a_verdict(attempt):
    found = attempt("tell(exit_code=1); sys.exit(1)")
    assert (found.trouble, found.answer) == ("", {"exit_code": 1})


TROUBLES = {
    "abort": ("tell(stage='s'); os.kill(os.getpid(), signal.SIGABRT)", "SIGABRT while s"),
    "exit": ("tell(stage='s'); sys.exit(15)", "exit status 15 while s"),
    "traceback": ("raise RuntimeError('no room')", "exit status 1 while starting Python"),
    "its own word": ("tell(failed='ImportError: no mpi4py'); sys.exit(1)", "ImportError"),
}


@pytest.mark.parametrize(("code", "trouble"), TROUBLES.values(), ids=TROUBLES)
def test_trouble_is_named(attempt, code, trouble):
    found = attempt(code)
    assert found.trouble.startswith(trouble)
    assert not found.timed_out


def test_cause_has_the_last_words(attempt):
    found = attempt("print('a\\n\\n  b  c\\nd\\ne\\nf', flush=True); os.abort()")
    assert found.cause == "SIGABRT while starting Python: b c / d / e / f"


def test_child_that_hangs_is_ended(attempt):
    started = time.monotonic()
    found = attempt("tell(stage='starting MPI', pid=os.getpid()); time.sleep(60)", 1.0)
    assert found.timed_out
    assert found.trouble == "no end after 2 s of starting MPI"
    assert time.monotonic() - started < 20
    assert not psutil.pid_exists(found.answer["pid"])


def test_child_that_closes_the_pipe_and_hangs_is_ended(attempt):
    found = attempt("tell(stage='ending MPI'); os.close(fd); time.sleep(60)", 1.0)
    assert found.timed_out


def test_each_stage_has_its_own_time(attempt):
    found = attempt("for n in range(4):\n tell(stage=f'{n}', n=n); time.sleep(0.6)", 1.0)
    assert (found.trouble, found.answer) == ("", {"n": 3})


def test_descriptors_of_the_launcher_are_left_open(attempt):
    """MPICH finds its launcher by a descriptor that it inherits."""
    reading, writing = os.pipe()
    try:
        os.set_inheritable(writing, True)
        attempt(f"os.write({writing}, b'here')")
        os.close(writing)
        assert os.read(reading, 10) == b"here"
    finally:
        os.close(reading)


def test_environment_is_the_one_given(attempt):
    found = attempt("tell(seen=os.environ.get('PMI_RANK'))", environ={"PATH": os.environ["PATH"]})
    assert found.answer == {"seen": None}
