"""Eleven environments as other people write them, in plain `jnp` and `jax.random`, and three loops.

`strangers.py` runs them, each loop in a process of its own.
"""

import dataclasses
import os
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.harness.worker import calibrated
from myriad import Rollout, configure, make_agent, make_key
from myriad.spaces import Box, Discrete

# What makes a loop of one's own fast. The pass is left out because it ends the process at indexed
# updates.
OWN_LOOP_FLAGS = (
    "--xla_cpu_prefer_vector_width=512 "
    "--xla_backend_extra_options=xla_cpu_use_multi_output_fusion=true "
    "--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold=1000000000 "
    "--xla_disable_hlo_passes=cpu_multi_output_fusion"
)
_SCAN_STEPS = 64
_State = dict[str, Any]
_Moved = tuple[_State, Any, Any]  # the state, the reward, and whether the episode has ended


@dataclasses.dataclass(frozen=True)
class Stranger:
    """The base: an episode ends after `max_steps`, and its observation is the state's arrays."""

    max_steps: ClassVar = 100
    num_actions: ClassVar = 2
    default_params: Any = ()

    def start(self, key: jax.Array) -> _State:
        """Return the first state."""
        raise NotImplementedError

    def move(self, key: jax.Array, s: _State, action: jax.Array) -> _Moved:
        """Make a step."""
        raise NotImplementedError

    def observe(self, s: _State) -> jax.Array:
        """Return the observation, float32 `[D]`."""
        leaves = [jnp.ravel(s[name]).astype(jnp.float32) for name in sorted(s) if name != "time"]
        return jnp.concatenate(leaves)

    def reset(self, key: jax.Array, params: Any) -> tuple[jax.Array, Any]:
        """Start an episode."""
        s = self.start(key) | {"time": jnp.int32(0)}
        return self.observe(s), s

    def step(
        self, key: jax.Array, state: _State, action: jax.Array, params: Any
    ) -> tuple[jax.Array, _State, jax.Array, jax.Array, jax.Array, dict[str, Any]]:
        """Make a step, and count it."""
        moved, reward, ended = self.move(key, state, action)
        moved = moved | {"time": state["time"] + 1}
        truncated = moved["time"] >= self.max_steps
        return self.observe(moved), moved, jnp.float32(reward), jnp.asarray(ended), truncated, {}

    def observation_space(self, params: Any) -> Box:
        """Return unbounded numbers."""
        shape = jax.eval_shape(lambda: self.reset(jax.random.key(0), params)[0]).shape
        return Box(-np.inf, np.inf, shape)

    def action_space(self, params: Any) -> Discrete:
        """Return the actions."""
        return Discrete(self.num_actions)


class CallCentre(Stranger):
    """Calls of four kinds arrive. The action is the queue that is served."""

    num_actions = 4
    rates = np.array([0.5, 1.0, 1.5, 2.0], np.float32)

    def start(self, key: jax.Array) -> _State:
        return {"queue": jnp.zeros(4)}

    def move(self, key: jax.Array, s: _State, action: jax.Array) -> _Moved:
        arrive, serve = jax.random.split(key)
        # It takes only keys of JAX's own generator.
        arrive = jax.random.wrap_key_data(jax.random.bits(arrive, (2,)), impl="threefry2x32")
        queue = s["queue"] + jax.random.poisson(arrive, self.rates)
        served = jnp.floor(8.0 * jax.random.exponential(serve))
        queue = jnp.maximum(queue.at[action].add(-served), 0.0)
        return {"queue": queue}, -queue.sum(), queue.sum() > 60


class Chain(Stranger):
    """Eight masses with springs between them, four small steps of time for each step."""

    def start(self, key: jax.Array) -> _State:
        return {"x": 0.1 * jax.random.normal(key, (8,)), "v": jnp.zeros(8)}

    def move(self, key: jax.Array, s: _State, action: jax.Array) -> _Moved:
        def substep(carry: Any, _: None) -> tuple[Any, None]:
            x, v = carry
            padded = jnp.pad(x, 1)
            force = padded[2:] - 2 * x + padded[:-2] - 0.1 * v
            v = v + 0.05 * force.at[0].add(2.0 * action - 1.0)
            return (x + 0.05 * v, v), None

        (x, v), _ = jax.lax.scan(substep, (s["x"], s["v"]), None, length=4)
        return {"x": x, "v": v}, -jnp.sum(x**2), jnp.abs(x).max() > 5


