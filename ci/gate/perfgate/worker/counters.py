"""Count the instructions that the processor executes for this process, if Linux allows it.

This makes the system call perf_event_open(2) directly, since Python's standard library has no
function for it. Virtual machines often hide the counter, and /proc/sys/kernel/perf_event_paranoid
above 2 forbids it. Nothing is counted then, and the report says so. The environment variable
GATE_NO_COUNTERS turns counting off if it is set and not empty.
"""

import contextlib
import ctypes
import os
import platform
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

_SYSTEM_CALLS = {"x86_64": 298, "aarch64": 241, "riscv64": 241}
_HARDWARE, _INSTRUCTIONS = 0, 1  # PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS
# size of struct perf_event_attr; the kernel also accepts a longer one that ends in zeros
_SIZE = 128
# inherit (threads and processes to come), exclude_kernel, exclude_hv
_FLAGS = 1 << 1 | 1 << 5 | 1 << 6


class Counter:
    """The instructions while a block runs, of all threads of this process and what they start.

    `count` is None if the machine can't count them.
    """

    def __init__(self) -> None:
        self.count: int | None = None

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Count while the block runs."""
        with contextlib.ExitStack() as stack:
            # The kernel includes threads that start from now on, but not those that already run.
            # Each of those needs its own counter.
            counters = [_opened(int(task.name)) for task in Path("/proc/self/task").glob("*")]
            for counter in counters:
                if counter is not None:
                    stack.callback(os.close, counter)
            before = _total(counters)
            yield
            after = _total(counters)
        self.count = None if before is None or after is None else after - before


def can_count() -> bool:
    """Tell whether this machine can count instructions, and nobody has turned counting off."""
    counter = _opened(0)
    if counter is not None:
        os.close(counter)
    return counter is not None


def _opened(thread: int) -> int | None:
    number = _SYSTEM_CALLS.get(platform.machine())
    if not sys.platform.startswith("linux") or number is None or os.environ.get("GATE_NO_COUNTERS"):
        return None
    attributes = bytearray(_SIZE)
    fields = (_HARDWARE, _SIZE, _INSTRUCTIONS, 0, 0, 0, _FLAGS)
    struct.pack_into("=IIQQQQQ", attributes, 0, *fields)
    buffer = (ctypes.c_char * _SIZE).from_buffer(attributes)
    descriptor = ctypes.CDLL(None).syscall(number, buffer, thread, -1, -1, 0)
    return descriptor if descriptor >= 0 else None


def _total(counters: list[int | None]) -> int | None:
    """Return the sum of all counters; None if one of them could not be opened or read."""
    total = 0
    for counter in counters:
        if counter is None:
            return None
        try:
            total += int.from_bytes(os.read(counter, 8), sys.byteorder)
        except OSError:
            return None
    return total
