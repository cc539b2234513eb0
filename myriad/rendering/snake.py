"""Draw the board from above: the snake, the food, and how long it can still go without food."""

import numpy as np

from myriad.envs.snake import DOWN, LEFT, RIGHT, UP, Snake, SnakeState
from myriad.rendering.canvas import (
    BLUE,
    FAINT,
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
_LEFT, _TOP, _SIDE = 20, 44, 336
_AHEAD = {UP: (0, -1), RIGHT: (1, 0), DOWN: (0, 1), LEFT: (-1, 0)}


def draw(env: Snake, state: SnakeState) -> np.ndarray:
    """Draw the state: uint8 `[400, 600, 3]`. The body is darker near the head."""
    state = one_instance(state)
    # Ask the environment when each cell was entered, since only it knows how that is stored.
    moves = np.asarray(env.moves_until_free(state))
    body = np.flatnonzero(moves)[np.argsort(moves[moves > 0])]
    centres = [cell_centre(env, int(cell)) for cell in body]
    side = _SIDE / max(env.height, env.width)
    canvas = Canvas()
    canvas.heading("Snake", f"step {int(state.time) - 3}")
    left, top = cell_centre(env, 0)
    right, bottom = cell_centre(env, env.num_cells - 1)
    edge = side / 2
    canvas.rectangle(left - edge - 3, top - edge - 3, right + edge + 3, bottom + edge + 3, FAINT)
    canvas.rectangle(left - edge, top - edge, right + edge, bottom + edge, WHITE)
    for i in range(len(centres) - 1):  # the tail first
        share = i / max(1, len(centres) - 1)
        canvas.line(centres[i : i + 2], 0.66 * side, mix(SKY, HEAD, 0.8 * share))
    x, y = cell_centre(env, int(state.row) * env.width + int(state.column))
    dx, dy = _AHEAD[int(state.direction)]
    canvas.disc(x, y, 0.44 * side, HEAD)
    for sideways in (-0.19, 0.19):  # its eyes
        eye_x = x + side * (0.17 * dx - sideways * dy)
        eye_y = y + side * (0.17 * dy + sideways * dx)
        canvas.disc(eye_x, eye_y, 0.12 * side, WHITE)
    if state.food >= 0:
        canvas.disc(*cell_centre(env, int(state.food)), 0.3 * side, FOOD)
    patience = 10 * env.num_cells
    canvas.text(400, 120, "length", 14, MUTED)
    canvas.text(400, 146, f"{int(state.length)} of {env.num_cells}", 24)
    canvas.text(400, 206, "steps without food", 14, MUTED)
    canvas.text(400, 232, f"{int(state.hunger)} of {patience}", 24)
    canvas.rectangle(400, 258, 580, 270, PALE)
    canvas.rectangle(400, 258, 400 + 180 * min(1.0, int(state.hunger) / patience), 270, VERMILLION)
    return canvas.image()


def cell_centre(env: Snake, cell: int) -> Point:
    """Return x and y of a cell's centre in the picture."""
    side = _SIDE / max(env.height, env.width)
    left = _LEFT + (_SIDE - side * env.width) / 2
    top = _TOP + (_SIDE - side * env.height) / 2
    return left + side * (cell % env.width + 0.5), top + side * (cell // env.width + 0.5)
