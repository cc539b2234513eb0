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


@pytest.mark.slow
def test_work_and_sleep_are_a_calls_own_time_and_waiting_for_the_core_is_not():
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    # It never leaves that core.
    competitor = [sys.executable, "-c", "print(flush=True)\nwhile True: pass"]
    with subprocess.Popen(competitor, stdout=subprocess.PIPE) as process:
        try:
            process.stdout.readline()
            clock = OwnTime()
            started, worked, waited = time.perf_counter(), time.process_time(), scheduled()[1]
            before = clock.timer()
            # It has its share of the core sooner or later: how soon depends on what else runs.
            while time.process_time() < worked + 0.2 or scheduled()[1] < waited + 1e8:
                pass
            time.sleep(0.1)
            own_s = clock.timer() - before
            assert own_s > 0.28
            assert time.perf_counter() - started > own_s + 0.1
        finally:
            process.kill()
            os.sched_setaffinity(0, cores)
