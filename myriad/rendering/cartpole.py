"""Draw the cart on its track, the pole, and the limits of both."""

import math

import numpy as np

from myriad.envs.cartpole import CartPole, CartPoleState
from myriad.rendering.canvas import (
    BLUE,
    FAINT,
    INK,
    MUTED,
    ORANGE,
    PALE,
    VERMILLION,
    WHITE,
    Canvas,
    direction,
    one_instance,
)

_MIDDLE, _TRACK = 300, 290


def draw(env: CartPole, state: CartPoleState) -> np.ndarray:
    """Draw the state to scale: uint8 `[400, 600, 3]`. A limit that is passed turns red."""
    state = one_instance(state)
    params = env.default_params
    x = float(state.x)
    theta = float(state.theta)
    limit = float(params.x_threshold)
    half_length = float(params.half_length)
    scale = min(260 / limit, 210 / (2 * half_length))
    at = _MIDDLE + scale * x
    axle = _TRACK - 42
    length = 2 * half_length * scale

    canvas = Canvas()
    canvas.heading("Cart and pole", f"step {int(state.time)}")
    _draw_track(canvas, scale, limit, passed=abs(x) > limit)
    _draw_wedge(canvas, (at, axle), length + 30, float(params.theta_threshold))
    for wheel in (at - 24, at + 24):
        canvas.disc(wheel, _TRACK - 9, 8, INK)
        canvas.disc(wheel, _TRACK - 9, 3, FAINT)
    canvas.rectangle(at - 42, axle - 8, at + 42, _TRACK - 12, BLUE, corner=5)
    sin, cos = direction(theta)
    tip = (at + length * sin, axle - length * cos)
    fallen = abs(theta) > params.theta_threshold
    canvas.line([(at, axle), tip], 11, VERMILLION if fallen else ORANGE)
    canvas.disc(at, axle, 4, WHITE)
    _draw_figures(canvas, state)
    return canvas.image()


def _draw_track(canvas: Canvas, scale: float, limit: float, *, passed: bool) -> None:
    canvas.line(
        [(_MIDDLE - scale * limit - 24, _TRACK), (_MIDDLE + scale * limit + 24, _TRACK)], 3, MUTED
    )
    step = max(1, round(limit / 4))
    for metre in range(-int(limit) // step * step, int(limit) + 1, step):
        place = _MIDDLE + scale * metre
        if abs(metre) <= limit:
            canvas.line([(place, _TRACK + 4), (place, _TRACK + 10)], 2, MUTED)
            canvas.text(place, _TRACK + 22, f"{metre} m", 13, MUTED, "middle")
    for end in (_MIDDLE - scale * limit, _MIDDLE + scale * limit):
        canvas.line([(end, _TRACK - 26), (end, _TRACK + 10)], 4, VERMILLION if passed else INK)


def _draw_wedge(canvas: Canvas, axle: tuple[float, float], radius: float, limit: float) -> None:
    """Shade the pole's allowed angles, if they are less than a right angle to each side."""
    if not limit < math.pi / 2:
        return
    arc = [
        (axle[0] + radius * math.sin(angle), axle[1] - radius * math.cos(angle))
        for angle in np.linspace(-limit, limit, 17)
    ]
    canvas.polygon([axle, *arc], PALE)
    canvas.dashes(axle, arc[0], 1.5, MUTED)
    canvas.dashes(axle, arc[-1], 1.5, MUTED)


def _draw_figures(canvas: Canvas, state: CartPoleState) -> None:
    figures = {
        "cart": f"{state.x:+.2f} m",
        "speed": f"{state.x_dot:+.2f} m/s",
        "pole": f"{math.degrees(state.theta):+.1f}°",
        "rate": f"{math.degrees(state.theta_dot):+.0f}°/s",
    }
    for i, (name, figure) in enumerate(figures.items()):
        middle = 90 + 140 * i
        canvas.text(middle, 348, name, 13, MUTED, "middle")
        canvas.text(middle, 370, figure, 17, anchor="middle")
