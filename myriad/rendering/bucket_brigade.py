"""Draw the village from above: houses on a ring, and the agents at work or at rest."""

import math
from collections.abc import Sequence

import numpy as np

from myriad.envs.bucket_brigade import (
    BURNING,
    RUINED,
    SAFE,
    WORK,
    BucketBrigade,
    BucketBrigadeState,
)
from myriad.rendering.canvas import (
    BLUE,
    FAINT,
    GREEN,
    INK,
    MUTED,
    ORANGE,
    PALE,
    PURPLE,
    VERMILLION,
    WHITE,
    YELLOW,
    Canvas,
    Colour,
    Point,
    mix,
    one_instance,
)

WALLS: dict[int, Colour] = {SAFE: GREEN, BURNING: VERMILLION, RUINED: MUTED}
_X, _Y, _RING = 200, 220, 138


def draw(env: BucketBrigade, state: BucketBrigadeState) -> np.ndarray:
    """Draw the state: uint8 `[400, 600, 3]`. House 0 is at the top, the others follow clockwise."""
    state = one_instance(state)
    houses = [int(house) for house in state.houses]
    # Neighbours keep a gap, however many there are.
    side = min(38.0, 1.4 * math.pi * _RING / len(houses))
    canvas = Canvas()
    canvas.heading("Bucket brigade", f"night {int(state.night)}")
    canvas.ring(_X, _Y, _RING, side * 0.42, PALE)
    for number, house in enumerate(houses):
        progress = float(state.progress[number]) if state.progress else 0.0
        _draw_house(canvas, house_centre(number, len(houses)), side, house, number, progress)
    _draw_agents(canvas, state, len(houses), side)
    _draw_legend(canvas, houses, [int(mode) for mode in state.modes])
    return canvas.image()


def house_centre(number: int, num_houses: int, inwards: float = 0, aside: float = 0) -> Point:
    """Return a point at a house, or pixels `inwards` and clockwise `aside` from it."""
    angle = 2 * math.pi * number / num_houses
    radius = _RING - inwards
    return (
        _X + radius * math.sin(angle) + aside * math.cos(angle),
        _Y - radius * math.cos(angle) + aside * math.sin(angle),
    )


def _draw_house(
    canvas: Canvas, centre: Point, side: float, house: int, number: int, progress: float
) -> None:
    """Draw a house. One on fire has flames for a roof, and a ruin has no roof."""
    x, y = centre
    half = side / 2
    colour = WALLS[house]
    canvas.rectangle(x - half - 2, y - 0.25 * half - 2, x + half + 2, y + half + 2, WHITE, corner=3)
    if house == SAFE:
        roof = [
            (x - 1.25 * half, y - 0.2 * half),
            (x, y - 1.2 * half),
            (x + 1.25 * half, y - 0.2 * half),
        ]
        canvas.polygon(roof, mix(colour, INK, 0.3))
    elif house == BURNING:
        for aside, height in ((-0.6, 1.1), (0.6, 1.1), (0.0, 1.55)):
            _draw_flame(canvas, (x + aside * half, y), half, height)
    if house == RUINED:
        for edge, towards, height in ((-half, -0.2 * half, 0.3), (half, 0.1 * half, 0.8)):
            canvas.polygon(
                [
                    (x + edge, y + half),
                    (x + edge, y - height * half),
                    (x + towards, y + 0.2 * half),
                ],
                colour,
            )
        canvas.rectangle(x - half, y + 0.05 * half, x + half, y + half, colour, corner=2)
    else:
        canvas.rectangle(x - half, y - 0.25 * half, x + half, y + half, colour, corner=2)
    if side >= 20:
        canvas.text(x, y + 0.46 * half, str(number), round(0.4 * side), WHITE, "middle")
    if progress > 0:
        canvas.rectangle(x - half, y + half + 3, x + half, y + half + 7, FAINT, corner=2)
        canvas.rectangle(
            x - half,
            y + half + 3,
            x - half + side * min(progress, 1.0),
            y + half + 7,
            BLUE,
            corner=2,
        )


def _draw_flame(canvas: Canvas, foot: Point, half: float, height: float) -> None:
    x, y = foot
    for colour, width, share in ((ORANGE, 0.42, 1.0), (YELLOW, 0.22, 0.6)):
        canvas.disc(x, y - 0.3 * half, width * half, colour)
        canvas.polygon(
            [
                (x - width * half, y - 0.35 * half),
                (x, y - height * share * half - 0.1 * half),
                (x + width * half, y - 0.35 * half),
            ],
            colour,
        )


def _draw_agents(canvas: Canvas, state: BucketBrigadeState, num_houses: int, side: float) -> None:
    """Draw the agents inside the ring, two abreast, those at one house behind each other."""
    present: dict[int, list[int]] = {}
    for agent, location in enumerate(state.locations):
        present.setdefault(int(location), []).append(agent)
    # Draw the learner's house last, so that no other agent hides the learner.
    for house, agents in reversed(present.items()):
        row = min(27.0, (_RING - 40) / math.ceil(len(agents) / 2))
        for place, agent in enumerate(agents):
            alone = place == len(agents) - 1 and place % 2 == 0
            aside = 0.0 if alone else (-14.0, 14.0)[place % 2]
            at = house_centre(house, num_houses, 0.62 * side + 22 + row * (place // 2), aside)
            _draw_agent(
                canvas,
                at,
                agent,
                works=int(state.modes[agent]) == WORK,
                signals=bool(state.signals[agent]),
            )


def _draw_agent(canvas: Canvas, centre: Point, agent: int, *, works: bool, signals: bool) -> None:
    """Draw an agent: filled at work, hollow at rest, with a flag if it signals 1."""
    x, y = centre
    colour = BLUE if agent == 0 else PURPLE
    if signals:
        canvas.line([(x + 8, y - 4), (x + 8, y - 19)], 2, INK)
        canvas.polygon([(x + 8, y - 20), (x + 18, y - 16), (x + 8, y - 12)], ORANGE)
    canvas.disc(x, y, 11.5, colour)
    if not works:
        canvas.disc(x, y, 8.5, WHITE)
    canvas.text(x, y, str(agent), 13, WHITE if works else INK, "middle")


def _draw_legend(canvas: Canvas, houses: Sequence[int], modes: Sequence[int]) -> None:
    left = 424
    for i, (house, name) in enumerate(((SAFE, "safe"), (BURNING, "burning"), (RUINED, "ruined"))):
        y = 84 + 44 * i
        _draw_house(canvas, (left, y), 19, house, 0, 0.0)
        canvas.text(left + 24, y + 3, f"{houses.count(house)} {name}", 16)
    workers = sum(mode == WORK for mode in modes)
    for i, (works, words) in enumerate(
        ((True, f"{workers} at work"), (False, f"{len(modes) - workers} at rest"))
    ):
        _draw_agent(canvas, (left, 230 + 34 * i), 0, works=works, signals=False)
        canvas.text(left + 24, 231 + 34 * i, words, 16)
    canvas.line([(left - 5, 306), (left - 5, 290)], 2, INK)
    canvas.polygon([(left - 5, 289), (left + 7, 294), (left - 5, 299)], ORANGE)
    canvas.text(left + 24, 299, "signals 1", 16)
    canvas.text(left - 12, 338, "agent 0 learns", 14, BLUE)
    canvas.text(left - 12, 360, "the others follow a script", 14, mix(PURPLE, INK, 0.35))
