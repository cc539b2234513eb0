"""The cart and pole of Barto, Sutton and Anderson (1983), with `CartPole-v1`'s constants."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from myriad.canvas import BLUE, INK, MUTED, ORANGE, PALE, VERMILLION, WHITE, Canvas, one_instance
from myriad.envs.environment import Finite, Limit, Positive, Steps
from myriad.spaces import Box, Discrete

__all__ = ["CartPole"]

# Of the picture: the middle of the track, and its height.
_MIDDLE, _TRACK = 300, 290


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class CartPoleState:
    """Coordinates of cart and pole, float32 scalars, and the steps since the reset, int32."""

    x: jax.Array
    x_dot: jax.Array
    theta: jax.Array
    theta_dot: jax.Array
    time: jax.Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class CartPoleParams:
    """Physical parameters in SI units, then the task's. `half_length` is Gymnasium's `length`."""

    gravity: Finite = 9.8
    mass_cart: Positive = 1.0
    mass_pole: Positive = 0.1
    half_length: Positive = 0.5
    force: Finite = 10.0
    tau: Positive = 0.02
    x_threshold: Limit = 2.4
    theta_threshold: Limit = 12 * 2 * math.pi / 360
    max_steps: Steps = 500


def accelerations(
    state: CartPoleState, force: jax.Array, params: CartPoleParams
) -> tuple[jax.Array, jax.Array]:
    """Return the frictionless accelerations of cart, m/s^2, and pole, rad/s^2, under `force`, N.

    Source: Florian (2005), "Correct equations for the dynamics of the cart-pole system", equations
    23 and 24.
    """
    # Multiply by reciprocals of parameters, which fold into constants. A division would not.
    inverse_mass = 1.0 / (params.mass_cart + params.mass_pole)
    sin, cos = jnp.sin(state.theta), jnp.cos(state.theta)
    push = (
        force + params.mass_pole * params.half_length * state.theta_dot * state.theta_dot * sin
    ) * inverse_mass
    inertia = params.half_length * (4.0 / 3.0 - params.mass_pole * inverse_mass * cos * cos)
    theta_acceleration = (params.gravity * sin - cos * push) / inertia
    x_acceleration = (
        push - params.mass_pole * params.half_length * inverse_mass * theta_acceleration * cos
    )
    return x_acceleration, theta_acceleration


def integrate(state: CartPoleState, force: jax.Array, params: CartPoleParams) -> CartPoleState:
    """Advance by one explicit Euler step of `params.tau` seconds."""
    x_acceleration, theta_acceleration = accelerations(state, force, params)
    return CartPoleState(
        x=state.x + params.tau * state.x_dot,
        x_dot=state.x_dot + params.tau * x_acceleration,
        theta=state.theta + params.tau * state.theta_dot,
        theta_dot=state.theta_dot + params.tau * theta_acceleration,
        time=state.time + 1,
    )


@dataclasses.dataclass(frozen=True)
class CartPole:
    """Balance the pole by pushing left (0) or right (1). Reward 1 per step, at most 500 steps.

    Observation: x, x_dot, theta, theta_dot, float32 `[4]`, in m, m/s, rad, rad/s.
    """

    default_params: CartPoleParams = CartPoleParams()

    def reset(self, key: jax.Array, params: CartPoleParams) -> tuple[jax.Array, CartPoleState]:
        """Draw the four coordinates uniformly from (-0.05, 0.05)."""
        x, x_dot, theta, theta_dot = jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05)
        state = CartPoleState(x, x_dot, theta, theta_dot, time=jnp.zeros((), jnp.int32))
        return _observe(state), state

    def step(
        self, key: jax.Array, state: CartPoleState, action: jax.Array, params: CartPoleParams
    ) -> tuple[jax.Array, CartPoleState, jax.Array, jax.Array, jax.Array, dict[str, Any]]:
        """Push for `tau` seconds. The dynamics draw nothing, so `key` is not used."""
        action = self.action_space(params).validate(action)
        force = jnp.where(action == 1, params.force, -params.force)
        state = integrate(state, force, params)
        terminated = (jnp.abs(state.x) > params.x_threshold) | (
            jnp.abs(state.theta) > params.theta_threshold
        )
        truncated = state.time >= params.max_steps
        return _observe(state), state, jnp.ones((), jnp.float32), terminated, truncated, {}

    def control_error(self, obs: jax.Array) -> jax.Array:
        """Return the lean to the right, rad, plus a little of the cart's position to centre it."""
        return obs[2] + 0.1 * obs[0]

    def observation_space(self, params: CartPoleParams) -> Box:
        """Return Gymnasium's bounds: twice the limits, and none on the velocities."""
        high = np.array(
            [2 * params.x_threshold, np.inf, 2 * params.theta_threshold, np.inf], np.float32
        )
        return Box(-high, high, (4,))

    def action_space(self, params: CartPoleParams) -> Discrete:
        """Return left and right."""
        return Discrete(2)

    def render(self, state: CartPoleState) -> np.ndarray:
        """Draw the state to scale: uint8 `[400, 600, 3]`. A limit that is passed turns red."""
        state = one_instance(state)
        params = self.default_params
        x = float(state.x)
        theta = float(state.theta)
        limit = float(params.x_threshold)
        most = float(params.theta_threshold)
        half_length = float(params.half_length)
        scale = min(260 / limit, 210 / (2 * half_length))
        length = 2 * half_length * scale
        at = _MIDDLE + scale * x
        axle = _TRACK - 42

        def on_pole(angle: float, distance: float) -> tuple[float, float]:
            if not math.isfinite(angle):
                return math.nan, math.nan
            return at + distance * math.sin(angle), axle - distance * math.cos(angle)

        canvas = Canvas()
        canvas.heading("Cart and pole", f"step {int(state.time)}")
        reach = scale * limit + 24
        canvas.line([(_MIDDLE - reach, _TRACK), (_MIDDLE + reach, _TRACK)], 3, MUTED)
        for metres in (-limit, limit):
            end = _MIDDLE + scale * metres
            passed = VERMILLION if abs(x) > limit else INK
            canvas.line([(end, _TRACK - 26), (end, _TRACK + 10)], 4, passed)
            canvas.text(end, _TRACK + 22, f"{metres:+.3g} m", 13, MUTED, "middle")
        if most < math.pi / 2:  # the pole's allowed angles
            arc = [on_pole(angle, length + 30) for angle in np.linspace(-most, most, 17)]
            canvas.polygon([(at, axle), *arc], PALE)
        for wheel in (at - 24, at + 24):
            canvas.disc(wheel, _TRACK - 9, 8, INK)
        canvas.rectangle(at - 42, axle - 8, at + 42, _TRACK - 12, BLUE, corner=5)
        fallen = abs(theta) > most
        canvas.line([(at, axle), on_pole(theta, length)], 11, VERMILLION if fallen else ORANGE)
        canvas.disc(at, axle, 4, WHITE)
        figures = {
            "cart": f"{state.x:+.2f} m",
            "speed": f"{state.x_dot:+.2f} m/s",
            "pole": f"{math.degrees(state.theta):+.1f}°",
            "rate": f"{math.degrees(state.theta_dot):+.0f}°/s",
        }
        for i, (name, figure) in enumerate(figures.items()):
            canvas.text(90 + 140 * i, 348, name, 13, MUTED, "middle")
            canvas.text(90 + 140 * i, 370, figure, 17, anchor="middle")
        return canvas.image()


def _observe(state: CartPoleState) -> jax.Array:
    return jnp.stack([state.x, state.x_dot, state.theta, state.theta_dot])
