"""The environment of my_environment.py written for gymnax, to compare their speed."""

import jax
import jax.numpy as jnp
from flax import struct
from gymnax.environments import environment, spaces


@struct.dataclass
class CarState(environment.EnvState):
    position: jax.Array
    velocity: jax.Array
    time: int


@struct.dataclass
class CarParams(environment.EnvParams):
    power: float = 0.001
    gravity: float = 0.0025
    max_steps_in_episode: int = 200


class HillCar(environment.Environment[CarState, CarParams]):
    @property
    def default_params(self):
        return CarParams()

    def reset_env(self, key, params):
        position = jax.random.uniform(key, minval=-0.6, maxval=-0.4)
        state = CarState(position=position, velocity=jnp.float32(0), time=0)
        return self.get_obs(state), state

    def step_env(self, key, state, action, params):
        velocity = (
            state.velocity
            + (action - 1) * params.power
            - jnp.cos(3 * state.position) * params.gravity
        )
        velocity = jnp.clip(velocity, -0.07, 0.07)
        position = jnp.clip(state.position + velocity, -1.2, 0.6)
        state = CarState(
            position=position,
            velocity=jnp.where(position == -1.2, 0.0, velocity),
            time=state.time + 1,
        )
        return self.get_obs(state), state, jnp.float32(-1), position >= 0.5, {}

    def get_obs(self, state, params=None, key=None):
        return jnp.stack([state.position, state.velocity])

    def action_space(self, params):
        return spaces.Discrete(3)

    def observation_space(self, params):
        return spaces.Box(-1.2, 0.6, (2,), jnp.float32)
