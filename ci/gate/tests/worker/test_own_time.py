"""The clock of calls that share their core: what a process has had for itself."""

import os
import subprocess
import sys
import time

import pytest

from perfgate.worker.own_time import OwnTime, can_tell_waits, scheduled

pytestmark = pytest.mark.skipif(
    not can_tell_waits(), reason="the kernel keeps no figures of who waits for a core"
)


@pytest.fixture
def competitor():
    """Another process that never leaves the core to which this one is pinned."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    spin = "print(flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", spin], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield
        finally:
            process.kill()
            os.sched_setaffinity(0, cores)


@pytest.mark.slow
def test_work_and_sleep_are_a_calls_own_time_and_waiting_for_the_core_is_not(competitor):
    clock = OwnTime()
    started, worked, waited = time.perf_counter(), time.process_time(), scheduled()[1]
    before = clock.timer()
    # The competitor has its share of the core sooner or later: how soon depends on what else runs.
    while time.process_time() < worked + 0.2 or scheduled()[1] < waited + 1e8:
        pass
    time.sleep(0.1)
    own_s = clock.timer() - before
    assert own_s > 0.28
    assert time.perf_counter() - started > own_s + 0.1
