"""An environment of one's own: a car too weak to climb the hill has to swing (Moore, 1990).

python examples/my_environment.py
"""

import dataclasses

import jax
import jax.numpy as jnp

from myriad import register_env
from myriad.spaces import Box, Discrete


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class CarState:
    position: jax.Array
    velocity: jax.Array
    time: jax.Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class CarParams:
    power: float = 0.001
    gravity: float = 0.0025
    max_steps: int = 200


@register_env("hill-car")
@dataclasses.dataclass(frozen=True)
class HillCar:
    default_params: CarParams = CarParams()

    def reset(self, key, params):
        position = jax.random.uniform(key, minval=-0.6, maxval=-0.4)
        state = CarState(position, velocity=jnp.float32(0), time=jnp.int32(0))
        return self.observe(state), state

    def step(self, key, state, action, params):
        velocity = (
            state.velocity
            + (action - 1) * params.power
            - jnp.cos(3 * state.position) * params.gravity
        )
        velocity = jnp.clip(velocity, -0.07, 0.07)
        position = jnp.clip(state.position + velocity, -1.2, 0.6)
        state = CarState(position, jnp.where(position == -1.2, 0.0, velocity), state.time + 1)
        reached = position >= 0.5
        time_is_up = state.time >= params.max_steps
        return self.observe(state), state, jnp.float32(-1), reached, time_is_up & ~reached, {}

    def observe(self, state):
        return jnp.stack([state.position, state.velocity])

    def observation_space(self, params):
        return Box(-1.2, 0.6, (2,))

    def action_space(self, params):
        return Discrete(3)


if __name__ == "__main__":
    from myriad import Rollout, check_env, configure, make_agent, make_env

    configure()
    env = make_env("hill-car")
    check_env(env)
    rollout = Rollout(env, make_agent("random", env), num_envs=10_000, scan_chunk_size=200)
    print(rollout.summary(rollout.run(rollout.init(seed=0), num_steps=1_000)))
