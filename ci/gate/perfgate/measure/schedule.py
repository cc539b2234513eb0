"""Choose the rows that get a pair if there is no time to decide all of them."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Prospect:
    """An undecided row.

    Attributes:
        name: the row's name.
        suspicion: how sure it is that head is slower, in standard errors.
        left_s: roughly the seconds that it takes to decide this row.
    """

    name: str
    suspicion: float
    left_s: float


def affordable(prospects: Iterable[Prospect], left_s: float) -> set[str]:
    """Return the names of the rows that can be decided in `left_s`, the most suspicious first.

    A few pairs for each row would decide none of them. At least one row is returned. The fewer rows
    share a launch, the more pairs they get.
    """
    chosen: set[str] = set()
    for each in sorted(prospects, key=lambda each: -each.suspicion):
        left_s -= each.left_s
        if chosen and left_s < 0:
            break
        chosen.add(each.name)
    return chosen
