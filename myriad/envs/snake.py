"""The grid game: eat, grow, and hit neither the wall nor yourself.

A board is a set of cells, and here a set is a few 32-bit words: cell `c` is bit `c % 32` of word `c
// 32`. Each word is a leaf, so a step is logic on whole words, in loops over environments. With an
array of cells it took 32 times as long. The time at which each cell was entered is also stored in
such sets, as bit planes: plane `b` is the set of cells whose time has bit `b`.
"""

import dataclasses
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np

from myriad.canvas import (
    BLUE,
    FAINT,
    MUTED,
    SKY,
    VERMILLION,
    WHITE,
    Canvas,
    Point,
    mix,
    one_instance,
)
from myriad.envs.environment import Finite
from myriad.errors import InvalidArgumentError
from myriad.ranges import Integer, require_ranges
from myriad.spaces import Box, Discrete

__all__ = ["Snake"]

Cells = tuple[jax.Array, ...]

UP, RIGHT, DOWN, LEFT = range(4)
START_LENGTH = 3
_WORD = 32
# Bounded, since a step is unrolled over words. A board of this size compiles in about a minute.
_MOST_CELLS = 4096


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class SnakeState:
    """A board. Cells are numbered row by row; scalars are int32, words uint32.

    Attributes:
        occupied: the cells under the snake.
        entered: bit planes of the time, modulo a power of two, at which the head entered each
            occupied cell.
        row: row of the head.
        column: column of the head.
        direction: direction of the last move, 0 to 3: up, right, down, left.
        food: cell of the food, or -1 on a full board.
        length: number of cells of the snake.
        time: moves since the reset, plus the start length.
        hunger: steps since the reset or the last food.
    """

    occupied: Cells
    entered: tuple[Cells, ...]
    row: jax.Array
    column: jax.Array
    direction: jax.Array
    food: jax.Array
    length: jax.Array
    time: jax.Array
    hunger: jax.Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class SnakeParams:
    """The cost of each step, in addition to other rewards."""

    step_penalty: Finite = 0.0


