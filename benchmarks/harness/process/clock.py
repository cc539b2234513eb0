"""The seconds of one call that waits for its own result. Standard library only: peers use it.

Statistics of many calls are `myriad.timing`'s.
"""

import time
from collections.abc import Callable
from typing import Any


def seconds_of(fn: Callable[..., Any], *args: Any) -> float:
    """Call `fn(*args)` and return how many seconds it took."""
    start = time.perf_counter()
    fn(*args)
    return time.perf_counter() - start
