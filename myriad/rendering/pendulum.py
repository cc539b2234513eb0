"""Draw the rod on its pivot, how fast it turns, and where it should stand."""

import math

import numpy as np

from myriad.envs.pendulum import Pendulum, PendulumState
from myriad.rendering.canvas import BLUE, FAINT, INK, MUTED, ORANGE, WHITE, Canvas, one_instance

_X, _Y, _ROD = 195, 218, 128


def draw(env: Pendulum, state: PendulumState) -> np.ndarray:
    """Draw the state, uint8 `[400, 600, 3]`. The arc ahead of the rod is as long as the speed."""
    state = one_instance(state)
    theta = float(state.theta)
    theta_dot = float(state.theta_dot)
    max_speed = float(env.default_params.max_speed)
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


def _around(angle: float, radius: float) -> tuple[float, float]:
    """Return the point at an angle from upright, counter-clockwise; nan if it is not finite."""
    if not math.isfinite(angle):
        return math.nan, math.nan
    return _X - radius * math.sin(angle), _Y - radius * math.cos(angle)
