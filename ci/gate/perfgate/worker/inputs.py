"""Whether a benchmark's setup makes the same inputs each time, for a worker.

Without a seed both sides measure other work in every pair, and a slowdown drowns in that.
"""

import hashlib

# only to compare what a benchmark holds with itself
import pickle  # noqa: TID251
import time
from collections.abc import Callable
from typing import Any

from .listing import owner_of

_SHORT_S = 1.0  # a setup that takes longer is not asked for once more


def differ(benchmark: Any, setup_s: float) -> bool:
    """Set a benchmark up twice more, and tell whether what it then holds differs.

    Where that takes long, or can't be compared, they count as alike.
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
    """Return what an action returns, and its seconds."""
    start = time.perf_counter()
    result = action()
    return result, time.perf_counter() - start


def _digest(benchmark: Any) -> bytes | None:
    held = getattr(owner_of(benchmark), "__dict__", {})
    try:
        return hashlib.sha256(pickle.dumps(held)).digest()
    # foreign objects may raise anything when they are pickled
    except Exception:  # noqa: BLE001
        return None
