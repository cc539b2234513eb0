"""Charts that need no script, as SVG in the page's own font and colours.

A chart is part of its page, so the page's style sheet gives it its colours on a light and on a dark
background. The charts with script are uPlot's, in `template/charts.js`.
"""

import io
import math
import re
from collections.abc import Mapping, Sequence

from markupsafe import Markup, escape

from ci.site.formatting import counted, day, quantity, rate
from ci.site.palette import Style
from perfgate.history.benchmark_history import BenchmarkHistory

_WIDTH = 720
_DPI = 72  # the SVG's unit, so that a pixel of the figure is one of the viewBox
# matplotlib knows no CSS variables, so it draws in these colours and they are replaced
_INK = {"quiet": "#010101", "rule": "#010102", "c": "#010103"}
_NO_METADATA = {"Creator": None, "Date": None, "Format": None, "Type": None}


def scaling_svg(lines: Sequence[tuple[Style, Sequence[Mapping[str, str]]]], title: str) -> Markup:
    """Draw rates over numbers of environments, both axes logarithmic.

    Args:
        lines: the look of each line and its rows, whose rates may have an interval.
        title: what a screen reader says.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, NullLocator

    height = 380
    figure = Figure(figsize=(_WIDTH / _DPI, height / _DPI), dpi=_DPI)
    figure.patch.set_visible(False)
    axes = figure.add_axes(
        (62 / _WIDTH, 40 / height, 624 / _WIDTH, 328 / height), frameon=False, autoscale_on=False
    )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: rate(value)))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
    axes.tick_params(length=0, pad=8, labelcolor=_INK["quiet"], labelsize=12)
    axes.grid(axis="y", color=_INK["rule"], linewidth=1, clip_on=False)
    all_sizes: list[float] = []
    all_rates: list[float] = []
    for place, (style, rows) in enumerate(lines):
        sizes = [float(row["num_envs"]) for row in rows]
        middle, low, high = (
            [float(row[f"steps_per_s{end}"] or row["steps_per_s"]) for row in rows]
            for end in ("", "_low", "_high")
        )
        look = {"color": _INK["c"], "linewidth": 2, "gid": f"series-{place}", "clip_on": False}
        axes.vlines(sizes, low, high, **look)
        marker = {"marker": style.marker, "markersize": 8, "markeredgewidth": 0}
        (drawn,) = axes.plot(sizes, middle, **look, **marker)
        if style.dash:  # matplotlib counts dashes in line widths
            drawn.set_dashes([float(part) / 2 for part in style.dash.split()])
        all_sizes += sizes
        all_rates += [*low, *high]
    axes.set_xlim(*_decades(all_sizes))
    axes.set_ylim(*_decades(all_rates))
    label = {"ha": "right", "va": "bottom", "size": 12, "color": _INK["quiet"]}
    figure.text(1 - 6 / _WIDTH, 2 / height, "environments side by side", **label)

    text = io.StringIO()
    # Text stays text, which the page's style sheet can reach. Markers and clip paths are named by a
    # hash, which must differ between the charts of a page.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": title}):
        FigureCanvasSVG(figure).print_svg(text, metadata=_NO_METADATA)
    body = text.getvalue().partition('<g id="figure_1">')[2].rpartition("</g>")[0]
    for place, (style, _) in enumerate(lines):
        look = f'class="series" style="--light:{style.light};--dark:{style.dark}"'
        body = body.replace(f'id="series-{place}"', look)
    for name, colour in _INK.items():
        body = body.replace(colour, f"var(--{name})")
    # Ids that end in a number are alike in all charts, and nothing refers to them.
    body = re.sub(r' id="\w+_\d+"', "", body).replace("xlink:href", "href")
    return _svg("fallback", height, title, body)


def _decades(values: Sequence[float]) -> tuple[float, float]:
    low = math.floor(math.log10(min(values)))
    high = math.ceil(math.log10(max(values)))
    return 10.0**low, 10.0 ** max(high, low + 1)


def history_svg(history: BenchmarkHistory) -> Markup:
    """Draw a dot per measurement, a solid rule at each change, a dashed one at each new setup.

    It is drawn by hand, because matplotlib takes a hundred times as long and a site has hundreds.
    """
    height = 240
    left = 80
    top = 20
    bottom = 204
    values = [point.value for point in history.points]
    low = min(values)
    high = max(values)
    # noise of one percent must not fill the chart
    spread = max(high - low, abs(high) * 0.02, 1e-30)
    step = (_WIDTH - left - 8) / max(len(values) - 1, 1)

    def y(value: float) -> float:
        return bottom - (value - low) * (bottom - top) / spread

    places = {id(point): place for place, point in enumerate(history.points)}
    setups = [point.setup for point in history.points]
    starts = sorted(map(setups.index, set(setups)))
    rules = [(place, "marker") for place in starts[1:]]
    rules += [(places[id(change.point)], "change") for change in history.changes]
    parts = []
    for place, kind in rules:
        # between the measurement before and this one
        x = left + (place - 0.5) * step
        parts.append(f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{bottom + 10}"/>')
    # A line of no length with round ends is a dot.
    dots = (f"M{left + at * step:.1f} {y(value):.1f}h0" for at, value in enumerate(values))
    parts.append(f'<path class="dots" d="{"".join(dots)}"/>')

    unit = history.benchmark.unit
    words: list[tuple[int, float, str, str]] = [
        (left - 14, bottom + 4, "end", quantity(low, unit)),
        (left - 8, height - 6, "start", day(history.points[0].date_s)),
        (_WIDTH - 4, height - 6, "end", day(history.points[-1].date_s)),
    ]
    if y(high) < bottom - 20:  # otherwise the two words would overlap
        words.append((left - 14, y(high) + 4, "end", quantity(high, unit)))
    parts += [
        f'<text x="{x}" y="{down:.1f}" text-anchor="{anchor}">{escape(word)}</text>'
        for x, down, anchor, word in words
    ]
    changes = counted(len(history.changes), "change")
    title = f"{history.benchmark.name}: {counted(len(values), 'measurement')}, {changes} of level"
    return _svg("fallback history", height, title, "".join(parts))


def sparkline(
    values: Sequence[float], *, width: int = 120, height: int = 24, max_points: int = 60
) -> Markup:
    """Draw a history as one small line that fills its box; a long one by medians of neighbours."""
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


def _svg(kind: str, height: int, title: str, body: str) -> Markup:
    return Markup(  # noqa: S704  (texts of the body are escaped, and the title is escaped here)
        f'<svg class="{kind}" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'aria-label="{escape(title)}"><title>{escape(title)}</title>{body}</svg>'
    )
