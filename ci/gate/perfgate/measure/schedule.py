"""Which rows a pair is launched for where there is no time to decide all of them."""

from collections.abc import Iterable
from dataclasses import dataclass

_USUAL_PAIRS = 10  # that decide a row which did not get slower


@dataclass(frozen=True)
class Prospect:
    """A row that is not decided yet.

    Attributes:
        name: the row's.
        suspicion: how much slower head seems, as a log ratio.
        pair_s: seconds of one more pair.
        num_pairs: how many it has.
    """

    name: str
    suspicion: float
    pair_s: float
    num_pairs: int = 0

    @property
    def left_s(self) -> float:
        """About how many seconds it takes to decide it."""
        return self.pair_s * max(1, _USUAL_PAIRS - self.num_pairs)


def affordable(prospects: Iterable[Prospect], left_s: float) -> set[str]:
    """Return the names of as many rows as can be decided in `left_s`, the most suspicious first.

    A few pairs of every row would decide none of them. There is always one.
    """
    chosen: set[str] = set()
    for each in sorted(prospects, key=lambda each: -each.suspicion):
        left_s -= each.left_s
        if chosen and left_s < 0:
            break
        chosen.add(each.name)
    return chosen