class LightsOut(Stranger):
    """A press toggles a light and its neighbours on a board of 6 x 6."""

    num_actions = 36

    def start(self, key: jax.Array) -> _State:
        return {"board": jax.random.bernoulli(key, 0.5, (6, 6))}

    def move(self, key: jax.Array, s: _State, action: jax.Array) -> _Moved:
        row, column = action // 6, action % 6
        board = jnp.pad(s["board"], 1)
        for down, right in ((0, 0), (0, 1), (1, 0), (0, -1), (-1, 0)):
            at = (row + 1 + down, column + 1 + right)
            board = board.at[at].set(~board[at])
        board = board[1:-1, 1:-1]
        return {"board": board}, -jnp.sum(board), ~board.any()


class Cards(Stranger):
    """Guess whether the next card of a shuffled deck is higher."""

    max_steps = 51

    def start(self, key: jax.Array) -> _State:
        return {"deck": jax.random.permutation(key, 52), "top": jnp.int32(0)}

    def move(self, key: jax.Array, s: _State, action: jax.Array) -> _Moved:
        is_higher = s["deck"][s["top"] + 1] % 13 > s["deck"][s["top"]] % 13
        return s | {"top": s["top"] + 1}, is_higher == (action == 1), s["top"] >= 50

    def observe(self, s: _State) -> jax.Array:
        return jax.nn.one_hot(s["deck"][s["top"]] % 13, 13)


class Inventory(Stranger):
    """Three products, whose demand is drawn from twelve sizes."""

    num_actions = 8
    logits = np.log(np.arange(1.0, 37.0, dtype=np.float32).reshape(3, 12))

    def start(self, key: jax.Array) -> _State:
        return {"stock": jnp.full(3, 10.0)}

    def move(self, key: jax.Array, s: _State, action: jax.Array) -> _Moved:
        demand = jax.random.categorical(key, self.logits, axis=-1).astype(jnp.float32)
        ordered = jnp.where((action >> jnp.arange(3)) & 1, 8.0, 0.0)
        stock = jnp.clip(s["stock"] + ordered, 0.0, 30.0)
        sold = jnp.minimum(stock, demand)
        return {"stock": stock - sold}, sold.sum() - 0.1 * stock.sum(), False


class Swarm(Stranger):
    """Eight particles that repel each other."""

    def start(self, key: jax.Array) -> _State:
        return {"x": jax.random.uniform(key, (8, 2), minval=-1.0), "v": jnp.zeros((8, 2))}

    def move(self, key: jax.Array, s: _State, action: jax.Array) -> _Moved:
        apart = s["x"][:, None] - s["x"][None, :]
        squared = jnp.sum(apart**2, axis=-1) + 0.01
        force = jnp.sum(apart / squared[..., None] ** 1.5, axis=1) - s["x"] * (1 + action)
        v = 0.9 * s["v"] + 0.01 * force
        x = s["x"] + v
        return {"x": x, "v": v}, -jnp.mean(x**2), jnp.linalg.norm(x, axis=-1).max() > 4


class Epidemic(Stranger):
    """Susceptible, infected and recovered people. The action closes the schools."""

    def start(self, key: jax.Array) -> _State:
        infected = jax.random.randint(key, (), 1, 10).astype(jnp.float32)
        return {"s": 1_000.0 - infected, "i": infected, "r": jnp.float32(0)}

    def move(self, key: jax.Array, s: _State, action: jax.Array) -> _Moved:
        catch, heal = jax.random.split(key)
        risk = 1 - jnp.exp(-jnp.where(action == 1, 0.1, 0.4) * s["i"] / 1_000)
        caught = jax.random.binomial(catch, s["s"], risk)
        healed = jax.random.binomial(heal, s["i"], 0.1)
        moved = {"s": s["s"] - caught, "i": s["i"] + caught - healed, "r": s["r"] + healed}
        return moved, -caught - 2.0 * action, moved["i"] <= 0


