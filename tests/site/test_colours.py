"""Every reader can tell two lines of a graph apart, also who sees no colour or prints in grey.

Lines of one marker must differ in lightness. This holds for any form of colour blindness, too.
Dashes don't count, because a library that was measured at one size has a marker and no line.
"""

import itertools
import operator

import pytest
from published_results import ROOT

from ci.site.palette import COLOURS, style
from ci.site.project import read_project

LEAST = 10.0  # of CIELAB's lightness, 0 to 100: four times what people notice


def lightness(colour: str) -> float:
    """Return the lightness of a colour `#RRGGBB` of sRGB in CIELAB."""
    given = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = (each / 12.92 if each < 0.04 else ((each + 0.055) / 1.055) ** 2.4 for each in given)
    luminance = sum(map(operator.mul, linear, (0.2126, 0.7152, 0.0722)))
    return 116 * luminance ** (1 / 3) - 16 if luminance > (6 / 29) ** 3 else 903.3 * luminance


@pytest.mark.parametrize("page", ["light", "dark"])
def test_every_pair_of_lines_differs_in_marker_or_lightness(page):
    libraries = read_project(ROOT, ()).libraries
    assert len(libraries) > 10
    # and where nobody has chosen colours
    palette = [style(place) for place in range(len(COLOURS))]
    for looks in ([each.style for each in libraries.values()], palette):
        for one, other in itertools.combinations(looks, 2):
            apart = abs(lightness(getattr(one, page)) - lightness(getattr(other, page)))
            assert one.marker != other.marker or apart >= LEAST, (one, other)
