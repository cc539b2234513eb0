"""What a child process breaks costs its own answer and leaves nothing behind."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.harness.process import ROOT, run
from benchmarks.harness.worker import ChildError

HERE = "tests.benchmarks.harness.test_process"
LIMIT_S = 600


def double(number):
    return {"doubled": 2 * number, "setting": os.environ.get("A_SETTING", "")}


def refuse():
    raise NotImplementedError("not on this machine\nat all")


def miss():
    raise ImportError("`pip install nothing` installs it")


def fail():
    raise ValueError("num_envs must be at least 1, but got 0.")


def die():
    sys.stderr.write("about to go\n")
    sys.stderr.flush()
    os.kill(os.getpid(), 9)


def hang():
    time.sleep(3600)


def hold(num_bytes, beside):
    """Hold memory in a grandchild, so that the whole session is what counts."""
    note = f"import os, pathlib, time; pathlib.Path({beside!r}).write_text(str(os.getpid()))"
    subprocess.run(
        [sys.executable, "-c", f"{note}; x = b'x' * {num_bytes}; time.sleep(3600)"], check=True
    )


def sleep(beside):
    Path(beside).write_text(str(os.getpid()))
    time.sleep(3600)


def ends(pid):
    """Wait for a process that was killed: the system takes a moment to reap an escaped child."""
    return comes_true(lambda: not Path(f"/proc/{pid}").exists())


def comes_true(condition):
    """Look until a condition holds; only what hangs meets the limit."""
    deadline = time.monotonic() + LIMIT_S
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def test_a_child_answers_with_what_its_function_returned():
    assert run(f"{HERE}:double", {"number": 21}, timeout_s=LIMIT_S, A_SETTING="on") == {
        "doubled": 42,
        "setting": "on",
    }


@pytest.mark.parametrize(
    ("function", "status", "reason"),
    [
        ("refuse", "refused", "not on this machine"),
        ("miss", "not installed", "`pip install nothing` installs it"),
        ("fail", "failed", "num_envs must be at least 1, but got 0."),
        ("die", "failed", "the process ended by signal 9: about to go"),
        ("hang", "failed", "no answer within 1 s"),
    ],
)
def test_what_goes_wrong_in_a_child_is_a_status_and_one_sentence(function, status, reason):
    with pytest.raises(ChildError) as caught:
        run(f"{HERE}:{function}", {}, timeout_s=1 if function == "hang" else LIMIT_S)
    assert (caught.value.status, str(caught.value)) == (status, reason)


@pytest.mark.slow
def test_memory_is_counted_over_all_that_a_child_started_and_all_of_it_is_ended(tmp_path):
    beside = tmp_path / "pid"
    request = {"num_bytes": 300_000_000, "beside": str(beside)}
    with pytest.raises(
        ChildError, match=r"out of memory: it held [\d,]+ bytes and may hold 200,000,000"
    ) as caught:
        run(f"{HERE}:hold", request, timeout_s=LIMIT_S, memory_limit_bytes=200_000_000)
    assert caught.value.status == "refused"
    assert ends(beside.read_text())


@pytest.mark.slow
def test_a_child_whose_parent_is_killed_ends_too(tmp_path):
    beside = tmp_path / "pid"
    call = "from benchmarks.harness.process import run\n"
    call += f"run('{HERE}:sleep', {{'beside': {str(beside)!r}}}, timeout_s={LIMIT_S})"
    with subprocess.Popen([sys.executable, "-c", call], cwd=ROOT) as parent:
        try:
            assert comes_true(lambda: beside.exists() and beside.read_text())
        finally:
            parent.kill()
    assert ends(beside.read_text())
