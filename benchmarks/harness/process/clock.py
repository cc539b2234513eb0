"""Time one call that waits for its own result. Standard library only, because peers use it.

`myriad.timing` has the statistics of many calls.
"""

import time
from collections.abc import Callable
from typing import Any


def seconds_of(fn: Callable[..., Any], *args: Any) -> float:
    """Call `fn(*args)` and return its seconds."""
    start = time.perf_counter()
    fn(*args)
    return time.perf_counter() - start