class Maze(Stranger):
    """Walk through a table of walls, and see the window around you."""

    num_actions = 4
    walls = np.pad(np.random.default_rng(0).random((11, 11)) < 0.25, 2, mode="edge")
    moves = np.array([[0, 1], [1, 0], [0, -1], [-1, 0]])

    def start(self, key: jax.Array) -> _State:
        return {"at": jax.random.randint(key, (2,), 2, 13)}

    def move(self, key: jax.Array, s: _State, action: jax.Array) -> _Moved:
        wanted = jnp.clip(s["at"] + jnp.asarray(self.moves)[action], 2, 12)
        at = jnp.where(jnp.asarray(self.walls)[wanted[0], wanted[1]], s["at"], wanted)
        found = (at == 12).all()
        return {"at": at}, found, found

    def observe(self, s: _State) -> jax.Array:
        window = jax.lax.dynamic_slice(self.walls, (s["at"][0] - 2, s["at"][1] - 2), (5, 5))
        return window.ravel().astype(jnp.float32)


class DoublePendulum(Stranger):
    """The classical method of Runge and Kutta over an array of four numbers."""

    def start(self, key: jax.Array) -> _State:
        return {"y": jax.random.uniform(key, (4,), minval=-0.1, maxval=0.1)}

    def move(self, key: jax.Array, s: _State, action: jax.Array) -> _Moved:
        torque = 2.0 * action - 1.0

        def slope(y: jax.Array) -> jax.Array:
            a, b, p, q = y
            c, d = jnp.cos(a - b), jnp.sin(a - b)
            f = torque - q * q * d - 19.6 * jnp.sin(a)
            g = p * p * d - 9.8 * jnp.sin(b)
            return jnp.array([p, q, (f - c * g) / (2 - c * c), (2 * g - c * f) / (2 - c * c)])

        y, h = s["y"], 0.05
        k1 = slope(y)
        k2 = slope(y + h / 2 * k1)
        k3 = slope(y + h / 2 * k2)
        k4 = slope(y + h * k3)
        y = jnp.clip(y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4), -20.0, 20.0)
        height = jnp.cos(y[0]) + jnp.cos(y[1])
        return {"y": y}, -height, height < -1


class Bicycle(Stranger):
    """A vehicle that follows a line in wind."""

    num_actions = 3

    def start(self, key: jax.Array) -> _State:
        return {"pose": jnp.array([0.0, 1.0, 0.0]) + 0.1 * jax.random.normal(key, (3,))}

    def move(self, key: jax.Array, s: _State, action: jax.Array) -> _Moved:
        x, y, heading = s["pose"]
        slip = jnp.arctan2(jnp.tan(0.3 * (action - 1.0)), 2.0)
        gust = 0.05 * jax.random.normal(key)
        pose = jnp.array(
            [
                x + 0.1 * jnp.cos(heading + slip),
                y + 0.1 * jnp.sin(heading + slip) + 0.1 * gust,
                heading + 0.1 * jnp.sin(slip),
            ]
        )
        return {"pose": pose}, -jnp.power(jnp.abs(pose[1]), 1.5), jnp.abs(pose[1]) > 3


class Market(Stranger):
    """Three assets with correlated returns and jumps. The action is the asset that is preferred."""

    num_actions = 3
    covariance = np.array([[1.0, 0.3, 0.1], [0.3, 1.0, 0.2], [0.1, 0.2, 1.0]], np.float32)

    def start(self, key: jax.Array) -> _State:
        return {"price": jnp.ones(3), "wealth": jnp.float32(1)}

    def move(self, key: jax.Array, s: _State, action: jax.Array) -> _Moved:
        drift, jump = jax.random.split(key)
        root = jnp.linalg.cholesky(0.0004 * self.covariance)
        change = root @ jax.random.normal(drift, (3,)) + 0.005 * jax.random.laplace(jump, (3,))
        weights = jax.nn.softmax(2.0 * jax.nn.one_hot(action, 3) - s["price"])
        wealth = s["wealth"] * (1 + jnp.dot(weights, change))
        price = s["price"] * jnp.exp(change)
        return {"price": price, "wealth": wealth}, jnp.log(wealth / s["wealth"]), wealth < 0.5


