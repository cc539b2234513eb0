"""When rounds of fresh processes confirm a suspect value of a clock or of the operating system.

A value becomes suspect by one look, which is no test. So the rounds that follow must be rarer than
the error allowed by themselves: a t-test of how far each round goes beyond what is let pass, after
four, eight and twelve rounds, each look at a third of that error (Bonferroni). Base and head of a
round are measured one after the other, so slow minutes that both share cancel; from eight rounds on
the outermost ones are left out, so that a burst on one side does no harm (see `evidence`).
"""

from collections.abc import Sequence

import numpy as np

from perfgate.stats.evidence import degrees_of_freedom, t_quantile, trimmed_mean

LOOKS = (4, 8, 12)
_EARLIEST = 2  # rounds after which a suspicion may be dropped: most innocent rows end here


def weigh(excess: Sequence[float], alpha: float, *, is_last: bool = False) -> bool | None:
    """Say whether rounds confirm a suspicion; None where more rounds must tell.

    Args:
        excess: of each round, how far the change goes beyond what is let pass.
        alpha: how often to confirm what is nothing.
        is_last: whether no round will follow: what the looks to come would spend is spent now.
    """
    count = len(excess)
    if count < _EARLIEST:
        return None
    values = np.asarray(excess)
    if np.median(values) <= 0:
        return False
    is_look = count in LOOKS or (is_last and count > LOOKS[0])
    if is_look and _is_sure(values, alpha / len(LOOKS)):
        return True
    return False if count >= LOOKS[-1] else None


def _is_sure(values: np.ndarray, alpha: float) -> bool:
    mean, error = trimmed_mean(values)
    return bool(mean > t_quantile(alpha, degrees_of_freedom(len(values))) * error)
