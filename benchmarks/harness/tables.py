"""The tables that scripts print, and how they write numbers, intervals and ratios."""

import statistics
from collections.abc import Mapping, Sequence

from benchmarks.harness.alternation import Outcome, ratios
from benchmarks.harness.results import LEAST_SAMPLES, Row, spread


def markdown(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table that looks the same on a terminal and in a Markdown file."""
    widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
    text = [
        f"| {' | '.join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))} |"
        for line in (headers, *rows)
    ]
    rule = "".join(f"|{'-' * (width + 1)}:" for width in widths) + "|"
    return "\n".join([text[0], rule, *text[1:]])


def print_headers(*names: str) -> None:
    """Print the first lines of a table, whose rows `print_row` prints."""
    print_row(*names)
    print("|" + "---|" * len(names))


def print_row(*cells: object) -> None:
    """Print a row of a table at once, since the next one may take an hour."""
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def ratio_table(rates: Mapping[str, Sequence[float]]) -> str:
    """Return a line per variant: its median, and its ratio to the first one, round by round."""
    first, of_first = next(iter(rates.items()))
    lines = []
    for name, own in rates.items():
        found = spread([a / b for a, b in zip(own, of_first, strict=True)], "times")
        shown = between(found, "times") if name != first else "1"
        median = statistics.median(own)
        lines.append([name, f"{median:,.0f}" if median >= 100 else f"{median:,.2f}", shown])
    return markdown(("variant", "steps/s", f"times {first} ({span_of(of_first)})"), lines)


def between(row: Row, name: str, form: str = ".2f") -> str:
    """Write a value of `spread` with its interval."""
    return f"{row[name]:{form}} ({row[f'{name}_low']:{form}} to {row[f'{name}_high']:{form}})"


def times(of: Outcome, to: Outcome) -> str:
    """Write the ratio of `of`'s steps/s to `to`'s: its median over the rounds, and its interval."""
    if of.status != "ok" or to.status != "ok":
        return "-"
    found = spread(ratios(of, to), "ratio")
    return between(found, "ratio", ".1f" if found["ratio"] < 10 else ".0f")


def span_of(samples: Sequence[float]) -> str:
    """Say what the ends of `spread` are for so many samples."""
    return "95% interval" if len(samples) >= LEAST_SAMPLES else "least to most"


def readable(num_bytes: int | None) -> str:
    """Write a number of bytes in a fitting unit, or a dash if XLA does not state it."""
    if not num_bytes:
        return "-"
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if num_bytes >= size:
            return f"{num_bytes / size:,.1f} {unit}"
    return f"{num_bytes} B"
