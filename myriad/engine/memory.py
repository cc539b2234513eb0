"""How much memory is free, what programs take of it, and what is said if they don't fit.

Nothing here allocates anything. Rollouts, trainings and the autotuner ask it before they run.
"""

import os
import sys
from collections.abc import Callable
from typing import Any

import jax

from myriad.errors import InvalidArgumentError
from myriad.host import host_memory, resident_bytes

# Besides its programs, a process holds the threads of the interpreter and of XLA, code, and a copy
# of a report.
_BESIDE_PROGRAMS = 32 << 20
# Leave a hundredth for memory that doesn't grow with the numbers, so that the number that a message
# suggests is not refused in turn.
_MARGIN = 0.99


def available_bytes(limit: int | None = None) -> int:
    """Return the bytes that a program may take in addition to those that this process holds.

    Args:
        limit: bytes for the whole process on a CPU, or of the device's memory elsewhere. The result
            is never more than the machine has free.
    """
    kind = jax.default_backend()
    available = memory_bytes(kind)[1]
    left = sys.maxsize if available is None else available
    if limit is None:
        return left
    return min(left, limit - (resident_bytes() if kind == "cpu" else 0))


def memory_bytes(kind: str) -> tuple[int | None, int | None]:
    """Return the total and the available bytes of the memory in which JAX puts its arrays."""
    return host_memory() if kind == "cpu" else _device_memory(jax.local_devices()[0])


def _device_memory(device: Any) -> tuple[int | None, int | None]:
    """Return an accelerator's total bytes and those that JAX can still take.

    JAX reserves a documented share of a GPU when it starts, and reports that as the limit. The
    total is computed from it, since people know a card by its whole size.
    """
    stats = device.memory_stats() or {}
    limit = stats.get("bytes_limit")
    if limit is None:
        return None, None
    share = 1.0
    if device.platform == "gpu":
        given = os.environ.get("XLA_CLIENT_MEM_FRACTION") or os.environ.get(
            "XLA_PYTHON_CLIENT_MEM_FRACTION"
        )
        share = float(given or 0.75)
    return round(limit / share), limit - stats.get("bytes_in_use", 0)


def stated_bytes(compiled: jax.stages.Compiled) -> tuple[int, int]:
    """Return the bytes of a program's arguments on one device, and those that a call adds to them.

    They are what the compiler states, or 0 if it states nothing.
    """
    # Not through `describe`, which also reads the whole program and takes longer.
    stats = compiled.memory_analysis()
    if stats is None:
        return 0, 0
    results = stats.output_size_in_bytes - stats.alias_size_in_bytes
    return stats.argument_size_in_bytes, stats.temp_size_in_bytes + results


def most_bytes(programs: int) -> int:
    """Return the most bytes of a process whose programs state `programs` bytes."""
    # The allocator was measured to add 3%.
    return programs + programs // 25 + _BESIDE_PROGRAMS


def readable_bytes(num_bytes: int) -> str:
    """Return a number of bytes in MiB, GiB or TiB."""
    for unit, size in (("TiB", 1 << 40), ("GiB", 1 << 30)):
        if num_bytes >= size:
            return f"{num_bytes / size:,.1f} {unit}"
    return f"{num_bytes / (1 << 20):,.0f} MiB"


def require_room(
    subject: str, stated: int, remedy: Callable[[int], str], room: int | None = None
) -> None:
    """Raise unless programs fit into memory.

    Args:
        subject: what needs the memory, in the plural.
        stated: bytes that the programs hold at once, as the compiler states them.
        remedy: called with the bytes that programs may state; returns what would fit.
        room: bytes that the process may take; by default all that are free.

    Raises:
        InvalidArgumentError: they don't fit.
    """
    room = available_bytes() if room is None else room
    needed = most_bytes(stated)
    if needed > room:
        may_state = max(0, (room - _BESIDE_PROGRAMS) * 25 // 26)  # the inverse of `most_bytes`
        fitting = remedy(int(_MARGIN * may_state))
        raise InvalidArgumentError(
            f"{subject} need {readable_bytes(needed)} of memory, "
            f"and {readable_bytes(max(0, room))} are free; {fitting}."
        )


def require_room_for(
    number: int,
    stated: int,
    held: int = 0,
    *,
    what: str = "environments",
    doing: str = "",
    at_most: str = "at most about",
) -> None:
    """Raise unless programs over many equal things fit into memory.

    Args:
        number: how many things.
        stated: bytes that the programs hold, as the compiler states them.
        held: how many of these bytes are in memory already.
        what: what the things are, in the plural.
        doing: what is done with them, for the message.
        at_most: the words before the number that fits.

    Raises:
        InvalidArgumentError: they don't fit. The message says how many would.
    """
    require_room(
        f"{doing}{number:,} {what}",
        stated,
        lambda room: f"{at_most} {int(number * room / stated):,} {what} fit",
        available_bytes() + held,
    )
