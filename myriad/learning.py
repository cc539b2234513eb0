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

    `metric_sums` adds up each update's metrics since they were last taken, in the order of the updates.
    """

    key: jax.Array
    num_updates: jax.Array
    agent: Any
    lanes: Lanes
    metric_sums: dict[str, jax.Array]


class LearningLoop:
    """`num_envs` copies of `env` and the learner, as two pure functions that a jit, a vmap or a mesh may wrap."""

    def __init__(self, env: Environment, learner: Learner, num_envs: int, params: Any = None):
        self.learner, self.num_envs = learner, num_envs
        self.envs = LaneEnvironment(env, num_envs, params)

    def init(self, key: jax.Array) -> TrainState:
        """Reset every environment and draw the learner's first parameters."""
        agent = self.learner.init(jax.random.fold_in(key, _AGENT), self.num_envs)
        lane_keys = self._lane_keys(jax.random.fold_in(key, _ENVIRONMENTS))
        lanes = self.envs.reset(lane_keys, self.envs.params.own)
        metrics = jax.eval_shape(self._update, key, agent, lanes)[2]
        zeros = {name: jnp.zeros((), jnp.float32) for name in metrics}
        return TrainState(key, jnp.zeros((), jnp.uint32), agent, lanes, zeros)

    def run(self, state: TrainState, num_updates: jax.Array) -> TrainState:
        """Do `num_updates` updates, int32 scalar: an argument, so that a chunk's remainder is the same program."""

        def body(_: jax.Array, state: TrainState) -> TrainState:
            key = jax.random.fold_in(jax.random.fold_in(state.key, _UPDATE), state.num_updates)
            agent, lanes, metrics = self._update(key, state.agent, state.lanes)
            sums = {name: state.metric_sums[name] + value for name, value in metrics.items()}
            return TrainState(state.key, state.num_updates + 1, agent, lanes, sums)

        return jax.lax.fori_loop(0, num_updates, body, state)

    def _update(self, key: jax.Array, agent: Any, lanes: Lanes) -> tuple[Any, Lanes, dict[str, jax.Array]]:
        return self.learner.update(key, agent, lanes, self._step)

    def _step(self, key: jax.Array, lanes: Lanes, action: jax.Array) -> tuple[Lanes, Transition]:
        step_keys, reset_keys = (self._lane_keys(jax.random.fold_in(key, purpose)) for purpose in (_STEP, _RESET))
        return self.envs.step(lanes, action, step_keys, reset_keys)

    def _lane_keys(self, key: jax.Array) -> jax.Array:
        lane = jnp.arange(self.num_envs, dtype=jnp.uint32)
        return jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, lane)
