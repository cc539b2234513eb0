"""The canvas of every picture of an environment: its size, its colours, and shapes drawn by Pillow.

Coordinates are in pixels from the top left corner, x to the right and y down. Everything here runs
on the host, on one instance of a state.
"""

import functools
from collections.abc import Sequence
from typing import Any, Literal

import jax
import numpy as np

from myriad.errors import InvalidArgumentError

Colour = tuple[int, int, int]
Point = tuple[float, float]
Anchor = Literal["left", "middle", "right"]

HEIGHT, WIDTH = 400, 600
# Pillow draws hard edges. We draw this many times larger and average, which smooths them.
_SCALE = 4
# Pillow uses 32-bit integers, so clip coordinates to this, which is outside every picture.
_FAR = 1e6

# Okabe and Ito's colours, which stay distinguishable with every form of colour blindness.
ORANGE, SKY, GREEN = (230, 159, 0), (86, 180, 233), (0, 158, 115)
BLUE, VERMILLION, PURPLE = (0, 114, 178), (213, 94, 0), (204, 121, 167)
# From light to dark.
WHITE, PAPER, PALE = (255, 255, 255), (250, 250, 247), (234, 235, 232)
FAINT, MUTED, INK = (205, 208, 206), (112, 118, 122), (38, 43, 51)


def one_instance(state: Any) -> Any:
    """Return a state's leaves as NumPy scalars.

    Raises:
        InvalidArgumentError: the state is a batch.
    """
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        if np.shape(leaf):
            name = f"state{jax.tree_util.keystr(path)}"
            raise InvalidArgumentError(
                f"render draws one instance, but {name} has shape {np.shape(leaf)}; "
                f"choose one of them with jax.tree.map(lambda leaf: leaf[0], state)."
            )
    return jax.tree.map(np.asarray, jax.device_get(state))


def mix(colour: Colour, other: Colour, share: float) -> Colour:
    """Return the colour with `share` of the other one in it, 0 to 1."""
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(colour, other, strict=True))
    return red, green, blue


class Canvas:
    """A picture that you draw on. A shape that is outside, or not finite, changes nothing.

    Example:
        >>> canvas = Canvas()
        >>> canvas.disc(300, 200, 50, BLUE)
        >>> canvas.image().shape, tuple(canvas.image()[200, 300].tolist()) == BLUE
        ((400, 600, 3), True)
    """

    def __init__(self, height: int = HEIGHT, width: int = WIDTH):
        from PIL import Image, ImageDraw

        self._width = width
        self._large = Image.new("RGB", (_SCALE * width, _SCALE * height), PAPER)
        self._draw = ImageDraw.Draw(self._large)

    def image(self) -> np.ndarray:
        """Return the picture, uint8 `[height, width, 3]`."""
        return np.array(self._large.reduce(_SCALE))

    def rectangle(
        self,
        left: float,
        top: float,
        right: float,
        bottom: float,
        colour: Colour,
        corner: float = 0,
    ) -> None:
        """Fill a rectangle whose corners are rounded by the radius `corner`."""
        box = _box(left, top, right, bottom)
        if box is not None:
            self._draw.rounded_rectangle(box, _SCALE * corner, fill=colour)

    def disc(self, x: float, y: float, radius: float, colour: Colour) -> None:
        """Fill a disc."""
        box = _box(x - radius, y - radius, x + radius, y + radius)
        if box is not None:
            self._draw.ellipse(box, fill=colour)

    def line(self, points: Sequence[Point], width: float, colour: Colour) -> None:
        """Draw a line through two points or more, its ends and its joints round."""
        if not np.isfinite(points).all():
            return
        self._draw.line(_enlarged(points), colour, round(_SCALE * width))
        for x, y in points:
            self.disc(x, y, width / 2, colour)

    def polygon(self, points: Sequence[Point], colour: Colour) -> None:
        """Fill a polygon, its corners in either order of turning."""
        if np.isfinite(points).all():
            self._draw.polygon(_enlarged(points), fill=colour)

    def text(
        self,
        x: float,
        y: float,
        words: str,
        size: int = 14,
        colour: Colour = INK,
        anchor: Anchor = "left",
    ) -> None:
        """Write a line of words, half its height above `y`."""
        if not np.isfinite((x, y)).all():
            return
        horizontal = {"left": "l", "middle": "m", "right": "r"}[anchor]
        place = _enlarged([(x, y)])[0]
        self._draw.text(place, words, colour, _font(_SCALE * size), anchor=f"{horizontal}m")

    def heading(self, title: str, note: str) -> None:
        """Write the picture's title at the top left, and a note at the top right."""
        self.text(20, 24, title, size=19)
        self.text(self._width - 20, 24, note, size=15, colour=MUTED, anchor="right")


def _box(
    left: float, top: float, right: float, bottom: float
) -> tuple[float, float, float, float] | None:
    """Return the box as Pillow takes it, its last row and column included; None if it is empty."""
    if not np.isfinite((left, top, right, bottom)).all():
        return None
    (x0, y0), (x1, y1) = _enlarged([(left, top), (right, bottom)])
    if x1 <= x0 or y1 <= y0:
        return None
    return x0, y0, x1 - 1, y1 - 1


def _enlarged(points: Sequence[Point]) -> list[tuple[int, int]]:
    corners = np.rint(_SCALE * np.clip(points, -_FAR, _FAR)).astype(int)
    return [(x, y) for x, y in corners.tolist()]


@functools.cache
def _font(size: int) -> Any:
    from PIL import ImageFont

    # The font that comes with Pillow looks the same on every machine.
    return ImageFont.load_default(size)
