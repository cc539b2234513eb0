"""The snake against a plain Python one, cell by cell; the food's distribution by itself."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chisquare

from myriad import make_key
from myriad.envs.snake import DOWN, LEFT, RIGHT, UP, Snake, SnakeParams

MOVES = {UP: (-1, 0), RIGHT: (0, 1), DOWN: (1, 0), LEFT: (0, -1)}


class PythonSnake:
    """The rules in plain Python: a list of cells, head first; food comes from outside."""

    def __init__(self, height: int, width: int, food: tuple[int, int]):
        row, column = height // 2, max(2, width // 2)
        self.height, self.width, self.food = height, width, food
        self.body = [(row, column), (row, column - 1), (row, column - 2)]
        self.direction, self.hunger = RIGHT, 0

    def after(self, action: int) -> tuple[int, tuple[int, int]]:
        if MOVES[action] == tuple(-d for d in MOVES[self.direction]):
            action = self.direction
        (row, column), (down, right) = self.body[0], MOVES[action]
        return action, (row + down, column + right)

    def is_fatal(self, action: int) -> bool:
        _, (row, column) = self.after(action)
        staying = self.body if (row, column) == self.food else self.body[:-1]
        return not (0 <= row < self.height and 0 <= column < self.width) or (row, column) in staying

    def step(self, action: int) -> tuple[float, bool, bool, bool]:
        """Return reward, terminated, truncated, and whether it ate."""
        self.hunger += 1
        if self.is_fatal(action):
            return -1.0, True, False, False
        self.direction, head = self.after(action)
        self.body.insert(0, head)
        ate = head == self.food
        if ate:
            self.hunger = 0
        else:
            self.body.pop()
        won = len(self.body) == self.height * self.width
        return float(ate), won, not won and self.hunger >= 10 * self.height * self.width, ate

    def free(self) -> set[tuple[int, int]]:
        return {(r, c) for r in range(self.height) for c in range(self.width)} - set(self.body)

    def observation(self) -> np.ndarray:
        obs = np.zeros((self.height, self.width, 3), np.float32)
        obs[(*self.body[0], 0)] = 1
        for moves_left, cell in enumerate(reversed(self.body), start=1):
            obs[(*cell, 1)] = moves_left / (self.height * self.width)
        if self.food is not None:
            obs[(*self.food, 2)] = 1
        return obs


@functools.cache
def batched(env: Snake):
    step = jax.jit(jax.vmap(env.step, (0, 0, 0, None)))
    reset = jax.jit(jax.vmap(env.reset, (0, None)))
    return (lambda *args: step(*args, env.default_params)), lambda keys: reset(
        keys, env.default_params
    )


@functools.cache
def reset_of(env: Snake):
    return jax.jit(env.reset)


@functools.cache
def single(env: Snake):
    return jax.jit(env.step)


def cell_of(env: Snake, food: int) -> tuple[int, int] | None:
    return None if food < 0 else divmod(int(food), env.width)


def choose(rng, snake: PythonSnake, *, careful: bool) -> int:
    """Draw a move; a careful player avoids those that kill and often nears the food."""
    actions = [action for action in MOVES if not snake.is_fatal(action)] if careful else list(MOVES)
    if careful and actions and snake.food is not None and rng.random() < 0.6:
        distances = [
            sum(abs(a - b) for a, b in zip(snake.after(action)[1], snake.food, strict=True))
            for action in actions
        ]
        return actions[int(np.argmin(distances))]
    return int(rng.choice(actions or list(MOVES)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("height", "width", "num_steps"),
    [(12, 12, 300), (5, 7, 200), (2, 3, 60)],
)
def test_random_and_careful_play_equals_the_plain_python_game_cell_by_cell(
    height, width, num_steps
):
    num_envs, rng = 32, np.random.default_rng(0)
    env = Snake(height, width)
    step, reset = batched(env)
    root = make_key(0)
    obs, state = reset(jax.random.split(root, num_envs))
    games = [PythonSnake(height, width, cell_of(env, food)) for food in state.food]
    lengths = []
    for t in range(num_steps):
        keys = jax.random.split(jax.random.fold_in(root, t), 2 * num_envs)
        actions = [choose(rng, game, careful=i % 2 == 0) for i, game in enumerate(games)]
        obs, state, reward, terminated, truncated, _ = step(
            keys[:num_envs], state, jnp.array(actions, jnp.int32)
        )
        flags = np.stack([reward, terminated, truncated], axis=1)
        foods = np.asarray(state.food)
        for i, (game, action) in enumerate(zip(games, actions, strict=True)):
            *expected, ate = game.step(action)
            np.testing.assert_array_equal(flags[i], expected)
            if ate:
                game.food = cell_of(env, foods[i])
                assert game.food in game.free() or (game.food is None and not game.free())
        np.testing.assert_allclose(obs, np.stack([game.observation() for game in games]), rtol=1e-6)
        done = np.asarray(terminated | truncated)
        lengths += np.asarray(state.length)[done].tolist()
        fresh_obs, fresh = reset(keys[num_envs:])
        pick = lambda new, old: jnp.where(done.reshape(-1, *[1] * (new.ndim - 1)), new, old)  # noqa: B023, E731  used at once
        obs, state = jax.tree.map(pick, (fresh_obs, fresh), (obs, state))
        for i in np.flatnonzero(done):
            games[i] = PythonSnake(height, width, cell_of(env, state.food[i]))
    assert max(lengths) >= min(height * width, 15)


@pytest.mark.slow
def test_food_is_uniform_over_the_free_cells():
    env = Snake()
    step, _ = batched(env)
    _, state = reset_of(env)(make_key(0), env.default_params)
    below_head = (state.row + 1) * 12 + state.column
    for action in (DOWN, RIGHT, UP):  # grow a little, so that the body bends over two words
        place = state.row * 12 + state.column + {DOWN: 12, RIGHT: 1, UP: -12}[action]
        state = dataclasses.replace(state, food=place)
        _, state, *_ = single(env)(make_key(action), state, jnp.int32(action), env.default_params)
    assert (int(state.length), int(state.food) == int(below_head)) == (6, False)
    state = dataclasses.replace(state, food=state.row * 12 + state.column - 12)
    num = 138 * 500
    many = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num, *leaf.shape)), state)
    obs, after, *_ = step(jax.random.split(make_key(3), num), many, jnp.full(num, UP, jnp.int32))
    free = np.flatnonzero(np.asarray(obs)[0, :, :, 1].ravel() == 0)
    counts = np.bincount(np.asarray(after.food), minlength=144)
    assert len(free) == 144 - 7
    assert counts[np.setdiff1d(np.arange(144), free)].sum() == 0
    assert chisquare(counts[free]).pvalue > 0.001


def test_the_first_food_is_uniform_over_the_free_cells():
    height, width = 5, 9
    env = Snake(height, width)
    num = (height * width - 3) * 500
    _, state = batched(env)[1](jax.random.split(make_key(4), num))
    counts = np.bincount(np.asarray(state.food), minlength=height * width)
    row, column = height // 2, max(2, width // 2)
    body = row * width + column - np.arange(3)
    assert counts[body].sum() == 0
    assert chisquare(np.delete(counts, body)).pvalue > 0.001


def play(
    env: Snake,
    actions: list[int],
    food: tuple[int, int],
    hunger: int = 0,
    params: SnakeParams = SnakeParams(),  # noqa: B008  frozen
):
    """Play `actions` with the first food at a place; return the last step's results."""
    _, state = reset_of(env)(make_key(0), params)
    state = dataclasses.replace(
        state, food=jnp.int32(food[0] * env.width + food[1]), hunger=jnp.full((), hunger, jnp.int32)
    )
    for i, action in enumerate(actions):
        result = single(env)(make_key(i), state, jnp.int32(action), params)
        state = result[1]
    return result


@pytest.mark.parametrize(
    ("hunger", "food", "action", "flags"),
    [
        (10 * 45 - 2, (0, 0), RIGHT, (False, False)),
        (10 * 45 - 1, (0, 0), RIGHT, (False, True)),
        (10 * 45 - 1, (2, 5), RIGHT, (False, False)),  # the food comes in time
    ],
)
def test_an_episode_without_food_is_truncated_after_ten_boards_of_steps(
    hunger, food, action, flags
):
    _, _, _, terminated, truncated, _ = play(Snake(5, 9), [action], food, hunger)
    assert (bool(terminated), bool(truncated)) == flags


def test_each_step_costs_the_penalty():
    for food, reward in (((0, 0), -0.25), ((2, 5), 0.75)):
        assert (
            float(play(Snake(5, 9), [RIGHT], food, params=SnakeParams(step_penalty=0.25))[2])
            == reward
        )
