"""The rule that gives each library one rate at each size.

`ci.site.comparisons` and `benchmarks.plots` call it, so that pages and plots show the same rates.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]


@dataclass(frozen=True)
class BestChunks:
    """The measured rows of one environment, agent, machine and commit.

    Attributes:
        measured: the row of each library, size and chunk.
        best: the row that counts for each library and size.
    """

    measured: Mapping[tuple[str, int, Any], Any]
    best: Mapping[tuple[str, int], Any]

    @property
    def searched(self) -> bool:
        """Whether any library was measured with more than one chunk."""
        return len({key[:2] for key in self.measured}) < len(self.measured)


def best_chunks(newest_first: Iterable[Row], counts_for: Callable[[str], str]) -> BestChunks:
    """Choose the rows that count: each library at its best chunk.

    Each chunk counts once: its newest run, and there the first row.

    Args:
        newest_first: the rows, also those without a measurement.
        counts_for: returns the library that a way to run it counts for. A peer counts with or
            without our options, whichever is faster.
    """
    measured: dict[tuple[str, int, Any], Row] = {}
    for row in newest_first:
        if row["status"] == "ok":
            key = (row["library"], int(row["num_envs"]), row["scan_chunk_size"])
            measured.setdefault(key, row)
    best: dict[tuple[str, int], Row] = {}
    for (library, size, _), row in measured.items():
        place = (counts_for(library), size)
        best[place] = max(best.get(place, row), row, key=lambda each: float(each["steps_per_s"]))
    return BestChunks(measured, best)
