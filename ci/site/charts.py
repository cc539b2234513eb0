"""Charts that need no script: matplotlib's SVG, in the page's own font and colours.

A chart is part of its page, so the page's style sheet gives it its colours on a light and on a dark
background. The charts with script are uPlot's, in `template/charts.js`.
"""

import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from ci.site.formatting import rate
from ci.site.palette import Style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH = 720
DPI = 72  # the SVG's unit, so that a pixel of the figure is one of the viewBox
_SETTINGS: dict[Any, Any] = {
    # Text stays text, which the page's style sheet can reach.
    "svg.fonttype": "none",
    "path.simplify": False,
}
_NO_METADATA = {"Creator": None, "Date": None, "Format": None, "Type": None}
# matplotlib knows no CSS variables, so it draws in these colours and they are replaced
INK = {"quiet": "#010101", "rule": "#010102", "c": "#010103", "link": "#010104", "bad": "#010105"}


@dataclass(frozen=True)
class Line:
    """A series of a scaling chart: sizes, and the median and the interval of the rate at each."""

    style: Style
    sizes: Sequence[float]
    middle: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


def scaling_svg(lines: Sequence[Line], title: str) -> Markup:
    """Draw rates over sizes, both axes logarithmic."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, NullLocator

    height = 380
    figure = Figure(figsize=(_WIDTH / DPI, height / DPI), dpi=DPI)
    axes = figure.add_axes((62 / _WIDTH, 40 / height, 624 / _WIDTH, 328 / height), frameon=False)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: rate(value)))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
    axes.tick_params(length=0, pad=8, labelcolor=INK["quiet"], labelsize=12)
    axes.grid(axis="y", color=INK["rule"], linewidth=1, clip_on=False)
    for place, line in enumerate(lines):
        _draw_series(axes, line, f"series-{place}")
    axes.set_xlim(*_decades([size for line in lines for size in line.sizes]))
    axes.set_ylim(*_decades([rate for line in lines for rate in (*line.low, *line.high)]))
    label = {"ha": "right", "va": "bottom", "size": 12, "color": INK["quiet"]}
    figure.text(1 - 6 / _WIDTH, 2 / height, "environments side by side", **label)
    return inline(figure, "fallback", title, [line.style for line in lines])


def _draw_series(axes: "Axes", line: Line, name: str) -> None:
    width = 2
    # matplotlib counts dashes in line widths
    dashes = tuple(float(part) / width for part in line.style.dash.split())
    bars = {"color": INK["c"], "linewidth": width, "gid": name, "clip_on": False}
    axes.vlines(line.sizes, line.low, line.high, **bars)
    (drawn,) = axes.plot(
        line.sizes,
        line.middle,
        color=INK["c"],
        linewidth=width,
        marker=line.style.marker,
        markersize=8,
        markeredgewidth=0,
        gid=name,
        clip_on=False,
    )
    if dashes:
        drawn.set_dashes(dashes)


def _decades(values: Sequence[float]) -> tuple[float, float]:
    low = math.floor(math.log10(min(values)))
    high = math.ceil(math.log10(max(values)))
    return 10.0**low, 10.0 ** max(high, low + 1)


@dataclass(frozen=True)
class HistoryMarks:
    """Where a history's chart has rules, and the words at the ends of its axes.

    Attributes:
        changes: the places of the measurements where the level changed.
        markers: the places where the machine, the versions or the benchmark changed.
        values: the smallest and the largest value.
        dates: the first and the last date.
    """

    changes: Sequence[int]
    markers: Sequence[int]
    values: tuple[str, str]
    dates: tuple[str, str]


def history_svg(values: Sequence[float], marks: HistoryMarks, title: str) -> Markup:
    """Draw a dot per measurement, a solid rule at each change and a dashed one at each marker.

    The parts are placed by pixel. With matplotlib's axes a chart takes 5 times as long, and a site
    has hundreds of these.
    """
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path
    from matplotlib.transforms import IdentityTransform

    height = 240
    left = 72
    bottom = 26
    figure = Figure(figsize=(_WIDTH / DPI, height / DPI), dpi=DPI)
    pixels = IdentityTransform()
    low = min(values)
    high = max(values)
    # noise of one percent must not fill the chart
    spread = max(high - low, abs(high) * 0.02, 1e-30)
    up = (height - bottom - 20) / spread
    step = (_WIDTH - left - 16) / max(len(values) - 1, 1)

    for places, colour, dashes in ((marks.changes, "bad", ()), (marks.markers, "quiet", (3, 2))):
        for place in places:
            # between the measurement before and this one
            x = left + 8 + (place - 0.5) * step
            rule = Line2D([x, x], [bottom, height], transform=pixels)
            if dashes:
                rule.set_dashes(dashes)
            figure.add_artist(rule)
            rule.set(color=INK[colour], linewidth=1.5, zorder=0)

    points = [
        (round(left + 8 + place * step, 1), round(bottom + 10 + (value - low) * up, 1))
        for place, value in enumerate(values)
    ]
    # A line of no length with round ends is a dot, in a tenth of the bytes of a circle.
    twice = [point for point in points for _ in range(2)]
    path = Path(twice, [Path.MOVETO, Path.LINETO] * len(points))
    path.should_simplify = False  # which would leave the dots out
    style = {"edgecolor": INK["link"], "linewidth": 4, "capstyle": "round", "fill": False}
    figure.add_artist(PathPatch(path, transform=pixels, **style))

    text = {"size": 12, "color": INK["quiet"], "transform": pixels}
    top = bottom + 10 + (high - low) * up
    figure.text(left - 8, bottom + 10, marks.values[0], ha="right", va="center", **text)
    if top > bottom + 30:  # otherwise the two words would overlap
        figure.text(left - 8, top, marks.values[1], ha="right", va="center", **text)
    figure.text(left, 4, marks.dates[0], ha="left", **text)
    figure.text(_WIDTH - 4, 4, marks.dates[1], ha="right", **text)
    return inline(figure, "fallback history", title, [])


def sparkline(
    values: Sequence[float], *, width: int = 120, height: int = 24, max_points: int = 60
) -> Markup:
    """Draw a history as one small line that fills its box; a long one by medians of neighbours.

    It is drawn by hand, because matplotlib takes a hundred times as long and a page lists hundreds.
    """
    step = max(1, math.ceil(len(values) / max_points))
    groups = [sorted(values[at : at + step]) for at in range(0, len(values), step)]
    thinned = [group[len(group) // 2] for group in groups]
    if len(thinned) < 2:
        return Markup("")
    low = min(thinned)
    high = max(thinned)
    spread = max(high - low, abs(high) * 0.04, 1e-30)
    across = (width - 2) / (len(thinned) - 1)
    up = (height - 4) / spread
    middle = (low + high) / 2
    points = " ".join(
        f"{place * across + 1:.0f},{height / 2 - (value - middle) * up:.1f}"
        for place, value in enumerate(thinned)
    )
    return Markup(  # noqa: S704  (numbers alone)
        f'<svg class="spark" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'preserveAspectRatio="none" aria-hidden="true"><polyline points="{points}"/></svg>'
    )


def inline(figure: "Figure", kind: str, title: str, styles: Sequence[Style]) -> Markup:
    """Return the figure as a part of a page, without what only a file of its own needs."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    figure.patch.set_visible(False)
    text = io.StringIO()
    # Markers and clip paths are named by a hash, which must differ between the charts of a page.
    with mpl.rc_context(_SETTINGS), mpl.rc_context({"svg.hashsalt": title}):
        FigureCanvasSVG(figure).print_svg(text, metadata=_NO_METADATA)
    body = text.getvalue().partition('<g id="figure_1">')[2].rpartition("</g>")[0]
    for place, style in enumerate(styles):
        look = f'class="series" style="--light:{style.light};--dark:{style.dark}"'
        body = body.replace(f'id="series-{place}"', look)
    for name, colour in INK.items():
        body = body.replace(colour, f"var(--{name})")
    # Ids that end in a number are alike in all charts, and nothing refers to them.
    body = re.sub(r' id="\w+_\d+"', "", body).replace("xlink:href", "href")
    box = f"0 0 {figure.get_figwidth() * DPI:.0f} {figure.get_figheight() * DPI:.0f}"
    return Markup(  # noqa: S704  (matplotlib escapes its texts, and the title is escaped here)
        f'<svg class="{kind}" viewBox="{box}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>{body}</svg>"
    )