@dataclasses.dataclass(frozen=True)
class Snake:
    """Move up (0), right (1), down (2) or left (3). Food +1, death -1, each step `-step_penalty`.

    A turn by 180 degrees is ignored, and the snake goes straight on. Food appears on any free cell
    with the same probability. The head may enter the cell that the tail leaves in the same step. A
    fatal move ends the episode and leaves the board as it was. The food that fills the board is
    worth +1 like any other, and this win ends the episode. An episode is truncated after `10 *
    height * width` steps without food. The start is always the same except for the food: three
    cells in the middle row, heading right.

    Observation: float32 `[height, width, 3]`. Channel 0 is one at the head. Channel 1 is, for each
    cell of the snake, the number of moves until it is free again if the snake doesn't eat (1 at the
    tail, the length at the head), over `height * width`. Channel 2 is one at the food.
    """

    height: Annotated[int, Integer(1, _MOST_CELLS)] = 12
    width: Annotated[int, Integer(START_LENGTH, _MOST_CELLS)] = 12
    default_params: SnakeParams = SnakeParams()

    def __post_init__(self) -> None:
        require_ranges(self)
        if not START_LENGTH < self.num_cells <= _MOST_CELLS:
            rule = f"must be {START_LENGTH + 1} to {_MOST_CELLS:,} cells"
            raise InvalidArgumentError("height x width", rule, self.num_cells)

    @property
    def num_cells(self) -> int:
        return self.height * self.width

    def reset(self, key: jax.Array, params: SnakeParams) -> tuple[jax.Array, SnakeState]:
        """Lay the snake in the middle and draw the food."""
        row = self.height // 2
        column = max(START_LENGTH - 1, self.width // 2)
        tail = row * self.width + column - START_LENGTH + 1
        free = _below(jax.random.bits(key), jnp.uint32(self.num_cells - START_LENGTH))
        body = [tail + i for i in range(START_LENGTH)]
        scalars = {
            "row": row,
            "column": column,
            "direction": RIGHT,
            "length": START_LENGTH,
            "time": START_LENGTH,
        }
        state = SnakeState(
            occupied=self._constant(body),
            entered=tuple(
                self._constant([cell for i, cell in enumerate(body, start=1) if i >> plane & 1])
                for plane in range(self.num_cells.bit_length())
            ),
            # The body's cells have consecutive numbers, so free cells are those below and above.
            food=free + jnp.where(free >= tail, START_LENGTH, 0),
            hunger=jnp.zeros((), jnp.int32),
            **{name: jnp.full((), value, jnp.int32) for name, value in scalars.items()},
        )
        return self.observe(state), state

    def step(
        self, key: jax.Array, state: SnakeState, action: jax.Array, params: SnakeParams
    ) -> tuple[jax.Array, SnakeState, jax.Array, jax.Array, jax.Array, dict[str, Any]]:
        """Move by one cell. One random word places the next food."""
        moved, ate, died = self.move(state, self.action_space(params).validate(action))
        won = moved.length == self.num_cells
        placed = jnp.where(won, -1, self.draw_free_cell(jax.random.bits(key), moved))
        state = dataclasses.replace(moved, food=jnp.where(ate, placed, moved.food))
        reward = ate.astype(jnp.float32) - died.astype(jnp.float32) - params.step_penalty
        terminated = died | won
        truncated = ~terminated & (state.hunger >= 10 * self.num_cells)
        return self.observe(state), state, reward, terminated, truncated, {}

    def move(self, state: SnakeState, action: jax.Array) -> tuple[SnakeState, jax.Array, jax.Array]:
        """Move the snake but not the food. Return the state, whether it ate and whether it died."""
        # Opposite directions differ by two.
        direction = jnp.where(action == state.direction ^ 2, state.direction, action).astype(
            jnp.int32
        )
        row = state.row + (direction == DOWN) - (direction == UP)
        column = state.column + (direction == RIGHT) - (direction == LEFT)
        inside = (row >= 0) & (row < self.height) & (column >= 0) & (column < self.width)
        cell = row * self.width + column
        ate = inside & (cell == state.food)
        head = self._cell(cell)
        # The tail is the occupied cell that was entered first.
        tail = state.occupied
        first = _spread_bits(state.time - state.length + 1, len(state.entered))
        for plane, bits in zip(state.entered, first, strict=True):
            tail = tuple(
                word & ~(entered ^ bits) for word, entered in zip(tail, plane, strict=True)
            )
        # Food is on a free cell, so a step that eats can't collide, whether or not the tail leaves.
        hit = jnp.uint32(0)
        for word, left, h in zip(state.occupied, tail, head, strict=True):
            hit = hit | (word & ~left & h)
        alive = inside & ~(hit != 0)
        head = _only_if(alive, head)
        tail = _only_if(alive & ~ate, tail)
        time = state.time + alive
        moved = SnakeState(
            occupied=tuple(
                (word & ~t) | h for word, h, t in zip(state.occupied, head, tail, strict=True)
            ),
            entered=tuple(
                tuple((word & ~h) | (h & bits) for word, h in zip(plane, head, strict=True))
                for plane, bits in zip(
                    state.entered, _spread_bits(time, len(state.entered)), strict=True
                )
            ),
            row=jnp.where(alive, row, state.row),
            column=jnp.where(alive, column, state.column),
            direction=jnp.where(alive, direction, state.direction),
            food=state.food,
            length=state.length + ate,
            time=time,
            hunger=jnp.where(ate, 0, state.hunger + 1),
        )
        return moved, ate, ~alive

    def draw_free_cell(self, bits: jax.Array, state: SnakeState) -> jax.Array:
        """Choose a free cell by one uniform uint32 word, with bias below `num_cells / 2**32`."""
        rank = _below(bits, (self.num_cells - state.length).astype(jnp.uint32))
        board = self._constant(range(self.num_cells))
        chosen = jnp.zeros_like(bits)
        offset = jnp.zeros_like(rank)
        first_rank = jnp.zeros_like(rank)
        # The last word whose first free cell has no greater rank holds the one that is wanted.
        below = jnp.zeros_like(rank)
        # `valid` leaves out the bits of the last word that are beyond the board.
        for i, (word, valid) in enumerate(zip(state.occupied, board, strict=True)):
            free = ~word & valid
            here = rank >= below
            chosen = jnp.where(here, free, chosen)
            offset = jnp.where(here, _WORD * i, offset)
            first_rank = jnp.where(here, below, first_rank)
            below = below + _count(free)
        return offset + _nth_set_bit(chosen, rank - first_rank)

    def observe(self, state: SnakeState) -> jax.Array:
        """Return the observation of a state, float32 `[height, width, 3]`."""
        cells = jnp.arange(self.num_cells)
        head = cells == state.row * self.width + state.column
        age = self.moves_until_free(state) * np.float32(1 / self.num_cells)
        planes = [head.astype(jnp.float32), age, (cells == state.food).astype(jnp.float32)]
        return jnp.stack(planes, axis=-1).reshape(self.height, self.width, 3)

    def moves_until_free(self, state: SnakeState) -> jax.Array:
        """Return how many moves each cell stays occupied without food, int32 `[height * width]`."""
        position = jnp.arange(_WORD, dtype=jnp.uint32)
        before_tail = state.time - state.length
        # Times are stored modulo a power of two, so take their difference modulo it as well.
        mask = (1 << len(state.entered)) - 1
        moves = []
        for word, *planes in zip(state.occupied, *state.entered, strict=True):
            entered = sum(
                (plane >> position & 1).astype(jnp.int32) << b for b, plane in enumerate(planes)
            )
            moves.append(jnp.where((word >> position & 1) == 1, (entered - before_tail) & mask, 0))
        return jnp.concatenate(moves)[: self.num_cells]

    def observation_space(self, params: SnakeParams) -> Box:
        return Box(0.0, 1.0, (self.height, self.width, 3))

    def action_space(self, params: SnakeParams) -> Discrete:
        return Discrete(4)

    def render(self, state: SnakeState) -> np.ndarray:
        """Draw the state: uint8 `[400, 600, 3]`. The body is darker near the head."""
        state = one_instance(state)
        # Ask the environment when each cell was entered, since only it knows how that is stored.
        moves = np.asarray(self.moves_until_free(state))
        body = np.flatnonzero(moves)[np.argsort(moves[moves > 0])]
        centres = [_cell_centre(self, int(cell)) for cell in body]
        side = _SIDE / max(self.height, self.width)
        canvas = Canvas()
        canvas.heading("Snake", f"step {int(state.time) - 3}")
        left, top = _cell_centre(self, 0)
        right, bottom = _cell_centre(self, self.num_cells - 1)
        edge = side / 2
        canvas.rectangle(
            left - edge - 3, top - edge - 3, right + edge + 3, bottom + edge + 3, FAINT
        )
        canvas.rectangle(left - edge, top - edge, right + edge, bottom + edge, WHITE)
        for i in range(len(centres) - 1):  # the tail first
            share = i / max(1, len(centres) - 1)
            canvas.line(centres[i : i + 2], 0.66 * side, mix(SKY, _HEAD, 0.8 * share))
        x, y = _cell_centre(self, int(state.row) * self.width + int(state.column))
        dx, dy = _AHEAD[int(state.direction)]
        canvas.disc(x, y, 0.44 * side, _HEAD)
        for sideways in (-0.19, 0.19):  # its eyes
            eye_x = x + side * (0.17 * dx - sideways * dy)
            eye_y = y + side * (0.17 * dy + sideways * dx)
            canvas.disc(eye_x, eye_y, 0.12 * side, WHITE)
        if state.food >= 0:
            canvas.disc(*_cell_centre(self, int(state.food)), 0.3 * side, _FOOD)
        canvas.text(400, 120, "length", 14, MUTED)
        canvas.text(400, 146, f"{int(state.length)} of {self.num_cells}", 24)
        canvas.text(400, 206, "steps without food", 14, MUTED)
        canvas.text(400, 232, f"{int(state.hunger)} of {10 * self.num_cells}", 24)
        return canvas.image()

    def _cell(self, cell: jax.Array) -> Cells:
        """Return the set of one cell, or the empty set if `cell` is beyond the last word."""
        bit = jnp.uint32(1) << (cell & (_WORD - 1)).astype(jnp.uint32)
        return tuple(jnp.where(cell >> 5 == i, bit, jnp.uint32(0)) for i in range(self._num_words))

    def _constant(self, cells: Any) -> Cells:
        words = [0] * self._num_words
        for cell in cells:
            words[cell // _WORD] |= 1 << cell % _WORD
        return tuple(jnp.full((), word, jnp.uint32) for word in words)

    @property
    def _num_words(self) -> int:
        return -(-self.num_cells // _WORD)


def _only_if(condition: jax.Array, cells: Cells) -> Cells:
    return tuple(jnp.where(condition, word, jnp.uint32(0)) for word in cells)


def _spread_bits(number: jax.Array, num_bits: int) -> list[jax.Array]:
    """Return for each bit of `number`, lowest first, a word of that bit alone."""
    # Negating an unsigned 1 gives a word of ones, so no comparison is needed.
    return [-(number.astype(jnp.uint32) >> b & 1) for b in range(num_bits)]


def _below(bits: jax.Array, n: jax.Array) -> jax.Array:
    """Map a uniform uint32 word to 0 to `n - 1`, int32: `bits * n // 2**32`, n below 2**16."""
    # In two halves, since JAX has no 64-bit integers by default.
    high = bits >> 16
    low = bits & 0xFFFF
    return ((high * n + (low * n >> 16)) >> 16).astype(jnp.int32)


def _count(word: jax.Array) -> jax.Array:
    return jax.lax.population_count(word).astype(jnp.int32)


def _nth_set_bit(word: jax.Array, n: jax.Array) -> jax.Array:
    """Return the position of set bit number `n` of `word`, where the lowest is number 0."""
    position = jnp.zeros_like(n)
    for width in (16, 8, 4, 2, 1):
        low = _count(word & jnp.uint32((1 << width) - 1))
        above = n >= low
        n = jnp.where(above, n - low, n)
        word = jnp.where(above, word >> width, word)
        position = jnp.where(above, position + width, position)
    return position


# --- the picture

_HEAD, _FOOD = BLUE, VERMILLION
_LEFT, _TOP, _SIDE = 20, 44, 336
_AHEAD = {UP: (0, -1), RIGHT: (1, 0), DOWN: (0, 1), LEFT: (-1, 0)}


def _cell_centre(env: Snake, cell: int) -> Point:
    """Return x and y of a cell's centre in the picture."""
    side = _SIDE / max(env.height, env.width)
    left = _LEFT + (_SIDE - side * env.width) / 2
    top = _TOP + (_SIDE - side * env.height) / 2
    return left + side * (cell % env.width + 0.5), top + side * (cell // env.width + 0.5)
