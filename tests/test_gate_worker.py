"""What a worker of the gate measures by: its own clock on a core that it shares."""

import os
import subprocess
import sys
import time

import pytest

from ci.counters import can_tell_waits
from ci.worker import _OwnTime

pytestmark = pytest.mark.skipif(not can_tell_waits(), reason="the kernel keeps no figures of who waits for a core")


@pytest.fixture
def rival():
    """Another process that never leaves the core to which this one is pinned."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    yield
    process.kill()
    process.wait()
    os.sched_setaffinity(0, cores)


def test_work_and_sleep_are_a_calls_own_time_and_waiting_for_the_core_is_not(rival):
    clock, started, worked = _OwnTime(), time.perf_counter(), time.process_time()
    before = clock.timer()
    while time.process_time() < worked + 0.2:
        pass
    time.sleep(0.1)
    own_s = clock.timer() - before
    assert 0.28 < own_s < 0.4
    assert time.perf_counter() - started > own_s + 0.1


def test_what_lies_between_two_spans_is_not_counted(rival):
    clock = _OwnTime()
    clock.timer()
    first = clock.timer()
    time.sleep(0.05)
    assert clock.timer() == first
    assert clock.timer() - first < 0.04
