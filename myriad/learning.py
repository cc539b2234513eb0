"""The compiled training chunk: any number of a learner's updates in one call, with nothing on the host in between."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from myriad.agents.agent import Learner
from myriad.envs import Environment
from myriad.envs.lanes import LaneEnvironment, Lanes, Transition

# One key per purpose: no two draws share a stream.
_AGENT, _ENVIRONMENTS, _UPDATE = range(3)
_STEP, _RESET = range(2)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
    """Everything that a run needs to go on: its key, the updates done (uint32), the learner's state and the lanes.

    `metric_sums` adds up each update's metrics since the window began, in the order of the updates; the episode
    statistics of the lanes count from there, too.
    """

    key: jax.Array
    num_updates: jax.Array
    agent: Any
    lanes: Lanes
    metric_sums: dict[str, jax.Array]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Report:
    """What the host learns of a chunk: the window's sums so far, and which parts of the state hold a NaN.

    Attributes:
        metric_sums: each metric's sum over the window's updates, float32 scalars.
        num_episodes: episodes that ended in the window, int32 scalar.
        return_sum: the sum of their returns, float32 scalar.
        is_nan: for each of `PARTS`, whether a NaN is in it, boolean `[3]`.
    """

    metric_sums: dict[str, jax.Array]
    num_episodes: jax.Array
    return_sum: jax.Array
    is_nan: jax.Array


PARTS = ("a metric", "the agent's state", "an environment's state")
# A leaf beyond this size is a replay buffer: what it holds came through the lanes, which are looked at.
_LARGE = 1 << 20


class LearningLoop:
    """`num_envs` copies of `env` and the learner, as two pure functions that a jit, a vmap or a mesh may wrap."""

    def __init__(self, env: Environment, learner: Learner, num_envs: int, params: Any = None):
        self.learner, self.num_envs = learner, num_envs
        self.envs = LaneEnvironment(env, num_envs, params)
        self._metrics: tuple[str, ...] | None = None  # their names, once an update has been traced

    def init(self, key: jax.Array) -> TrainState:
        """Reset every environment and draw the learner's first parameters."""
        agent = self.learner.init(jax.random.fold_in(key, _AGENT), self.num_envs)
        lane_keys = self._lane_keys(jax.random.fold_in(key, _ENVIRONMENTS))
        lanes = self.envs.reset(lane_keys, self.envs.params.own)
        if self._metrics is None:
            self._metrics = tuple(jax.eval_shape(self._update, key, agent, lanes)[2])
        zeros = {name: jnp.zeros((), jnp.float32) for name in self._metrics}
        return TrainState(key, jnp.zeros((), jnp.uint32), agent, lanes, zeros)

    def run(self, state: TrainState, num_updates: jax.Array, begin: jax.Array) -> tuple[TrainState, Report]:
        """Do some updates.

        Args:
            state: from `init` or `run`.
            num_updates: how many, int32 scalar: an argument, so that a chunk's remainder is the same program.
            begin: whether a new window of sums begins here, boolean scalar.
        """
        state = _begin_window(state, begin)

        def body(_: jax.Array, state: TrainState) -> TrainState:
            key = jax.random.fold_in(jax.random.fold_in(state.key, _UPDATE), state.num_updates)
            agent, lanes, metrics = self._update(key, state.agent, state.lanes)
            sums = {name: state.metric_sums[name] + value for name, value in metrics.items()}
            return TrainState(state.key, state.num_updates + 1, agent, lanes, sums)

        state = jax.lax.fori_loop(0, num_updates, body, state)
        return state, _report(state)

    def _update(self, key: jax.Array, agent: Any, lanes: Lanes) -> tuple[Any, Lanes, dict[str, jax.Array]]:
        return self.learner.update(key, agent, lanes, self._step)

    def _step(self, key: jax.Array, lanes: Lanes, action: jax.Array) -> tuple[Lanes, Transition]:
        step_keys, reset_keys = (self._lane_keys(jax.random.fold_in(key, purpose)) for purpose in (_STEP, _RESET))
        return self.envs.step(lanes, action, step_keys, reset_keys)

    def _lane_keys(self, key: jax.Array) -> jax.Array:
        lane = jnp.arange(self.num_envs, dtype=jnp.uint32)
        return jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, lane)


def _begin_window(state: TrainState, begin: jax.Array) -> TrainState:
    sums, num_episodes, return_sum = jax.tree.map(
        lambda leaf: jnp.where(begin, jnp.zeros_like(leaf), leaf),
        (state.metric_sums, state.lanes.num_episodes, state.lanes.return_sum),
    )
    lanes = dataclasses.replace(state.lanes, num_episodes=num_episodes, return_sum=return_sum)
    return dataclasses.replace(state, metric_sums=sums, lanes=lanes)


def _report(state: TrainState) -> Report:
    parts = (state.metric_sums, state.agent, (state.lanes.env_state, state.lanes.obs))
    is_nan = jnp.stack([_holds_nan(part) for part in parts])
    lanes = state.lanes
    return Report(state.metric_sums, lanes.num_episodes.sum(), lanes.return_sum.sum(), is_nan)


def _holds_nan(tree: Any) -> jax.Array:
    floats = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.floating) and x.size < _LARGE]
    return jnp.any(jnp.stack([jnp.isnan(leaf).any() for leaf in floats])) if floats else jnp.zeros((), bool)
