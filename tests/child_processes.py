"""Programs that tests run in processes of their own."""

import os
import socket
import subprocess
import sys
import time

import pytest


def run(*words, code=0, cwd=None, **variables):
    """Run a program with these words and variables to its end, which must be this exit code."""
    done = subprocess.run(
        [*map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        timeout=1_200,
        env=environment(**variables),
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


def python(*words, **options):
    """Run Python with these words, as `run` does."""
    return run(sys.executable, *words, **options)


def until(happens):
    """Wait until something happens in another process, for five minutes at most."""
    deadline = time.monotonic() + 300
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def environment(**variables):
    """Return this process's variables and those given, without those that are None."""
    given = os.environ | variables
    return {name: value for name, value in given.items() if value is not None}


def free_port():
    """Return a port of the loopback on which nobody listens yet."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def lacks(message):
    """Skip a test that needs a program of the system. CI has them all, so there it fails."""
    end = pytest.fail if os.environ.get("MYRIAD_CI") else pytest.skip
    end(message)
