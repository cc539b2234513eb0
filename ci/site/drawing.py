"""The pictures that need no script: graphs and histories as inline SVG, and the colours of every series."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from ci.site.formatting import rate


@dataclass(frozen=True)
class Style:
    """A series' look, on light paper and on dark; the dashes tell it apart in grey."""

    light: str
    dark: str
    dash: str = ""


# Okabe and Ito's colours, those of benchmarks/plot_results.py, and lighter ones of the same hue for
# a dark page.
STYLES = {
    "myriad": Style("#0072B2", "#58B0E6"),
    "gymnax": Style("#D55E00", "#F0873A", "7 4"),
    "myriad-plain": Style("#56B4E9", "#A6DAF7", "8 3 2 3"),
    "gymnax-configured": Style("#E69F00", "#F2C04D", "2 3"),
    "myriad-jax": Style("#009E73", "#3CCBA0", "7 4"),
    "myriad-jax-configured": Style("#009E73", "#3CCBA0", "2 3"),
    "jumanji": Style("#CC79A7", "#E6A5C9", "7 4"),
    "jumanji-configured": Style("#CC79A7", "#E6A5C9", "2 3"),
    "numpy": Style("#000000", "#E8E8E8", "2 3"),
}
# For libraries that have none of their own: Tol's muted scheme, also told apart under every colour
# blindness.
_SPARE = (
    Style("#882255", "#D67AA8", "7 4"), Style("#999933", "#CFCF6B", "7 4"), Style("#332288", "#9A8CF0", "7 4"),
    Style("#44AA99", "#7FD8CA", "7 4"), Style("#AA4499", "#DE8FD2", "7 4"), Style("#661100", "#D9836F", "7 4"),
)  # fmt: skip


@dataclass(frozen=True)
class Line:
    """A series of a scaling graph: sizes, and the middle and the ends of the interval of each rate."""

    name: str
    sizes: Sequence[float]
    middle: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


def styles_of(libraries: Sequence[str]) -> dict[str, Style]:
    """Return the style of each library, ours first; those without their own get one by the order of their names."""
    found = {name: style for name, style in STYLES.items() if name in libraries}
    unknown = [name for name in sorted(set(libraries)) if name not in STYLES]
    return found | {name: _SPARE[place % len(_SPARE)] for place, name in enumerate(unknown)}


def scaling_svg(lines: Sequence[Line], styles: dict[str, Style], title: str) -> Markup:
    """Draw rates over sizes, both axes logarithmic."""
    width, height, left, right, top, bottom = 720, 380, 62, 34, 12, 40
    sizes = [size for line in lines for size in line.sizes]
    rates = [value for line in lines for value in (*line.low, *line.high)]
    x_low, x_high = math.floor(math.log10(min(sizes))), math.ceil(math.log10(max(sizes)))
    y_low, y_high = math.floor(math.log10(min(rates))), math.ceil(math.log10(max(rates)))
    x_high, y_high = max(x_high, x_low + 1), max(y_high, y_low + 1)

    def x(size: float) -> float:
        return left + (math.log10(size) - x_low) / (x_high - x_low) * (width - left - right)

    def y(value: float) -> float:
        return height - bottom - (math.log10(value) - y_low) / (y_high - y_low) * (height - top - bottom)

    parts = [
        f'<line class="grid" x1="{left}" x2="{width - right}" y1="{y(10.0**e):.1f}" y2="{y(10.0**e):.1f}"/>'
        f'<text class="tick" text-anchor="end" x="{left - 8}" y="{y(10.0**e) + 4:.1f}">{rate(10.0**e)}</text>'
        for e in range(y_low, y_high + 1)
    ]
    parts += [
        f'<text class="tick" text-anchor="middle" x="{x(10.0**e):.1f}" y="{height - bottom + 18}">{10**e:,}</text>'
        for e in range(x_low, x_high + 1)
    ]
    parts.append(
        f'<text class="tick" text-anchor="end" x="{width - 6}" y="{height - 4}">environments side by side</text>'
    )
    parts += [_series(line, styles[line.name], x, y) for line in lines]
    return Markup(  # noqa: S704  (numbers, and a title that is escaped)
        f'<svg class="fallback" viewBox="0 0 {width} {height}" role="img"><title>{escape(title)}</title>'
        f"{''.join(parts)}</svg>"
    )


def _series(line: Line, style: Style, x: Callable[[float], float], y: Callable[[float], float]) -> str:
    points = list(zip(line.sizes, line.middle, line.low, line.high, strict=True))
    path = " ".join(f"{x(size):.1f},{y(value):.1f}" for size, value, _, _ in points)
    intervals = "".join(f"M{x(size):.1f} {y(low):.1f}V{y(high):.1f}" for size, _, low, high in points)
    dots = "".join(f'<circle cx="{x(size):.1f}" cy="{y(value):.1f}" r="3"/>' for size, value, _, _ in points)
    return (
        f'<g class="series" style="--light:{style.light};--dark:{style.dark}">'
        f'<polyline points="{path}" stroke-dasharray="{style.dash}"/><path d="{intervals}"/>{dots}</g>'
    )


def sparkline(values: Sequence[float], *, width: int = 120, height: int = 24, max_points: int = 60) -> Markup:
    """Draw a history as one small line that fills its box; long ones by the median of every few commits."""
    step = max(1, math.ceil(len(values) / max_points))
    thinned = [sorted(values[at : at + step])[len(values[at : at + step]) // 2] for at in range(0, len(values), step)]
    if len(thinned) < 2:
        return Markup("")
    low, high = min(thinned), max(thinned)
    # noise of a percent shall not look like a mountain
    spread = max(high - low, abs(high) * 0.04, 1e-30)
    middle = (low + high) / 2
    points = " ".join(
        f"{place * (width - 2) / (len(thinned) - 1) + 1:.0f},"
        f"{height / 2 - (value - middle) / spread * (height - 4):.1f}"
        for place, value in enumerate(thinned)
    )
    return Markup(  # noqa: S704  (numbers alone)
        f'<svg class="spark" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'preserveAspectRatio="none" aria-hidden="true">'
        f'<polyline points="{points}"/></svg>'
    )


def history_svg(values: Sequence[float], changes: Sequence[int], markers: Sequence[int], title: str) -> Markup:
    """Draw a benchmark's history: a dot per measurement, a line where the level changed, a dashed one at a marker."""
    width, height = 720, 240
    low, high = min(values), max(values)
    spread = max(high - low, abs(high) * 0.02, 1e-30)

    def x(place: int) -> float:
        return 8 + place / max(len(values) - 1, 1) * (width - 16)

    dots = "".join(
        f"M{x(place):.1f} {height - 10 - (value - low) / spread * (height - 20):.1f}h0"
        for place, value in enumerate(values)
    )
    rules = [(place, "change") for place in changes] + [(place, "marker") for place in markers]
    lines = "".join(
        f'<line class="{kind}" x1="{x(at) - 1:.1f}" x2="{x(at) - 1:.1f}" y1="0" y2="{height}"/>' for at, kind in rules
    )
    return Markup(  # noqa: S704  (numbers, and a title that is escaped)
        f'<svg class="fallback history" viewBox="0 0 {width} {height}" role="img"><title>{escape(title)}</title>'
        f'{lines}<path class="dots" d="{dots}"/></svg>'
    )
