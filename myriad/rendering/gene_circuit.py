"""Draw the counts of the cell's molecules next to the target, and the target over a day."""

import math

import jax.numpy as jnp
import numpy as np

from myriad.envs.gene_circuit import GeneCircuit, GeneCircuitState
from myriad.rendering.canvas import (
    BLUE,
    FAINT,
    GREEN,
    MUTED,
    VERMILLION,
    WHITE,
    Canvas,
    Point,
    one_instance,
)

_BARS = (72, 62, 580, 240)
_DAY = (52, 300, 580, 366)


def draw(env: GeneCircuit, state: GeneCircuitState) -> np.ndarray:
    """Draw the state, uint8 `[400, 600, 3]`. The target is that of the next step."""
    state = one_instance(state)
    params = env.default_params
    of_h = int(state.H)
    of_f = int(state.F)
    times = np.unique(np.linspace(0, int(params.max_steps), 289).astype(np.int32))
    targets = np.asarray(env.target_at(jnp.asarray(times), params), np.float64)
    target = float(env.target_at(jnp.asarray(state.time), params))
    minutes = int(state.time) * float(params.interval)
    canvas = Canvas()
    canvas.heading("Gene circuit", f"{int(minutes // 60)} h {int(minutes % 60):02d} min")
    _draw_bars(canvas, of_h, of_f, target)
    _draw_day(canvas, times * float(params.interval) / 60, targets, (minutes / 60, of_f))
    return canvas.image()


def _draw_bars(canvas: Canvas, of_h: int, of_f: int, target: float) -> None:
    left, top, right, bottom = _BARS
    largest = max(of_h, of_f, target, 100.0)
    # The least 1, 2 or 5 times a power of ten that is not below the largest.
    power = 10.0 ** math.floor(math.log10(largest))
    most = next(power * digit for digit in (1, 2, 5, 10) if power * digit >= largest)
    for tick in (0.0, 0.5, 1.0):
        y = bottom - tick * (bottom - top)
        canvas.line([(left, y), (right, y)], 1, FAINT)
        canvas.text(left - 8, y, f"{most * tick:g}", 13, MUTED, "right")
    for middle, name, count, colour in (
        (200, "H, CcaS-CcaR", of_h, BLUE),
        (452, "F, GFP", of_f, GREEN),
    ):
        y = bottom - (bottom - top) * count / most
        canvas.rectangle(middle - 34, y, middle + 34, bottom, colour)
        canvas.text(middle, max(y - 11, top - 6), str(count), 15, anchor="middle")
        canvas.text(middle, bottom + 14, name, 13, MUTED, "middle")
    y = bottom - (bottom - top) * target / most
    canvas.line([(402, y), (502, y)], 3, VERMILLION)


def _draw_day(
    canvas: Canvas, hours: np.ndarray, targets: np.ndarray, now: tuple[float, int]
) -> None:
    """Draw the target over the episode's hours, and the count of F as a point on it."""
    left, top, right, bottom = _DAY
    most = max(1.2 * float(targets.max()), now[1], 1.0)
    length = max(float(hours[-1]), 1e-9)

    def place(hour: float, count: float) -> Point:
        return left + (right - left) * hour / length, bottom - (bottom - top) * count / most

    canvas.rectangle(left, top, right, bottom, WHITE)
    for hour in np.linspace(0, length, 5):
        canvas.text(place(hour, 0)[0], bottom + 15, f"{hour:.3g} h", 13, MUTED, "middle")
    points = [place(hour, target) for hour, target in zip(hours, targets, strict=True)]
    canvas.line(points, 3, VERMILLION)
    canvas.text(left, top - 12, "target of F", 13, VERMILLION)
    canvas.text(right, top - 12, "F now", 13, GREEN, "right")
    canvas.disc(*place(*now), 5.5, GREEN)