ENVS: dict[str, Callable[[], Stranger]] = {
    "call centre: poisson with an array of rates, exponential": CallCentre,
    "chain of 8 masses: `normal(key, (8,))` in `reset`, `scan` inside": Chain,
    "lights out 6 x 6: `.at[].set`": LightsOut,
    "cards: permutation of 52 in `reset`": Cards,
    "inventory: categorical demand of 3 x 12": Inventory,
    "swarm of 8: pairwise forces": Swarm,
    "epidemic: binomial": Epidemic,
    "maze: table, window": Maze,
    "double pendulum: Runge-Kutta": DoublePendulum,
    "bicycle: tan, arctan2, power, normal": Bicycle,
    "market: Cholesky, laplace, softmax": Market,
}


def loop(name: str, variant: str, num_envs: int) -> tuple[dict[str, Any], Callable[[], Any]]:
    """Compile a loop, and return its steps in a call of about half a second, and this call."""
    if is_ours := variant.startswith("Rollout"):
        configure()
    env = ENVS[name]()
    run = _rollout(env, num_envs) if is_ours else _own(env, variant, num_envs)
    run(_SCAN_STEPS)
    num_steps = calibrated(run, _SCAN_STEPS, 0.5)
    return {"num_steps": num_steps}, lambda: run(num_steps)


def _rollout(env: Stranger, num_envs: int) -> Callable[[int], Any]:
    rollout = Rollout(env, make_agent("random", env), num_envs)
    state = [rollout.init(0)]

    def run(num_steps: int) -> None:
        state[0] = jax.block_until_ready(rollout.run(state[0], num_steps))

    return run


def _own(env: Stranger, variant: str, num_envs: int) -> Callable[[int], Any]:
    """Build the loop of docs/own_loop.md, which counts the episodes that end."""

    def reset(key: jax.Array) -> Any:
        return jax.vmap(env.reset, (0, None))(jax.random.split(key, num_envs), ())

    def step(carry: Any, key: jax.Array) -> tuple[Any, jax.Array]:
        obs, state, num_ended = carry
        act_key, step_key, reset_key = jax.random.split(key, 3)
        action = jax.random.randint(act_key, (num_envs,), 0, env.num_actions)
        keys = jax.random.split(step_key, num_envs)
        obs, state, reward, terminated, truncated, _ = jax.vmap(env.step, (0, 0, 0, None))(
            keys, state, action, ()
        )
        done = terminated | truncated

        def select(new: jax.Array, old: jax.Array) -> jax.Array:
            return jnp.where(done.reshape(num_envs, *[1] * (new.ndim - 1)), new, old)

        obs, state = jax.tree.map(select, reset(reset_key), (obs, state))
        return (obs, state, num_ended + done), reward.sum()

    @jax.jit
    def steps(carry: Any, key: jax.Array) -> tuple[Any, jax.Array]:
        return jax.lax.scan(step, carry, jax.random.split(key, _SCAN_STEPS))

    key = make_key(0) if variant == "own loop" else jax.random.key(0)
    carry = [(*jax.jit(reset)(key), jnp.zeros(num_envs, jnp.int32))]

    def run(num_steps: int) -> None:
        for number in range(num_steps // _SCAN_STEPS):
            carry[0], _ = steps(carry[0], jax.random.fold_in(key, number))
        jax.block_until_ready(carry[0])

    return run


def environ_of(variant: str) -> dict[str, str]:
    """Return the environment variables of a loop's process."""
    if variant == "own loop":
        return {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {OWN_LOOP_FLAGS}".strip()}
    return {"MYRIAD_VECTOR_MATH": "off"} if variant.endswith("off") else {}
