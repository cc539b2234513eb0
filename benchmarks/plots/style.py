"""What every figure shares: its page and caption, axes, the look of libraries, short numbers.

results.mplstyle beside this file has the rest of the style. figures.py draws on these pages without
pyplot and its global state. `rows` are pandas' tables, as `read_table` returns them.
"""

import contextlib
import math
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.registry import DECLARED, OURS, library_of
from benchmarks.harness.results import provenance

GREY = "#666666"
_UNKNOWN = {"color": "#777777", "marker": "8", "linestyle": ":"}  # a library not known yet
# Letters per inch of the title and of the caption, with room for wide ones.
_TITLE_LETTERS, _CAPTION_LETTERS = 9.8, 15.5


@contextlib.contextmanager
def applied() -> Iterator[None]:
    """Let matplotlib draw and save in our style.

    Raises:
        NotInstalledError: matplotlib is absent.
    """
    from myriad.errors import NotInstalledError

    try:
        import matplotlib.style
    except ImportError as error:
        raise NotInstalledError("a plot", "matplotlib", "bench") from error
    with matplotlib.style.context(Path(__file__).with_name("results.mplstyle")):
        yield


def page(
    title: str, below: str, size: tuple[float, float], grid: tuple[int, int] = (1, 1), **kwargs: Any
) -> Any:
    """Return a figure and its axes [rows, columns], with the title above and the caption below."""
    from matplotlib.figure import Figure

    width, _ = size
    figure = Figure(figsize=size)
    wrapped = textwrap.fill(title, int(width * _TITLE_LETTERS), break_on_hyphens=False)
    figure.suptitle(wrapped, x=0.01, ha="left")
    lines = (textwrap.fill(line, int(width * _CAPTION_LETTERS)) for line in below.split("\n"))
    figure.supxlabel("\n".join(lines), x=0.01, ha="left", fontsize=8, color="#444444")
    return figure, figure.subplots(*grid, squeeze=False, **kwargs)


def caption(rows: Any, shown: str) -> str:
    """Say what a reader needs to judge a figure: machine, versions, commit, what is shown, when."""
    rows = measured(rows)
    days = sorted({f"{at[:4]}-{at[4:6]}-{at[6:8]}" for at in rows.timestamp})
    return f"{'. '.join(provenance(rows.to_dict('records')))}.\n{shown}\nMeasured {span(days)}."


def look_of(library: str) -> dict[str, Any]:
    """Return the colour, marker and dashes of a library, which libraries.toml declares."""
    if library not in DECLARED:
        return _UNKNOWN
    declared = DECLARED[library]
    return {"color": declared.color, "marker": declared.marker, "linestyle": declared.line}


def label_of(library: str) -> str:
    """Return what a legend calls a library."""
    return (library in DECLARED and DECLARED[library].label) or library


def name_of(library: str) -> str:
    """Return the bare name of a library, or the label of another way to run one."""
    return library if library == library_of(library) else label_of(library)


def peer_of(library: str) -> str:
    """Return the peer that a row counts for, also where it ran with our XLA options."""
    return library if library_of(library) == OURS else library_of(library)


def by_library(rows: Any) -> list[tuple[str, Any]]:
    """Return each library with its rows, ours first and the unknown ones last."""
    found = sorted({*rows.library})
    ordered = [name for name in DECLARED if name in found]
    ordered += [name for name in found if name not in DECLARED]
    return [(name, rows[rows.library == name]) for name in ordered]


def measured(rows: Any) -> Any:
    """Return the rows whose measurement succeeded."""
    return rows[rows.status == "ok"]


def interval(rows: Any, name: str = "steps_per_s") -> Any:
    """Return a value and the ends of its interval; without one, the value stands for them too."""
    middle = rows[name]
    ends = (rows[f"{name}_{end}"] for end in ("low", "high"))
    if isinstance(middle, float):
        return middle, *(middle if math.isnan(end) else end for end in ends)
    return middle, *(end.fillna(middle) for end in ends)


def calls_of(rows: Any) -> str:
    """Write how many calls stand behind each figure: `11`, or `6 to 15`."""
    counts = measured(rows).samples.dropna().astype(int)
    return span([f"{count}" for count in sorted(counts)] or ["1"])


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
    """Write a ratio as the site does: 0.52, 1.63, 2.4, 126."""
    return f"{ratio:.2f}" if ratio < 2 else f"{ratio:.1f}" if ratio < 10 else f"{ratio:,.0f}"


def environments(count: float) -> str:
    """Write a number of environments: `1 environment`, `10 k environments`."""
    return f"{short_number(count)} environment{'' if count == 1 else 's'}"


def rate_line(axes: Any, xs: Any, rows: Any, scales: Any = 1.0, **look: Any) -> None:
    """Draw the steps/s of the rows, each times its scale, with bars for intervals."""
    middle, low, high = (scales * end for end in interval(rows))
    axes.errorbar(xs, middle, yerr=[middle - low, high - middle], **look)


def size_axis(axes: Any, sizes: Iterable[float], label: str, *, every_tick: bool = False) -> None:
    """Make the x axis logarithmic with short ticks; `every_tick`: a tick at each size."""
    sizes = sorted({size for size in sizes if size > 0})  # a row of a failure may name none
    axes.set(xscale="log", xlabel=label, xlim=(min(sizes) / 1.6, max(sizes) * 1.6))
    axes.xaxis.set_major_formatter(lambda value, _: short_number(value))
    axes.xaxis.set_minor_formatter("")
    if every_tick:
        axes.set_xticks(sizes, [f"{size:,.0f}" for size in sizes], fontsize=9)
        axes.minorticks_off()


def decade_axis(axis: Any, values: Iterable[float], write: Any = short_number) -> None:
    """Make an axis logarithmic between powers of ten: a cut axis would distort slopes."""
    known = [value for value in values if value > 0] or [1.0]  # neither NaN nor 0
    ends = math.floor(math.log10(min(known))), math.ceil(math.log10(max(known) * 1.05))
    axis.axes.set(
        **{f"{axis.axis_name}scale": "log", f"{axis.axis_name}lim": [10.0**e for e in ends]}
    )
    axis.set_major_formatter(lambda value, _: write(value))
    axis.set_minor_formatter("")
