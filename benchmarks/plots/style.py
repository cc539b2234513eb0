"""What every plot shares: each library's look, the page with its title, axes, short numbers.

scaling.py and comparisons.py draw on these pages. Figures are made without pyplot and its global
state.
"""

import math
import textwrap
from collections.abc import Sequence
from typing import Any

from benchmarks.harness.libraries import DECLARED, OURS, library_of
from benchmarks.harness.results import TextRow

# A library keeps its look for ever: libraries.toml declares it.
STYLES = {
    name: {"color": library.color, "marker": library.marker, "linestyle": library.line}
    for name, library in DECLARED.items()
}
UNKNOWN_STYLE = {"color": "#777777", "marker": "8", "linestyle": ":"}  # one not known yet
# Where every line is ours, colours stand for something else. Without colour, markers and dashes do.
LOOKS = (
    ("#0072B2", "o", "-"),
    ("#D55E00", "s", "--"),
    ("#009E73", "^", "-."),
    ("#CC79A7", "D", ":"),
    ("#56B4E9", "v", "-"),
    ("#E69F00", "P", "--"),
)
GREY = "#666666"
# Of the title and of the caption, at the sizes below, with room for wide letters.
_TITLE_LETTERS_PER_INCH, _CAPTION_LETTERS_PER_INCH = 9.8, 15.5


def look_of(place: int) -> dict[str, Any]:
    """Return the colour, marker and dashes of a line that stands for no library."""
    color, marker, line = LOOKS[place % len(LOOKS)]
    return {"color": color, "marker": marker, "linestyle": line}


def style_of(library: str) -> dict[str, Any]:
    """Return the colour, marker and dashes of a library."""
    return STYLES.get(library, UNKNOWN_STYLE)


def label_of(library: str) -> str:
    """Return what a legend calls a library."""
    return (library in DECLARED and DECLARED[library].label) or library


def libraries_in(rows: Sequence[TextRow]) -> list[str]:
    """Return the libraries of the rows, ours first and the unknown ones last."""
    found = {row["library"] for row in rows}
    return [name for name in STYLES if name in found] + sorted(found - STYLES.keys())


def page(
    title: str,
    below: str,
    height: float,
    grid: tuple[int, int] = (1, 1),
    width: float = 8,
    **kwargs: Any,
) -> Any:
    """Return a figure and its axes [rows, columns], with the title above and the caption below."""
    from myriad.errors import NotInstalledError

    try:
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError as error:
        raise NotInstalledError("a plot", "matplotlib", "bench") from error
    figure = Figure(
        figsize=(width, height), dpi=150, layout=ConstrainedLayoutEngine(h_pad=0.08, w_pad=0.08)
    )
    title = textwrap.fill(title, int(width * _TITLE_LETTERS_PER_INCH))
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
    letters = int(width * _CAPTION_LETTERS_PER_INCH)
    below = "\n".join(textwrap.fill(line, letters) for line in below.split("\n"))
    figure.supxlabel(below, x=0.01, ha="left", fontsize=8, color="#444444")
    axes = figure.subplots(*grid, squeeze=False, **kwargs)
    for each in axes.flat:
        each.grid(visible=True, which="major", color="#DDDDDD", linewidth=0.6)
        each.spines[["top", "right"]].set_visible(False)
        each.set_axisbelow(True)
    return figure, axes


def words_beside(axes: Any, words: str, x: float, y: float, **look: Any) -> None:
    """Write small words right of a point."""
    at = {"xytext": (8, 0), "textcoords": "offset points", "va": "center", "fontsize": 8}
    axes.annotate(words, (x, y), **at | look)


def caption(rows: Sequence[TextRow], shown: str) -> str:
    """Say what a reader needs to judge a figure: machine, versions, commit, what is shown, when."""
    rows = [row for row in rows if row["status"] == "ok"]
    first = next((row for row in rows if library_of(row["library"]) == OURS), rows[0])
    memory = (
        f", {int(float(first['memory_total_bytes'])) / 2**30:.0f} GiB"
        if first["memory_total_bytes"]
        else ""
    )
    jax = first["jax_version"]
    versions = {
        _version(row, jax): None
        for library in libraries_in(rows)
        for row in rows
        if row["library"] == library
    }
    commits = sorted({_commit(row["commit"]) for row in rows})
    days = sorted(
        {f"{row['timestamp'][:4]}-{row['timestamp'][4:6]}-{row['timestamp'][6:8]}" for row in rows}
    )
    machine = f"{first['device_name']}, {first['cores']} cores{memory}."
    made_by = f"{', '.join(versions)}, jax {jax}, commit {', '.join(commits)}."
    return (
        f"{machine} {made_by}\n{shown}\nMeasured {' to '.join(dict.fromkeys((days[0], days[-1])))}."
    )


def _version(row: TextRow, jax: str) -> str:
    own = f" (on jax {row['jax_version']})" if row["jax_version"] not in ("", jax) else ""
    return f"{library_of(row['library'])} {row['library_version']}{own}".strip()


