"""Draw the board from above: the snake, the food, and how long it can still go without food."""

import numpy as np

from myriad.envs.snake import DOWN, LEFT, RIGHT, UP, Snake, SnakeState
from myriad.rendering.canvas import (
    BLUE,
    FAINT,
    GREEN,
    INK,
    MUTED,
    PALE,
    SKY,
    VERMILLION,
    WHITE,
    Canvas,
    Point,
    mix,
    one_instance,
)

HEAD, FOOD = BLUE, VERMILLION
_TAIL = mix(SKY, WHITE, 0.45)
_LEFT, _TOP, _SIDE = 20, 44, 336
_AHEAD = {UP: (0, -1), RIGHT: (1, 0), DOWN: (0, 1), LEFT: (-1, 0)}


def draw(env: Snake, state: SnakeState) -> np.ndarray:
    """Draw the state: uint8 `[400, 600, 3]`. The body is darker near the head."""
    # Ask the environment when each cell was entered, since only it knows how that is stored.
    state = one_instance(state)
    moves = np.asarray(env.moves_until_free(state))
    body = np.flatnonzero(moves)[np.argsort(moves[moves > 0])]
    canvas = Canvas()
    canvas.heading("Snake", f"step {int(state.time) - 3}")
    side = _draw_board(canvas, env)
    _draw_body(canvas, [cell_centre(env, int(cell)) for cell in body], side)
    _draw_head(
        canvas,
        cell_centre(env, int(state.row) * env.width + int(state.column)),
        int(state.direction),
        side,
    )
    if state.food >= 0:
        _draw_food(canvas, cell_centre(env, int(state.food)), side)
    _draw_figures(canvas, env, state)
    return canvas.image()


def cell_side(env: Snake) -> float:
    """Return the side of a cell in pixels."""
    return _SIDE / max(env.height, env.width)


def cell_centre(env: Snake, cell: int) -> Point:
    """Return x and y of a cell's centre in the picture."""
    side = cell_side(env)
    left = _LEFT + (_SIDE - side * env.width) / 2
    top = _TOP + (_SIDE - side * env.height) / 2
    return left + side * (cell % env.width + 0.5), top + side * (cell // env.width + 0.5)


def _draw_board(canvas: Canvas, env: Snake) -> float:
    side = cell_side(env)
    left, top = cell_centre(env, 0)
    right, bottom = cell_centre(env, env.num_cells - 1)
    left = left - side / 2
    top = top - side / 2
    right = right + side / 2
    bottom = bottom + side / 2
    canvas.rectangle(left - 3, top - 3, right + 3, bottom + 3, FAINT, corner=5)
    canvas.rectangle(left, top, right, bottom, WHITE, corner=3)
    if side >= 6:
        for column in range(1, env.width):
            canvas.line([(left + column * side, top), (left + column * side, bottom)], 1, PALE)
        for row in range(1, env.height):
            canvas.line([(left, top + row * side), (right, top + row * side)], 1, PALE)
    return side


def _draw_body(canvas: Canvas, centres: list[Point], side: float) -> None:
    """Join the centres, tail first."""
    for i in range(len(centres) - 1):
        share = i / max(1, len(centres) - 1)
        canvas.line(centres[i : i + 2], 0.66 * side, mix(_TAIL, HEAD, 0.75 * share))


def _draw_head(canvas: Canvas, centre: Point, direction: int, side: float) -> None:
    x, y = centre
    dx, dy = _AHEAD[direction]
    canvas.disc(x, y, 0.44 * side, HEAD)
    for sideways in (-1, 1):
        eye_x = x + side * (0.17 * dx - 0.19 * dy * sideways)
        eye_y = y + side * (0.17 * dy + 0.19 * dx * sideways)
        canvas.disc(eye_x, eye_y, 0.12 * side, WHITE)
        canvas.disc(eye_x + 0.04 * side * dx, eye_y + 0.04 * side * dy, 0.06 * side, INK)


def _draw_food(canvas: Canvas, centre: Point, side: float) -> None:
    x, y = centre
    canvas.disc(x, y + 0.04 * side, 0.3 * side, FOOD)
    canvas.line([(x, y - 0.22 * side), (x + 0.1 * side, y - 0.4 * side)], 0.09 * side, GREEN)


def _draw_figures(canvas: Canvas, env: Snake, state: SnakeState) -> None:
    left = 400
    right = 580
    patience = 10 * env.num_cells
    canvas.text(left, 120, "length", 14, MUTED)
    canvas.text(left, 146, f"{int(state.length)} of {env.num_cells}", 24)
    canvas.text(left, 206, "steps without food", 14, MUTED)
    canvas.text(left, 232, f"{int(state.hunger)} of {patience}", 24)
    canvas.rectangle(left, 258, right, 270, PALE, corner=6)
    filled = left + (right - left) * min(1.0, int(state.hunger) / patience)
    canvas.rectangle(left, 258, filled, 270, VERMILLION, corner=6)
