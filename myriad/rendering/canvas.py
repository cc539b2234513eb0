"""A small raster canvas in NumPy, with the size and the colours that all pictures of environments share.

Shapes are anti-aliased: a pixel is covered as far as its centre lies inside a shape's edge.
Coordinates are in pixels from the top left corner, x to the right and y down. Words need Pillow.
"""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import numpy as np
from jax.core import Tracer

from myriad.errors import InvalidArgumentError, NotInstalledError

Colour = tuple[int, int, int]
Point = tuple[float, float]
Anchor = Literal["left", "middle", "right"]

HEIGHT, WIDTH = 400, 600

# Okabe and Ito's colours, told apart under every colour blindness.
ORANGE, SKY, GREEN, YELLOW = (230, 159, 0), (86, 180, 233), (0, 158, 115), (240, 228, 66)
BLUE, VERMILLION, PURPLE = (0, 114, 178), (213, 94, 0), (204, 121, 167)
# From light to dark.
WHITE, PAPER, PALE = (255, 255, 255), (250, 250, 247), (234, 235, 232)
FAINT, MUTED, INK = (205, 208, 206), (112, 118, 122), (38, 43, 51)


def one_instance(state: Any) -> Any:
    """Return a state's leaves as NumPy scalars.

    Raises:
        InvalidArgumentError: the state is a batch, or a tracer.
    """
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        name = f"state{jax.tree_util.keystr(path)}"
        if isinstance(leaf, Tracer):
            raise InvalidArgumentError(
                f"render runs on the host, but {name} is traced; call it outside jit and vmap."
            )
        if np.shape(leaf):
            raise InvalidArgumentError(
                f"render draws one instance, but {name} has shape {np.shape(leaf)}; "
                f"choose one of them with jax.tree.map(lambda leaf: leaf[0], state)."
            )
    return jax.tree.map(np.asarray, jax.device_get(state))


def mix(colour: Colour, other: Colour, share: float) -> Colour:
    """Return the colour with `share` of the other one in it, 0 to 1."""
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(colour, other, strict=True))
    return red, green, blue


def direction(angle: float) -> Point:
    """Return the sine and the cosine of an angle in rad, nan where it is not finite."""
    return (math.sin(angle), math.cos(angle)) if math.isfinite(angle) else (math.nan, math.nan)


