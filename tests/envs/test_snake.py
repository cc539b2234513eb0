"""The snake against a plain Python one, cell by cell; the food's distribution by itself."""

import dataclasses

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

    def __init__(self, height: int, width: int, food: tuple[int, int], hunger: int = 0):
        row, column = height // 2, max(2, width // 2)
        self.height, self.width, self.food = height, width, food
        self.body = [(row, column), (row, column - 1), (row, column - 2)]
        self.direction, self.hunger = RIGHT, hunger

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
    [(12, 12, 150), (5, 7, 100), (2, 3, 60)],
)
def test_random_and_careful_play_equals_the_plain_python_game_cell_by_cell(
    height, width, num_steps
):
    num_envs, rng = 32, np.random.default_rng(0)
    env = Snake(height, width)
    step = jax.jit(jax.vmap(env.step, (0, 0, 0, None)))
    reset = jax.jit(jax.vmap(env.reset, (0, None)))
    root = make_key(0)
    params, patience = SnakeParams(step_penalty=0.25), 10 * height * width
    obs, state = reset(jax.random.split(root, num_envs), params)
    # All are hungry at first: some find food in time, and the others are truncated.
    state = dataclasses.replace(state, hunger=jnp.full(num_envs, patience - 9, jnp.int32))

    def cell_of(food):
        return None if food < 0 else divmod(int(food), width)

    games = [PythonSnake(height, width, cell_of(food), patience - 9) for food in state.food]
    lengths, num_starved = [], 0
    for t in range(num_steps):
        keys = jax.random.split(jax.random.fold_in(root, t), 2 * num_envs)
        actions = [choose(rng, game, careful=i % 2 == 0) for i, game in enumerate(games)]
        obs, state, reward, terminated, truncated, _ = step(
            keys[:num_envs], state, jnp.array(actions, jnp.int32), params
        )
        flags = np.stack([reward + 0.25, terminated, truncated], axis=1)
        foods = np.asarray(state.food)
        for i, (game, action) in enumerate(zip(games, actions, strict=True)):
            *expected, ate = game.step(action)
            np.testing.assert_array_equal(flags[i], expected)
            if ate:
                game.food = cell_of(foods[i])
                assert game.food in game.free() or (game.food is None and not game.free())
        np.testing.assert_allclose(obs, np.stack([game.observation() for game in games]), rtol=1e-6)
        done = np.asarray(terminated | truncated)
        lengths += np.asarray(state.length)[done].tolist()
        num_starved += int(truncated.sum())
        fresh = reset(keys[num_envs:], params)
        pick = lambda new, old: jnp.where(done.reshape(-1, *[1] * (new.ndim - 1)), new, old)  # noqa: B023, E731  used at once
        obs, state = jax.tree.map(pick, fresh, (obs, state))
        for i in np.flatnonzero(done):
            games[i] = PythonSnake(height, width, cell_of(state.food[i]))
    assert max(lengths) >= min(height * width, 15)
    assert num_starved > 0 or height == 2


@pytest.mark.slow
def test_food_is_uniform_over_the_free_cells_at_first_and_after_it_was_eaten():
    env = Snake(5, 20)  # the cells of a board are bits of several words
    keys = jax.random.split(make_key(3), 97 * 500)
    first = jax.jit(jax.vmap(env.reset, (0, None)))(keys, SnakeParams())
    before = jax.tree.map(lambda leaf: leaf[0], first[1])
    before = dataclasses.replace(before, food=jnp.int32(2 * env.width + 11))
    step = jax.jit(jax.vmap(env.step, (0, None, None, None)))
    eaten = step(keys, before, jnp.int32(RIGHT), SnakeParams())
    for obs, state in (first, eaten[:2]):
        body = np.asarray(obs)[0, :, :, 1].ravel() > 0
        counts = np.bincount(np.asarray(state.food), minlength=100)
        assert not counts[body].any()
        assert chisquare(counts[~body]).pvalue > 0.001
