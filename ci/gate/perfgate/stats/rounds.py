"""Decide whether rounds of fresh processes confirm a suspect value.

The value comes from a clock or from the operating system. One look made it suspect, which is no
test. So the rounds that follow must keep within the allowed error by themselves. After four, eight
and twelve rounds, a t-test asks how far the rounds exceed the allowed change. Each look gets a
third of the error (Bonferroni). Base and head of a round are measured one after the other, so slow
minutes that both share cancel. From eight rounds on the outermost ones are left out, so that a
burst on one side does no harm (see `evidence`).
"""

import statistics
from collections.abc import Sequence

from perfgate.stats.evidence import estimate, t_quantile

LOOKS = (4, 8, 12)
_EARLIEST = 2  # fewest rounds after which a suspicion may be dropped; most false ones end here


def weigh(
    excess: Sequence[float], alpha: float, *, is_last: bool = False, miss_beta: float | None = None
) -> bool | None:
    """Tell whether rounds confirm that a value is worse; None if it takes more rounds to tell.

    Args:
        excess: how far each round's change exceeds the allowed change.
        alpha: how often a false suspicion may be confirmed.
        is_last: whether no round will follow. Then the test is made now, and spends the share of
            the error of one look.
        miss_beta: how often a value that is worse by the allowed change may be dropped. Without it,
            a suspicion is dropped as soon as the median of its rounds is allowed.
    """
    count = len(excess)
    if count < _EARLIEST:
        return None
    if miss_beta is None:
        is_dropped = statistics.median(excess) <= 0
    else:
        is_dropped = _is_sure([-each for each in excess], miss_beta / LOOKS[-1])
    if is_dropped:
        return False
    is_look = count in LOOKS or (is_last and count > LOOKS[0])
    if is_look and _is_sure(excess, alpha / len(LOOKS)):
        return True
    return False if count >= LOOKS[-1] else None


def _is_sure(values: Sequence[float], alpha: float) -> bool:
    mean, error, df = estimate(values, left_out=max(0, len(values) - 3) // 5)
    return mean > t_quantile(alpha, df) * error
