"""Draw the rod on its pivot, how fast it turns, and where it should stand."""

import math

import numpy as np

from myriad.envs.pendulum import Pendulum, PendulumState
from myriad.rendering.canvas import (
    BLUE,
    FAINT,
    INK,
    MUTED,
    ORANGE,
    PALE,
    WHITE,
    Canvas,
    direction,
    one_instance,
)

_X, _Y, _ROD = 195, 218, 128


def draw(env: Pendulum, state: PendulumState) -> np.ndarray:
    """Draw the state, uint8 `[400, 600, 3]`. The arrow shows speed and direction."""
    state = one_instance(state)
    theta = float(state.theta)
    theta_dot = float(state.theta_dot)
    max_speed = float(env.default_params.max_speed)
    canvas = Canvas()
    canvas.heading("Pendulum", f"step {int(state.time)}")
    canvas.disc(_X, _Y, _ROD + 30, WHITE)
    canvas.ring(_X, _Y, _ROD + 30, 1.5, FAINT)
    for quarter in range(4):
        canvas.line(
            [_around(quarter * math.pi / 2, _ROD + 24), _around(quarter * math.pi / 2, _ROD + 30)],
            2,
            MUTED,
        )
    canvas.dashes((_X, _Y), _around(0, _ROD + 18), 2, FAINT)
    canvas.line([(_X, _Y), _around(theta, _ROD)], 22, ORANGE)
    _draw_speed(canvas, theta, theta_dot / max_speed)
    canvas.disc(_X, _Y, 6, INK)
    _draw_figures(canvas, theta, theta_dot, max_speed)
    return canvas.image()


def _around(angle: float, radius: float) -> tuple[float, float]:
    """Return the point at an angle from upright, counter-clockwise."""
    sin, cos = direction(angle)
    return _X - radius * sin, _Y - radius * cos


def _draw_speed(canvas: Canvas, theta: float, share: float) -> None:
    """Draw an arc ahead of the rod, a right angle long at full speed."""
    if abs(share) > 0.02:
        arc = [_around(theta + share * math.pi / 2 * i / 24, _ROD * 0.62) for i in range(25)]
        canvas.arrow(arc, 5, BLUE)


def _draw_figures(canvas: Canvas, theta: float, theta_dot: float, max_speed: float) -> None:
    wrapped = math.remainder(theta, 2 * math.pi) if math.isfinite(theta) else theta
    left = 400
    right = 570
    canvas.text(left, 120, "angle from upright", 14, MUTED)
    canvas.text(left, 146, f"{math.degrees(wrapped):+.0f}°", 24)
    canvas.text(left, 206, "speed", 14, MUTED)
    canvas.text(left, 232, f"{theta_dot:+.2f} rad/s", 24)
    middle = (left + right) / 2
    half = (right - left) / 2
    canvas.rectangle(left, 258, right, 270, PALE, corner=6)
    tip = middle + half * theta_dot / max_speed
    canvas.rectangle(min(middle, tip), 258, max(middle, tip), 270, BLUE)
    canvas.line([(middle, 254), (middle, 274)], 2, MUTED)
    canvas.text(left, 288, f"{-max_speed:g}", 13, MUTED)
    canvas.text(right, 288, f"{max_speed:g}", 13, MUTED, "right")
