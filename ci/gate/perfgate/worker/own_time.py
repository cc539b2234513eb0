"""A clock for the seconds that a process works or sleeps, without those of waiting for a core.

Linux reports each thread's waiting in /proc/self/task/*/schedstat. These files stay open, since
they are read before and after each timed call. Opening a dozen of them each time would take ten
times as long and push the call's data out of the caches.
"""

import os
import time

_ASLEEP = 0.1  # if a call sleeps for at most this share of its time, it only computes
_files: dict[int, int] = {}  # the descriptor of each thread's schedstat


class OwnTime:
    """A clock that stops while the whole process waits for a core that others hold.

    It counts sleep.

    Attributes:
        wall_s: seconds of the wall clock that were timed.
        asleep_s: the part of `wall_s` in which no thread worked or waited for a core.
    """

    def __init__(self) -> None:
        self.wall_s = 0.0
        self.asleep_s = 0.0
        self._own_s = 0.0
        self._start: tuple[float, float, int] | None = None

    def timer(self) -> float:
        """Return the seconds so far.

        asv's timers call this before and after the timed statement.
        """
        if self._start is None:
            waited = scheduled()[1]  # slow to read, so this happens outside of the timed part
            self._start = time.perf_counter(), time.process_time(), waited
            return self._own_s
        end = time.perf_counter(), time.process_time()
        wall_s, worked_s = (after - before for after, before in zip(end, self._start, strict=False))
        waited_s = 1e-9 * (scheduled()[1] - self._start[2])
        asleep_s = max(0.0, wall_s - worked_s - waited_s)
        self.wall_s += wall_s
        self.asleep_s += asleep_s
        self._own_s += worked_s + asleep_s
        self._start = None
        return self._own_s

    def is_work(self) -> bool:
        """Tell whether the timed part only computed, if the kernel reports who waits."""
        return can_tell_waits() and self.asleep_s <= _ASLEEP * self.wall_s


def scheduled() -> tuple[int, int]:
    """Return the nanoseconds that this process's threads have run and have waited for a core.

    Both are 0 if the kernel does not report them.
    """
    try:
        # making Path objects would be slow
        threads = [int(name) for name in os.listdir("/proc/self/task")]  # noqa: PTH208
    except OSError:
        return 0, 0
    for ended in _files.keys() - threads:
        _forget(ended)
    figures = [_schedstat(thread) for thread in threads]
    return sum(worked for worked, _ in figures), sum(waited for _, waited in figures)


def can_tell_waits() -> bool:
    """Tell whether the kernel reports who waits for a core."""
    return scheduled() != (0, 0)


def _schedstat(thread: int) -> tuple[int, int]:
    """Return the nanoseconds that a thread has worked and waited.

    Both are 0 if it has ended or the kernel keeps no figures.
    """
    try:
        if thread not in _files:
            _files[thread] = os.open(f"/proc/self/task/{thread}/schedstat", os.O_RDONLY)
        worked, waited, _ = os.pread(_files[thread], 128, 0).split()
        return int(worked), int(waited)
    except (OSError, ValueError):
        _forget(thread)
        return 0, 0


def _forget(thread: int) -> None:
    if thread in _files:
        # This file also runs in the interpreter of a timeraw_ statement. If it imported contextlib
        # there, the statement would get that import for free.
        try:  # noqa: SIM105
            os.close(_files.pop(thread))
        except OSError:
            pass  # a benchmark may have closed this file, although it did not open it
