"""Every reader can tell two lines of a graph apart: in grey, and with any form of colour blindness.

Dashes don't count, because a library that was measured at one size has a marker and no line.

The matrices are those of Machado, Oliveira and Fernandes, "A Physiologically-based Model for
Simulation of Color Vision Deficiency", IEEE TVCG 15 (6), 2009, for a complete deficiency. They act
on linear RGB. Differences are those of CIELAB: 2.3 is the least that people notice.
"""

import itertools

import numpy as np
import pytest
from published_results import ROOT

from ci.site.palette import COLOURS, Style, style
from ci.site.project import read_project

VISIONS = {
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
    "grey": [[0.2126, 0.7152, 0.0722]] * 3,
    "full": np.eye(3),
}
TO_XYZ = np.array(
    [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
)  # sRGB, IEC 61966-2-1
LEAST = 10.0  # in CIELAB: four times what people notice


def lab(colour: str, vision: str) -> np.ndarray:
    """Return a colour `#RRGGBB` in CIELAB, as a reader with this vision sees it."""
    given = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    linear = np.where(given <= 0.04045, given / 12.92, ((given + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(VISIONS[vision]) @ linear, 0, 1)
    scaled = TO_XYZ @ seen / TO_XYZ.sum(axis=1)
    root = np.where(scaled > (6 / 29) ** 3, np.cbrt(scaled), scaled * (29 / 6) ** 2 / 3 + 4 / 29)
    x, y, z = root
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def difference(one: str, other: str, vision: str) -> float:
    return float(np.linalg.norm(lab(one, vision) - lab(other, vision)))


def alike(looks: dict[str, Style], page: str, vision: str) -> list[tuple[str, str]]:
    """Return the pairs that neither a colour nor a marker tells apart."""
    found = []
    for one, other in itertools.combinations(looks, 2):
        first = looks[one]
        second = looks[other]
        colours = getattr(first, page), getattr(second, page)
        if first.marker == second.marker and difference(*colours, vision) < LEAST:
            found.append((one, other))
    return found


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize("page", ["light", "dark"])
def test_every_pair_of_lines_differs_in_colour_or_marker(page, vision):
    libraries = read_project(ROOT, ()).libraries
    assert len(libraries) > 10
    assert alike({name: each.style for name, each in libraries.items()}, page, vision) == []
    # and where nobody has chosen colours
    palette = {str(place): style(place) for place in range(len(COLOURS))}
    assert alike(palette, page, vision) == []
