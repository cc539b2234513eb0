"""The site's one palette: the colours of badges, and the look of every series.

The series' colours are those of Okabe and Ito, then Tol's muted ones. Readers with any form of
colour blindness can tell them apart. Dashes and markers tell them apart in grey.
"""

from dataclasses import dataclass

BADGE_COLOURS = {"good": "#1a7f4b", "bad": "#b3261e", "quiet": "#5f6670", "plain": "#0b63a5"}
COLOURS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9",
    "#000000", "#882255", "#332288", "#999933", "#44AA99",
)  # fmt: skip
_DASHES = ("7 4", "2 3", "8 3 2 3")
_MARKERS = "osv^DPX<>dhp*"
_DARK_PAPER = "#14171a"  # the dark page's background in style.css
_MIN_CONTRAST = 6.0
_MIN_WHITE_PERCENT = 35  # so that two shades of one colour stay apart


@dataclass(frozen=True)
class Style:
    """The look of a series: a colour for each background, SVG dashes and matplotlib's marker."""

    light: str
    dark: str
    dash: str
    marker: str


def style(place: int, colour: str = "", marker: str = "") -> Style:
    """Return the look of the series at `place`; the first is solid and the others are dashed.

    Args:
        place: where the series stands in the legend, from 0.
        colour: `#RRGGBB`, instead of the palette's colour.
        marker: one of matplotlib's markers, instead of the palette's marker.
    """
    light = colour or COLOURS[place % len(COLOURS)]
    dash = "" if place == 0 else _DASHES[(place - 1) % len(_DASHES)]
    return Style(light, on_dark(light), dash, marker or _MARKERS[place % len(_MARKERS)])


def on_dark(colour: str) -> str:
    """Mix a colour `#RRGGBB` with white until it stands out from the dark page."""
    channels = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
    background = _luminance([int(_DARK_PAPER[at : at + 2], 16) for at in (1, 3, 5)])
    for percent in range(_MIN_WHITE_PERCENT, 100, 5):
        mixed = [round(channel + (255 - channel) * percent / 100) for channel in channels]
        if (_luminance(mixed) + 0.05) / (background + 0.05) >= _MIN_CONTRAST:
            return "#" + "".join(f"{channel:02X}" for channel in mixed)
    return "#FFFFFF"


def _luminance(channels: list[int]) -> float:
    """Return the relative luminance that WCAG 2 defines, between 0 and 1."""
    scaled = [channel / 255 for channel in channels]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in scaled]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
