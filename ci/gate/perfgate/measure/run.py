"""What all stages of a run share, and what it has measured so far."""

import math
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from perfgate.config import Rules
from perfgate.rows import Row
from perfgate.source.sides import Sides


def say(text: str) -> None:
    """Print progress to stderr, because only the report goes to stdout."""
    print(text, file=sys.stderr, flush=True)


@dataclass
class Run:
    """One run of the gate.

    Attributes:
        sides: the two commits.
        rules: they say what is worse, how long to time, and how much error is allowed.
        core: the core that single-core benchmarks are pinned to; None if pinning isn't possible.
        deadline: when the current stage ends, on the clock of `time.monotonic`.
        rows: the rows that have got further than discovery.
        kept: what is called whenever rows were kept, such as a report on the run so far.
    """

    sides: Sides
    rules: Rules
    core: int | None
    deadline: float = math.inf
    rows: dict[str, Row] = field(default_factory=dict)
    kept: Callable[[], object] = lambda: None

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self.deadline

    def keep(self, rows: Iterable[Row]) -> None:
        """Keep rows as they are now."""
        self.rows |= {row.name: row for row in rows}
        self.kept()
