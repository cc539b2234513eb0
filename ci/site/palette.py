"""The site's one palette: the look of every series.

The series' colours are those of Okabe and Ito, then Tol's muted ones. Readers with any form of
colour blindness can tell them apart. Dashes and markers tell them apart in grey.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

# Each has a lighter shade for the dark page.
COLOURS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9",
    "#000000", "#882255", "#332288", "#999933", "#44AA99",
)  # fmt: skip
_ON_DARK = (
    "#59A3CD", "#E49659", "#59C0A4", "#DEA8C6", "#EFC159", "#91CEF1",
    "#999999", "#BE85A2", "#9990C4", "#BDBD7A", "#85C8BD",
)  # fmt: skip
_DASHES = ("7 4", "2 3", "8 3 2 3")
_DASH_OF = {"-": "", "--": "7 4", ":": "2 3", "-.": "8 3 2 3"}  # matplotlib's names
# matplotlib's markers as SVG paths around 0, for the charts with script and for legends
MARKERS = {
    "o": "M4 0A4 4 0 1 1-4 0A4 4 0 1 1 4 0Z",
    "s": "M-3.5-3.5H3.5V3.5H-3.5Z",
    "v": "M-4.2-3.5H4.2L0 4Z",
    "^": "M-4.2 3.5H4.2L0-4Z",
    "D": "M0-4.8L4.8 0L0 4.8L-4.8 0Z",
    "P": "M-1.5-4.5H1.5V-1.5H4.5V1.5H1.5V4.5H-1.5V1.5H-4.5V-1.5H-1.5Z",
    "X": "M0-2L2.5-4.5L4.5-2.5L2 0L4.5 2.5L2.5 4.5L0 2L-2.5 4.5L-4.5 2.5L-2 0L-4.5-2.5L-2.5-4.5Z",
    "<": "M3.5-4.2V4.2L-4 0Z",
    ">": "M-3.5-4.2V4.2L4 0Z",
    "d": "M0-5L3 0L0 5L-3 0Z",
    "h": "M0-4.5L3.9-2.2V2.2L0 4.5L-3.9 2.2V-2.2Z",
    "p": "M0-4.5L4.3-1.4L2.6 3.6L-2.6 3.6L-4.3-1.4Z",
    "*": "M0-5L1.2-1.6L4.8-1.5L1.9 0.6L2.9 4L0 2L-2.9 4L-1.9 0.6L-4.8-1.5L-1.2-1.6Z",
}


@dataclass(frozen=True)
class Style:
    """The look of a series: a colour for each background, SVG dashes and matplotlib's marker."""

    light: str
    dark: str
    dash: str
    marker: str

    @property
    def path(self) -> str:
        """The marker as an SVG path around 0; a circle for one that we have not drawn."""
        return MARKERS.get(self.marker, MARKERS["o"])


def style(place: int, chosen: Mapping[str, str] = MappingProxyType({})) -> Style:
    """Return the look of the series at `place`; the first is solid and the others are dashed.

    Args:
        place: where the series stands in the legend, from 0.
        chosen: what libraries.toml says instead of the palette: `color` and `dark_color`
            (`#RRGGBB`), and `marker` and `line` in matplotlib's words.
    """
    at = place % len(COLOURS)
    dash = "" if place == 0 else _DASHES[(place - 1) % len(_DASHES)]
    colour = chosen.get("color")
    return Style(
        light=colour or COLOURS[at],
        dark=chosen.get("dark_color") or colour or _ON_DARK[at],
        dash=_DASH_OF.get(chosen.get("line", ""), dash),
        marker=chosen.get("marker") or list(MARKERS)[place % len(MARKERS)],
    )
