"""Draw the village from above: houses on a ring, and the agents at work or at rest."""

import math

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
    GREEN,
    INK,
    MUTED,
    ORANGE,
    PURPLE,
    VERMILLION,
    WHITE,
    Canvas,
    Colour,
    Point,
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
    for number, house in enumerate(houses):
        x, y = house_centre(number, len(houses))
        _draw_house(canvas, (x, y), side, house)
        if side >= 20:
            canvas.text(x, y + 0.23 * side, str(number), round(0.4 * side), WHITE, "middle")
        if state.progress:  # how far the house has burnt
            burnt = side * min(float(state.progress[number]), 1.0)
            left, top = x - side / 2, y + side / 2 + 3
            canvas.rectangle(left, top, left + burnt, top + 4, BLUE)
    _draw_agents(canvas, state, len(houses), side)
    for i, (house, name) in enumerate(((SAFE, "safe"), (BURNING, "burning"), (RUINED, "ruined"))):
        _draw_house(canvas, (424, 84 + 44 * i), 19, house)
        canvas.text(448, 87 + 44 * i, f"{houses.count(house)} {name}", 16)
    workers = sum(int(mode) == WORK for mode in state.modes)
    _draw_agent(canvas, (424, 230), "", BLUE, works=True, signals=False)
    canvas.text(448, 231, f"{workers} at work", 16)
    _draw_agent(canvas, (424, 264), "", BLUE, works=False, signals=False)
    canvas.text(448, 265, f"{len(state.modes) - workers} at rest", 16)
    _draw_agent(canvas, (424, 306), "", BLUE, works=False, signals=True)
    canvas.text(448, 299, "signals 1", 16)
    canvas.text(412, 338, "agent 0 learns", 14, BLUE)
    canvas.text(412, 360, "the others follow a script", 14, MUTED)
    return canvas.image()


def house_centre(number: int, num_houses: int, inwards: float = 0, aside: float = 0) -> Point:
    """Return a point at a house, or pixels `inwards` and clockwise `aside` from it."""
    angle = 2 * math.pi * number / num_houses
    radius = _RING - inwards
    return (
        _X + radius * math.sin(angle) + aside * math.cos(angle),
        _Y - radius * math.cos(angle) + aside * math.sin(angle),
    )


def _draw_house(canvas: Canvas, centre: Point, side: float, house: int) -> None:
    """Draw a house. One on fire has a flame for a roof, and a ruin has no roof."""
    x, y = centre
    half = side / 2
    top = y - 0.2 * half
    canvas.rectangle(x - half, top, x + half, y + half, WALLS[house], corner=2)
    if house != RUINED:
        height = half if house == SAFE else 1.5 * half
        roof = [(x - half, top), (x, top - height), (x + half, top)]
        canvas.polygon(roof, GREEN if house == SAFE else ORANGE)


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
            _draw_agent(
                canvas,
                house_centre(house, num_houses, 0.62 * side + 22 + row * (place // 2), aside),
                str(agent),
                BLUE if agent == 0 else PURPLE,
                works=int(state.modes[agent]) == WORK,
                signals=bool(state.signals[agent]),
            )


def _draw_agent(
    canvas: Canvas, centre: Point, name: str, colour: Colour, *, works: bool, signals: bool
) -> None:
    """Draw an agent: filled at work, hollow at rest, with a flag if it signals 1."""
    x, y = centre
    if signals:
        canvas.line([(x + 8, y - 4), (x + 8, y - 19)], 2, INK)
        canvas.polygon([(x + 8, y - 20), (x + 18, y - 16), (x + 8, y - 12)], ORANGE)
    canvas.disc(x, y, 11.5, colour)
    if not works:
        canvas.disc(x, y, 8.5, WHITE)
    canvas.text(x, y, name, 13, WHITE if works else INK, "middle")
