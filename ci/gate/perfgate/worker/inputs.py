"""Check whether a benchmark's setup makes the same inputs each time, in a worker.

Without a seed the two sides measure different work in every pair, which hides a slowdown.
"""

import hashlib

# only used to compare a benchmark's inputs with each other
import pickle  # noqa: TID251
import time
from collections.abc import Callable
from typing import Any

from .listing import owner_of

_SHORT_S = 1.0  # a setup that takes longer is not repeated


def differ(benchmark: Any, setup_s: float) -> bool:
    """Set up a benchmark twice more, and tell whether its inputs differ.

    If setup takes long, or inputs can't be compared, they count as equal.
    """
    if setup_s > _SHORT_S or not benchmark._setups:  # noqa: SLF001
        return False
    digests = []
    for _ in range(2):
        benchmark.do_teardown()
        if benchmark.do_setup():
            return False
        digests.append(_digest(benchmark))
    return None not in digests and digests[0] != digests[1]


def timed(action: Callable[[], Any]) -> tuple[Any, float]:
    """Return an action's result and its seconds."""
    start = time.perf_counter()
    result = action()
    return result, time.perf_counter() - start


def _digest(benchmark: Any) -> bytes | None:
    held = getattr(owner_of(benchmark), "__dict__", {})
    try:
        return hashlib.sha256(pickle.dumps(held)).digest()
    # foreign objects may raise anything during pickling
    except Exception:  # noqa: BLE001
        return None
