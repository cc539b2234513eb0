"""A case of the attack, how it can end, and the table of all endings."""

import collections
import dataclasses
from collections.abc import Iterable

# How a case may end. Only the first three are as promised.
OK = "ok"
REFUSED = "refused in a sentence"
INTERRUPTED = "ended by an interrupt"
TRACEBACK = "traceback"
UNCLEAR = "refused in several lines"
HANG = "hang"
KILLED = "killed"
HARMED = "foreign file changed"
GOOD = (OK, REFUSED, INTERRUPTED)
ENDINGS = (*GOOD, UNCLEAR, TRACEBACK, HANG, KILLED, HARMED)


@dataclasses.dataclass(frozen=True)
class Case:
    """One attack.

    Attributes:
        kind: `command line`, `file`, `settings` or `call`.
        number: which one of its kind. The seed and the number give the same case again.
        what: the arguments, the text of `config.toml` or `.env` alone, or an expression.
    """

    kind: str
    number: int
    what: list[str]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a case ended.

    Attributes:
        case: the case.
        ending: one of `ENDINGS`.
        said: what the user reads.
    """

    case: Case
    ending: str
    said: str


def table(outcomes: Iterable[Outcome]) -> str:
    """Return how often each kind of case ended how."""
    counts = collections.Counter((each.case.kind, each.ending) for each in outcomes)
    kinds = list(dict.fromkeys(kind for kind, _ in counts))
    rows = [["", *kinds]]
    rows += [[ending, *(f"{counts[kind, ending]:,}" for kind in kinds)] for ending in ENDINGS]
    rows.append(["all", *(f"{sum(counts[kind, e] for e in ENDINGS):,}" for kind in kinds)])
    return "\n".join(f"{row[0]:<26}" + "".join(f"{cell:>14}" for cell in row[1:]) for row in rows)