class Canvas:
    """A picture in the making. A shape that is not finite, or is outside, leaves it as it is.

    Example:
        >>> canvas = Canvas()
        >>> canvas.disc(300, 200, 50, BLUE)
        >>> canvas.image().shape, tuple(canvas.image()[200, 300].tolist()) == BLUE
        ((400, 600, 3), True)
    """

    def __init__(self, height: int = HEIGHT, width: int = WIDTH, colour: Colour = PAPER):
        self._pixels = np.full((height, width, 3), colour, np.float32)

    def image(self) -> np.ndarray:
        """Return the picture, uint8 `[height, width, 3]`."""
        return np.rint(self._pixels).astype(np.uint8)

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
        if right <= left or bottom <= top:
            return
        x0, y0, half_width, half_height = (
            (left + right) / 2,
            (top + bottom) / 2,
            (right - left) / 2,
            (bottom - top) / 2,
        )
        corner = min(corner, half_width, half_height)

        def distance(x: np.ndarray, y: np.ndarray) -> np.ndarray:
            dx, dy = np.abs(x - x0) - half_width + corner, np.abs(y - y0) - half_height + corner
            return (
                np.hypot(np.maximum(dx, 0), np.maximum(dy, 0))
                + np.minimum(np.maximum(dx, dy), 0)
                - corner
            )

        self._fill((left, top, right, bottom), distance, colour)

    def disc(self, x: float, y: float, radius: float, colour: Colour) -> None:
        """Fill a disc."""
        box = (x - radius, y - radius, x + radius, y + radius)
        self._fill(box, lambda px, py: np.hypot(px - x, py - y) - radius, colour)

    def ring(self, x: float, y: float, radius: float, width: float, colour: Colour) -> None:
        """Draw a circle's line, its middle at `radius`."""
        outer = radius + width / 2
        box = (x - outer, y - outer, x + outer, y + outer)
        self._fill(
            box, lambda px, py: np.abs(np.hypot(px - x, py - y) - radius) - width / 2, colour
        )

    def line(self, points: Sequence[Point], width: float, colour: Colour) -> None:
        """Draw a line through two points or more, its ends and its joints round."""
        corners = np.asarray(points, np.float64)
        (left, top), (right, bottom) = corners.min(0) - width / 2, corners.max(0) + width / 2

        def distance(x: np.ndarray, y: np.ndarray) -> np.ndarray:
            nearest = np.full((y.size, x.size), np.inf)
            for (x0, y0), (x1, y1) in itertools.pairwise(corners):
                # Only where this piece can be seen: a curve has hundreds.
                columns = _span(x[0], x0, x1, width / 2 + 1)
                rows = _span(y[:, 0], y0, y1, width / 2 + 1)
                dx, dy, px, py = x1 - x0, y1 - y0, x[:, columns] - x0, y[rows] - y0
                along = np.clip((px * dx + py * dy) / max(dx * dx + dy * dy, 1e-12), 0, 1)
                nearest[rows, columns] = np.minimum(
                    nearest[rows, columns], np.hypot(px - along * dx, py - along * dy)
                )
            return nearest - width / 2

        self._fill((left, top, right, bottom), distance, colour)

    def dashes(
        self, start: Point, end: Point, width: float, colour: Colour, dash: float = 7
    ) -> None:
        """Draw a dashed line, dashes and gaps of equal length."""
        (x0, y0), (x1, y1) = start, end
        if not np.all(np.isfinite((start, end))):
            return
        count = max(1, int(np.hypot(x1 - x0, y1 - y0) // dash)) | 1
        at = [(x0 + (x1 - x0) * i / count, y0 + (y1 - y0) * i / count) for i in range(count + 1)]
        for i in range(0, count, 2):
            self.line(at[i : i + 2], width, colour)

    def polygon(self, points: Sequence[Point], colour: Colour) -> None:
        """Fill a convex polygon, its corners in either order of turning."""
        corners = np.asarray(points, np.float64)
        edges = np.roll(corners, -1, axis=0) - corners
        area = (
            corners[:, 0] * np.roll(corners[:, 1], -1) - corners[:, 1] * np.roll(corners[:, 0], -1)
        ).sum()
        normals = np.stack([edges[:, 1], -edges[:, 0]], 1) * (np.sign(area) or 1)
        normals /= np.maximum(np.hypot(*normals.T), 1e-12)[:, None]

        def distance(x: np.ndarray, y: np.ndarray) -> np.ndarray:
            sides = [
                (x - x0) * nx + (y - y0) * ny
                for (x0, y0), (nx, ny) in zip(corners, normals, strict=True)
            ]
            return functools.reduce(np.maximum, sides)

        (left, top), (right, bottom) = corners.min(0), corners.max(0)
        self._fill((left, top, right, bottom), distance, colour)

    def arrow(self, points: Sequence[Point], width: float, colour: Colour) -> None:
        """Draw a line whose end is an arrow's head, of three widths' length."""
        (x0, y0), (x1, y1) = points[-2:]
        length = np.hypot(x1 - x0, y1 - y0) or 1.0
        dx, dy = (x1 - x0) / length * width, (y1 - y0) / length * width
        self.line(points, width, colour)
        self.polygon(
            [
                (x1 + 3 * dx, y1 + 3 * dy),
                (x1 - 1.8 * dy, y1 + 1.8 * dx),
                (x1 + 1.8 * dy, y1 - 1.8 * dx),
            ],
            colour,
        )

    def text(
        self,
        x: float,
        y: float,
        words: str,
        size: int = 14,
        colour: Colour = INK,
        anchor: Anchor = "left",
    ) -> None:
        """Write a line of words, half its height above `y`.

        Raises:
            NotInstalledError: Pillow is absent.
        """
        if not np.all(np.isfinite((x, y))):
            return
        coverage = _written(words, size)
        height, width = coverage.shape
        left = round(x - {"left": 0, "middle": width / 2, "right": width}[anchor])
        self._blend(round(y - height / 2), left, coverage, colour)

    def heading(self, title: str, note: str) -> None:
        """Write the picture's title at the top left, and a note at the top right."""
        self.text(20, 24, title, size=19)
        self.text(self._pixels.shape[1] - 20, 24, note, size=15, colour=MUTED, anchor="right")

    def _fill(
        self,
        box: tuple[float, float, float, float],
        distance: Callable[[np.ndarray, np.ndarray], np.ndarray],
        colour: Colour,
    ) -> None:
        """Paint where `distance(x, y)`, in pixels and negative inside, says so; `box` holds the whole shape."""
        if not np.all(np.isfinite(box)):
            return
        height, width, _ = self._pixels.shape
        left, top = (
            int(np.clip(np.floor(low) - 1, 0, size))
            for low, size in zip(box[:2], (width, height), strict=True)
        )
        right, bottom = (
            int(np.clip(np.ceil(high) + 1, 0, size))
            for high, size in zip(box[2:], (width, height), strict=True)
        )
        if right > left and bottom > top:
            x, y = np.arange(left, right)[None, :] + 0.5, np.arange(top, bottom)[:, None] + 0.5
            self._blend(top, left, np.clip(0.5 - distance(x, y), 0, 1), colour)

    def _blend(self, top: int, left: int, coverage: np.ndarray, colour: Colour) -> None:
        """Lay the colour over the pixels from (top, left) on, as far as `coverage`, 0 to 1, and the picture reach."""
        rows, columns = (
            slice(max(0, top), max(0, top + coverage.shape[0])),
            slice(max(0, left), max(0, left + coverage.shape[1])),
        )
        under = self._pixels[rows, columns]
        height, width, _ = under.shape
        above, before = max(0, -top), max(0, -left)
        share = coverage[above : above + height, before : before + width, None].astype(np.float32)
        under += (np.asarray(colour, np.float32) - under) * share


def _span(places: np.ndarray, start: float, end: float, margin: float) -> slice:
    """Return which of the ascending places are between start and end, in either order, or within a margin of them."""
    low, high = sorted((start, end))
    return slice(*np.searchsorted(places, [low - margin, high + margin]))


@functools.lru_cache(maxsize=1024)
def _written(words: str, size: int) -> np.ndarray:
    """Return how far each pixel of the written words is covered, float32 `[height, width]`."""
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ImportError as error:
        raise NotInstalledError(
            "pictures need Pillow; install it with: pip install pillow."
        ) from error
    # The font that comes with Pillow: the same letters on every machine.
    font = ImageFont.load_default(size)
    left, _, right, _ = font.getbbox(words, anchor="lm")
    mask = Image.new("L", (max(1, int(np.ceil(right - left)) + 1), 2 * size))
    ImageDraw.Draw(mask).text((-left, size), words, fill=255, font=font, anchor="lm")
    return np.asarray(mask, np.float32) / 255
