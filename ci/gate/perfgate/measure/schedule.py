"""Choose the rows that get a pair if there is no time to decide all of them."""

from collections.abc import Iterable
from dataclasses import dataclass

_USUAL_PAIRS = 10  # enough to decide a row that did not get slower


@dataclass(frozen=True)
class Prospect:
    """An undecided row.

    Attributes:
        name: the row's name.
        suspicion: how much slower head seems, as a log ratio.
        pair_s: seconds of one more pair.
        num_pairs: the pairs that it has so far.
    """

    name: str
    suspicion: float
    pair_s: float
    num_pairs: int = 0

    @property
    def left_s(self) -> float:
        """Roughly the seconds that it takes to decide this row."""
        return self.pair_s * max(1, _USUAL_PAIRS - self.num_pairs)


def affordable(prospects: Iterable[Prospect], left_s: float) -> set[str]:
    """Return the names of the rows that can be decided in `left_s`, the most suspicious first.

    A few pairs for each row would decide none of them. At least one row is returned.
    """
    chosen: set[str] = set()
    for each in sorted(prospects, key=lambda each: -each.suspicion):
        left_s -= each.left_s
        if chosen and left_s < 0:
            break
        chosen.add(each.name)
    return chosen
