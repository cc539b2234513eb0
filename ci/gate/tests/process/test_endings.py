"""Nothing that a gate started outlives it, however the gate ends."""

import json
import os
import select
import signal
import subprocess
import sys

import pytest

from gate_repository import LAST_RESORT_S

# The benchmark never lets go of its interpreter, so no thread of the worker could notice anything.
# Its children hold the pipe open, one of them in a session of its own.
ENDLESS = """
import collections
import itertools
import os
import subprocess
import sys

SLEEP = [sys.executable, "-c", "import time; time.sleep(3600)"]


def time_endless():
    pipe = os.open({pipe!r}, os.O_WRONLY)
    subprocess.Popen(SLEEP, pass_fds=[pipe])
    subprocess.Popen(SLEEP, pass_fds=[pipe], start_new_session=True)
    os.write(pipe, b"s")
    collections.deque(itertools.repeat(None), maxlen=0)
"""
GATE = [sys.executable, "-m", "perfgate", "--base", "main", "--bench", "endless"]


def read(pipe):
    """Return what benchmarks write. It is empty once nobody holds the pipe open any more."""
    readable, _, _ = select.select([pipe], [], [], LAST_RESORT_S)
    assert readable, "no benchmark has started, or what the gate started has outlived it"
    return os.read(pipe, 64)


@pytest.mark.slow
@pytest.mark.usefixtures("no_signal_is_ignored")
@pytest.mark.parametrize(
    ("number", "code"),
    [
        pytest.param(signal.SIGINT, 130, id="SIGINT"),
        pytest.param(signal.SIGKILL, -signal.SIGKILL, id="SIGKILL"),
        pytest.param(signal.SIGTERM, 130, id="SIGTERM", marks=pytest.mark.long),
        pytest.param(signal.SIGHUP, 130, id="SIGHUP", marks=pytest.mark.long),
        # not caught, as SIGKILL, but by choice
        pytest.param(signal.SIGQUIT, -signal.SIGQUIT, id="SIGQUIT", marks=pytest.mark.long),
    ],
)
def test_a_signal_to_the_gate_ends_all_that_its_workers_started(repository, number, code):
    path = repository.root.parent / "pipe"
    os.mkfifo(path)
    repository.git("switch", "--quiet", "--create", "topic")
    repository.commit({"benchmarks/endless.py": ENDLESS.format(pipe=str(path))})
    pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    gate = subprocess.Popen(
        GATE,
        cwd=repository.root,
        env=os.environ | repository.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with gate:
        try:
            assert read(pipe)[:1] == b"s"
            gate.send_signal(number)
            assert gate.wait(LAST_RESORT_S) == code
            while read(pipe):
                pass
        finally:
            gate.kill()
            os.close(pipe)
    report = json.loads((repository.root / ".asv/gate/gate.json").read_text())
    assert report["headline"] == "COULD NOT TELL: 1 not reached; 1 benchmark in all"
    if code == 130:
        assert not list(repository.temporary.iterdir())
        assert len(repository.git("worktree", "list").splitlines()) == 1