def _commit(name: str) -> str:
    return (name[:10] or "unknown") + (" with changes" if name.endswith("-dirty") else "")


def calls_of(rows: Sequence[TextRow]) -> str:
    """Write how many calls stand behind each figure: `11`, or `6 to 15`."""
    counts = sorted(
        int(float(row["samples"])) for row in rows if row["status"] == "ok" and row["samples"]
    )
    return span([f"{count}" for count in counts] or ["1"])


def span(ordered: Sequence[str]) -> str:
    """Write the first and the last of some texts: `2 to 9`, or `2` where they are the same."""
    return " to ".join(dict.fromkeys((ordered[0], ordered[-1])))


def short_number(value: float) -> str:
    """Write a number as the axes do: 100, 10 k, 2.5 M, 1 G."""
    for size, letter in ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= 0.9995 * size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def short_bytes(value: float) -> str:
    """Write a size: 100 B, 2.5 MB."""
    text = short_number(value)
    return f"{text}B" if " " in text else f"{text} B"


def short_times(ratio: float) -> str:
    """Write a ratio: 0.52, 2.4, 126."""
    if ratio < 1:
        return f"{ratio:.2g}"
    return f"{ratio:.1f}" if ratio < 10 else f"{ratio:,.0f}"


def whole(value: float) -> str:
    """Write a whole number in full: 1,024."""
    return f"{value:,.0f}"


def environments(count: float | str) -> str:
    """Write a number of environments: `1 environment`, `10 k environments`."""
    return f"{short_number(float(count))} environment{'' if float(count) == 1 else 's'}"


def number(row: TextRow, column: str) -> float:
    """Return a column as a number, NaN where it is empty."""
    return float(row[column]) if row[column] else math.nan


def numbers(rows: Sequence[TextRow], column: str) -> list[float]:
    """Return a column as numbers, NaN where it is empty."""
    return [number(row, column) for row in rows]


def interval(row: TextRow, name: str = "steps_per_s") -> tuple[float, float, float]:
    """Return a value and the ends of its interval; without one, the value stands for them too."""
    middle = number(row, name)
    low, high = (number(row, f"{name}_{end}") for end in ("low", "high"))
    return middle, middle if math.isnan(low) else low, middle if math.isnan(high) else high


def rate_line(
    axes: Any,
    xs: Sequence[float],
    rows: Sequence[TextRow],
    scales: Sequence[float] | None = None,
    **style: Any,
) -> None:
    """Draw the steps/s of the rows, each times its scale, with bars for intervals."""
    found = [
        tuple(scale * end for end in interval(row))
        for row, scale in zip(rows, scales or [1.0] * len(rows), strict=True)
    ]
    errors = [[m - low for m, low, _ in found], [high - m for m, _, high in found]]
    axes.errorbar(xs, [m for m, *_ in found], yerr=errors, capsize=3, markersize=6, **style)


def size_axis(axes: Any, sizes: Sequence[float], label: str, *, every_tick: bool = False) -> None:
    """Make the x axis logarithmic with short ticks; `every_tick`: a tick at each size."""
    sizes = sorted({size for size in sizes if size > 0})  # a row of a failure may name none
    axes.set(xscale="log", xlabel=label, xlim=(min(sizes) / 1.6, max(sizes) * 1.6))
    axes.xaxis.set_major_formatter(lambda value, _: short_number(value))
    axes.xaxis.set_minor_formatter("")
    if every_tick:
        axes.set_xticks(sizes, [whole(size) for size in sizes], fontsize=9)
        axes.minorticks_off()


def decade_axis(
    axes: Any, values: Sequence[float], write: Any = short_number, along: str = "y"
) -> None:
    """Make an axis logarithmic between powers of ten: a cut axis would distort slopes."""
    known = [value for value in values if value > 0]  # neither NaN nor 0
    axis = axes.yaxis if along == "y" else axes.xaxis
    axes.set(**{f"{along}scale": "log", f"{along}lim": decades(known or [1.0])})
    axis.set_major_formatter(lambda value, _: write(value))
    axis.set_minor_formatter("")


def decades(values: Sequence[float]) -> tuple[float, float]:
    """Return the powers of ten that enclose the values."""
    exponents = math.log10(min(values)), math.log10(max(values) * 1.05)
    return 10 ** math.floor(exponents[0]), 10 ** math.ceil(exponents[1])


def by_key(rows: Sequence[TextRow], *columns: str) -> dict[tuple[str, ...], list[TextRow]]:
    """Return the rows grouped by the values of some columns, in the order of their first rows."""
    groups: dict[tuple[str, ...], list[TextRow]] = {}
    for row in rows:
        groups.setdefault(tuple(row[column] for column in columns), []).append(row)
    return groups


def measured(rows: Sequence[TextRow]) -> list[TextRow]:
    """Return the rows whose measurement succeeded."""
    return [row for row in rows if row["status"] == "ok"]
