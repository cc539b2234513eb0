"""Draw the cart on its track, the pole, and the limits of both."""

import math

import numpy as np

from myriad.envs.cartpole import CartPole, CartPoleState
from myriad.rendering.canvas import (
    BLUE,
    INK,
    MUTED,
    ORANGE,
    PALE,
    VERMILLION,
    WHITE,
    Canvas,
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
