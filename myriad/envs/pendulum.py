"""The torque-limited pendulum of Gymnasium's `Pendulum-v1`: swing it up and hold it there."""

import dataclasses
import math
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np

from myriad.canvas import BLUE, FAINT, INK, MUTED, ORANGE, WHITE, Canvas, one_instance
from myriad.envs.environment import Finite, Limit, Positive, Steps
from myriad.ranges import Integer
from myriad.spaces import Box, Discrete

__all__ = ["Pendulum"]

# A full turn in two parts, so that products of the first with up to 2**15 turns are exact in
# float32.
_TURN_HIGH, _TURN_LOW = np.float32(6.28125), np.float32(2 * math.pi - 6.28125)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PendulumState:
    """Unwrapped angle from upright, rad, and rate, rad/s: float32; steps since reset, int32."""

    theta: jax.Array
    theta_dot: jax.Array
    time: jax.Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PendulumParams:
    """Physical parameters in SI units (a uniform rod of `length`), then the task's."""

    gravity: Finite = 10.0
    mass: Positive = 1.0
    length: Positive = 1.0
    tau: Positive = 0.05
    max_speed: Limit = 8.0
    max_torque: Positive = 2.0
    max_steps: Steps = 200


def acceleration(theta: jax.Array, torque: jax.Array, params: PendulumParams) -> jax.Array:
    """Return a uniform, hinged rod's angular acceleration, rad/s^2, under `torque`, N m."""
    # Multiply by reciprocals of parameters, which fold into constants. A division would not.
    gain = 1.5 * params.gravity * (1.0 / params.length)
    return (
        gain * jnp.sin(theta) + 3.0 * (1.0 / (params.mass * params.length * params.length)) * torque
    )


def integrate(state: PendulumState, torque: jax.Array, params: PendulumParams) -> PendulumState:
    """Take one semi-implicit Euler step of `params.tau` seconds, and clip the speed."""
    theta_dot = state.theta_dot + params.tau * acceleration(state.theta, torque, params)
    theta_dot = _clip(theta_dot, params.max_speed)
    return PendulumState(state.theta + params.tau * theta_dot, theta_dot, time=state.time + 1)


@dataclasses.dataclass(frozen=True)
class Pendulum:
    """Swing the pendulum up with a torque too weak to lift it. 200 steps, never terminated.

    Observation: cos(theta), sin(theta), theta_dot, float32 `[3]`. Action: the torque, N m, float32
    `[1]`, clipped to `max_torque`. With `discrete_torques=n` it is one of `n` evenly spaced torques
    from the least to the greatest. Reward: -(theta^2 + 0.1 theta_dot^2 + 0.001 torque^2), from the
    state before the step, with theta within half a turn of upright.
    """

    default_params: PendulumParams = PendulumParams()
    discrete_torques: Annotated[int | None, Integer(2, 1_000_000, words=(None,))] = None

    def reset(self, key: jax.Array, params: PendulumParams) -> tuple[jax.Array, PendulumState]:
        """Draw the angle uniformly from (-pi, pi) and its rate from (-1, 1)."""
        high = jnp.array([math.pi, 1.0], jnp.float32)
        theta, theta_dot = jax.random.uniform(key, (2,), minval=-high, maxval=high)
        state = PendulumState(theta, theta_dot, time=jnp.zeros((), jnp.int32))
        return _observe(state), state

    def step(
        self, key: jax.Array, state: PendulumState, action: jax.Array, params: PendulumParams
    ) -> tuple[jax.Array, PendulumState, jax.Array, jax.Array, jax.Array, dict[str, Any]]:
        """Apply a torque for `tau` seconds. The dynamics draw nothing, so `key` is not used."""
        torque = self._torque(self.action_space(params).validate(action), params)
        angle = _nearest_to_upright(state.theta)
        cost = angle * angle + 0.1 * state.theta_dot * state.theta_dot + 0.001 * torque * torque
        state = integrate(state, torque, params)
        truncated = state.time >= params.max_steps
        return _observe(state), state, -cost, jnp.zeros((), bool), truncated, {}

    def control_error(self, obs: jax.Array) -> jax.Array:
        """Return the negative angle of the lean, rad. A controller steers this to zero."""
        return -jnp.arctan2(obs[1], obs[0])

    def observation_space(self, params: PendulumParams) -> Box:
        """Return the bounds that Gymnasium declares."""
        high = np.array([1.0, 1.0, params.max_speed], np.float32)
        return Box(-high, high, (3,))

    def action_space(self, params: PendulumParams) -> Box | Discrete:
        """Return the torques within the limit, or the numbers of the discrete ones."""
        if self.discrete_torques is not None:
            return Discrete(self.discrete_torques)
        return Box(-params.max_torque, params.max_torque, (1,))

    def render(self, state: PendulumState) -> np.ndarray:
        """Draw the state, uint8 `[400, 600, 3]`. The arc ahead of the rod shows the speed."""
        state = one_instance(state)
        theta = float(state.theta)
        theta_dot = float(state.theta_dot)
        max_speed = float(self.default_params.max_speed)
        canvas = Canvas()
        canvas.heading("Pendulum", f"step {int(state.time)}")
        canvas.disc(_X, _Y, _ROD + 30, WHITE)
        canvas.line([(_X, _Y), _around(0, _ROD + 18)], 2, FAINT)
        canvas.line([(_X, _Y), _around(theta, _ROD)], 22, ORANGE)
        # A right angle at full speed.
        turn = theta_dot / max_speed * math.pi / 2
        arc = [_around(theta + turn * i / 24, _ROD * 0.62) for i in range(25)]
        canvas.line(arc, 5, BLUE)
        canvas.disc(*arc[-1], 8, BLUE)
        canvas.disc(_X, _Y, 6, INK)
        wrapped = math.remainder(theta, 2 * math.pi) if math.isfinite(theta) else theta
        canvas.text(400, 120, "angle from upright", 14, MUTED)
        canvas.text(400, 146, f"{math.degrees(wrapped):+.0f}°", 24)
        canvas.text(400, 206, f"speed, at most {max_speed:g} rad/s", 14, MUTED)
        canvas.text(400, 232, f"{theta_dot:+.2f} rad/s", 24)
        return canvas.image()

    def _torque(self, action: jax.Array, params: PendulumParams) -> jax.Array:
        if self.discrete_torques is None:
            return _clip(action[0], params.max_torque)
        # Centre before scaling, so that opposite actions give exactly opposite torques.
        centred = (2 * action - (self.discrete_torques - 1)).astype(jnp.float32)
        return centred * (params.max_torque * (1.0 / (self.discrete_torques - 1)))


def _clip(value: jax.Array, limit: float | jax.Array) -> jax.Array:
    return jnp.clip(value, -limit, limit)


def _nearest_to_upright(theta: jax.Array) -> jax.Array:
    """Subtract whole turns from `theta`, which leaves -pi to pi."""
    turns = jnp.round(theta * np.float32(0.5 / math.pi))
    return theta - turns * _TURN_HIGH - turns * _TURN_LOW


def _observe(state: PendulumState) -> jax.Array:
    return jnp.stack([jnp.cos(state.theta), jnp.sin(state.theta), state.theta_dot])


# --- the picture

_X, _Y, _ROD = 195, 218, 128


def _around(angle: float, radius: float) -> tuple[float, float]:
    """Return the point at an angle from upright, counter-clockwise; nan if it is not finite."""
    if not math.isfinite(angle):
        return math.nan, math.nan
    return _X - radius * math.sin(angle), _Y - radius * math.cos(angle)
