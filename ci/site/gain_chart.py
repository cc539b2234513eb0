"""The chart of what arms gain: a dot and its interval per arm, on a logarithmic axis.

Names stand above their dots, and not beside them, so that the chart can be read on a phone.
`ci.site.pages.settings` calls it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from ci.site.charts import DPI, INK, inline
from ci.site.formatting import times
from ci.site.gains import Gain
from ci.site.palette import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH = 520
_ROW = 38
_BOTTOM = 44
_MOST_LETTERS = 46  # of a name: the table below has all of it
# At least this much of the axis is shown: noise of a percent must not look like a mountain.
_LEAST_SHOWN = (0.5, 2.0)
_ALL_TICKS_TO = 30.0  # beyond this ratio of the axis' ends, only powers of ten have ticks


def gain_svg(gains: Sequence[Gain], title: str, axis: str) -> Markup:
    """Draw the gains over the first arm, which the dark rule at 1 stands for.

    Where there are too few rounds for an interval, each round is a small dot.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    height = _ROW * len(gains) + _BOTTOM
    figure = Figure(figsize=(_WIDTH / DPI, height / DPI), dpi=DPI)
    box = (8 / _WIDTH, _BOTTOM / height, (_WIDTH - 16) / _WIDTH, _ROW * len(gains) / height)
    axes = figure.add_axes(box, frameon=False)
    axes.set_xscale("log")
    low, high = _ends(gains)
    axes.set_xlim(low, high)
    axes.set_ylim(0, _ROW * len(gains))
    subs = (1.0, 2.0, 5.0) if high / low < _ALL_TICKS_TO else (1.0,)
    axes.xaxis.set_major_locator(LogLocator(subs=subs))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(NullLocator())
    axes.tick_params(length=0, pad=6, labelcolor=INK["quiet"], labelsize=12)
    ticks = [tick for tick in axes.get_xticks() if low <= tick <= high and tick != 1]
    for place, gain in enumerate(gains):
        top = _ROW * (len(gains) - place)
        words = {"va": "baseline", "size": 12, "color": INK["quiet"]}
        above = (_BOTTOM + top - 14) / height
        figure.text(8 / _WIDTH, above, _shortened(gain.label), ha="left", **words)
        figure.text(1 - 8 / _WIDTH, above, _value(gain), ha="right", **words)
        # Rules beside the dots alone, and none through the words.
        y = top - 27
        axes.vlines(ticks, y - 8, y + 8, color=INK["rule"], linewidth=1, clip_on=False)
        axes.vlines([1], y - 8, y + 8, color=INK["quiet"], linewidth=2, clip_on=False)
        _draw(axes, gain, y)
    below = {"ha": "right", "va": "bottom", "size": 12, "color": INK["quiet"]}
    figure.text(1 - 8 / _WIDTH, 2 / height, axis, **below)
    return inline(figure, "fallback gains", title, [style(0)])


def _draw(axes: "Axes", gain: Gain, y: float) -> None:
    # A line of no length with round ends is a dot, and unlike a marker it needs no id: a page has
    # many of these charts.
    look: dict[str, Any] = {"color": INK["c"], "clip_on": False, "gid": "series-0"}
    if gain.ends:
        axes.hlines(y, *gain.ends, linewidth=2.5, **look)
    else:
        dots = [y] * len(gain.ratios)
        axes.hlines(dots, gain.ratios, gain.ratios, linewidth=3.5, capstyle="round", **look)
    axes.hlines(y, gain.middle, gain.middle, linewidth=9, capstyle="round", **look)


def _ends(gains: Sequence[Gain]) -> tuple[float, float]:
    """Return the ends of an axis that holds every dot, with room beside the outermost."""
    shown = [end for gain in gains for end in (*(gain.ends or gain.ratios), gain.middle)]
    return min(_LEAST_SHOWN[0], min(shown) / 1.15), max(_LEAST_SHOWN[1], max(shown) * 1.15)


def _value(gain: Gain) -> str:
    return f"{times(gain.middle)} ({gain.span})" if gain.ends else times(gain.middle)


def _shortened(name: str) -> str:
    return name if len(name) <= _MOST_LETTERS else f"{name[: _MOST_LETTERS - 1]}…"
