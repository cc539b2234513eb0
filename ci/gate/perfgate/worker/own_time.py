"""The seconds that a process has had for itself: at work or asleep, but not waiting for a core.

Linux tells who waits, thread by thread, in /proc/self/task/*/schedstat. Its files are kept open,
since they are read before and after each timed call: opening a dozen anew would cost ten times as
much, and the call its caches.
"""

import os
import time

_ASLEEP = 0.1  # of its time at most: then a call does nothing but work
_files: dict[int, int] = {}  # the descriptor of each thread's schedstat


class OwnTime:
    """A clock that stands still while all of this process waits for a core that others hold.

    Sleep it counts.

    Attributes:
        wall_s: seconds of the wall clock in what was timed.
        asleep_s: those of them in which no thread worked or waited for a core.
    """

    def __init__(self) -> None:
        self.wall_s = 0.0
        self.asleep_s = 0.0
        self._own_s = 0.0
        self._start: tuple[float, float, float] | None = None

    def timer(self) -> float:
        """Return the seconds so far; asv's timers ask before and after what they time."""
        if self._start is None:
            before_s = waited_s()  # slow to read, so that it stays outside of what is timed
            self._start = time.perf_counter(), time.process_time(), before_s
            return self._own_s
        end = time.perf_counter(), time.process_time()
        wall_s, worked_s = (after - before for after, before in zip(end, self._start, strict=False))
        asleep_s = max(0.0, wall_s - worked_s - (waited_s() - self._start[2]))
        self.wall_s += wall_s
        self.asleep_s += asleep_s
        self._own_s += worked_s + asleep_s
        self._start = None
        return self._own_s

    def is_work(self) -> bool:
        """Tell whether what was timed did nothing but work, as far as the kernel says who waits."""
        return can_tell_waits() and self.asleep_s <= _ASLEEP * self.wall_s


def scheduled() -> tuple[int, int]:
    """Return the nanoseconds that this process's threads have run, and waited for a core.

    They are zeros where the kernel does not tell.
    """
    try:
        # paths would be slow to make
        threads = [int(name) for name in os.listdir("/proc/self/task")]  # noqa: PTH208
    except OSError:
        return 0, 0
    for ended in _files.keys() - threads:
        _forget(ended)
    figures = [_schedstat(thread) for thread in threads]
    return sum(worked for worked, _ in figures), sum(waited for _, waited in figures)


def waited_s() -> float:
    """Return the seconds for which threads have waited for a core; 0 where it is unknown."""
    return 1e-9 * scheduled()[1]


def can_tell_waits() -> bool:
    """Tell whether the kernel counts who waits for a core."""
    return scheduled() != (0, 0)


def _schedstat(thread: int) -> tuple[int, int]:
    """Return a thread's nanoseconds at work and waiting.

    They are zeros where it has ended, or the kernel keeps no figures.
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
        # what this imports, a statement that is timed in an interpreter of its own need not
        try:  # noqa: SIM105
            os.close(_files.pop(thread))
        except OSError:
            pass  # a benchmark may close what it did not open
