"""Draw the cell with its molecules, their counts next to the target, and the target over a day."""

import functools
import math

import jax.numpy as jnp
import numpy as np

from myriad.envs.gene_circuit import GeneCircuit, GeneCircuitState
from myriad.rendering.canvas import (
    BLUE,
    FAINT,
    GREEN,
    INK,
    MUTED,
    PALE,
    VERMILLION,
    WHITE,
    Canvas,
    mix,
    one_instance,
)

# Molecules of a kind beyond this number are counted but not drawn.
_MOST_DRAWN = 250
_CELL = (24, 56, 286, 256)
_BARS = (352, 62, 580, 240)
_DAY = (52, 300, 580, 366)


def draw(env: GeneCircuit, state: GeneCircuitState) -> np.ndarray:
    """Draw the state, uint8 `[400, 600, 3]`: a dot is a molecule, the target is the next one."""
    state = one_instance(state)
    params = env.default_params
    of_h = int(state.H)
    of_f = int(state.F)
    time = int(state.time)
    times = np.unique(np.linspace(0, int(params.max_steps), 289).astype(np.int32))
    targets = np.asarray(env.target_at(jnp.asarray(times), params), np.float64)
    target = float(env.target_at(jnp.asarray(state.time), params))
    minutes = time * float(params.interval)
    canvas = Canvas()
    canvas.heading("Gene circuit", f"{int(minutes // 60)} h {int(minutes % 60):02d} min")
    _draw_cell(canvas, of_h, of_f)
    top = _round_up(max(of_h, of_f, target, 100.0))
    _draw_bars(canvas, of_h, of_f, target, top)
    _draw_day(canvas, times * float(params.interval) / 60, targets, (minutes / 60, of_f))
    return canvas.image()


def _draw_cell(canvas: Canvas, of_h: int, of_f: int) -> None:
    left, top, right, bottom = _CELL
    radius = (bottom - top) / 2
    canvas.rectangle(left, top, right, bottom, mix(GREEN, INK, 0.25), corner=radius)
    glow = mix(mix(WHITE, GREEN, 0.06), GREEN, 0.5 * of_f / (of_f + 80))
    canvas.rectangle(left + 5, top + 5, right - 5, bottom - 5, glow, corner=radius - 5)
    # Place one kind from the sequence's start and one from its end, so that each spreads evenly and
    # none overlap.
    places = _places(2 * _MOST_DRAWN)
    for count, colour, of_kind in ((of_h, BLUE, places), (of_f, GREEN, places[::-1])):
        for x, y in of_kind[: min(count, _MOST_DRAWN)]:
            canvas.disc(x, y, 4.6, WHITE)
            canvas.disc(x, y, 3.6, colour)


@functools.cache
def _places(count: int) -> list[tuple[float, float]]:
    """Spread any number of points evenly over the cell by a low-discrepancy sequence.

    Source: Roberts (2018), "The unreasonable effectiveness of quasirandom sequences".
    """
    left, top, right, bottom = (
        edge + inset for edge, inset in zip(_CELL, (14, 14, -14, -14), strict=True)
    )
    radius = (bottom - top) / 2
    places = []
    i = 0
    while len(places) < count:
        i += 1
        x = left + (right - left) * (0.7548776662 * i % 1)
        y = top + (bottom - top) * (0.5698402910 * i % 1)
        beyond = max(left + radius - x, x - right + radius, 0)
        if math.hypot(beyond, y - top - radius) <= radius:
            places.append((x, y))
    return places


def _round_up(value: float) -> float:
    """Return the least 1, 2 or 5 times a power of ten that is not below `value`."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * digit for digit in (1, 2, 5, 10) if power * digit >= value)


def _draw_bars(canvas: Canvas, of_h: int, of_f: int, target: float, most: float) -> None:
    left, top, right, bottom = _BARS
    for tick in (0.0, 0.5, 1.0):
        y = bottom - tick * (bottom - top)
        canvas.line([(left, y), (right, y)], 1, MUTED if tick == 0 else FAINT)
        canvas.text(left - 8, y, f"{most * tick:g}", 13, MUTED, "right")
    names = (("H, CcaS-CcaR", of_h, BLUE), ("F, GFP", of_f, GREEN))
    for i, (name, count, colour) in enumerate(names):
        middle = left + (right - left) * (0.27 + 0.46 * i)
        y = bottom - (bottom - top) * count / most
        canvas.rectangle(middle - 34, y, middle + 34, bottom, colour)
        canvas.text(middle, max(y - 11, top - 6), str(count), 15, anchor="middle")
        canvas.text(middle, bottom + 14, name, 13, MUTED, "middle")
    y = bottom - (bottom - top) * target / most
    middle = left + (right - left) * 0.73
    canvas.dashes((middle - 50, y), (middle + 50, y), 3, VERMILLION)


def _draw_day(
    canvas: Canvas, hours: np.ndarray, targets: np.ndarray, now: tuple[float, int]
) -> None:
    """Draw the target over the episode's hours, and the count of F as a point on it."""
    left, top, right, bottom = _DAY
    most = max(1.2 * float(targets.max()), now[1], 1.0)
    length = max(float(hours[-1]), 1e-9)

    def place(hour: float, count: float) -> tuple[float, float]:
        return left + (right - left) * hour / length, bottom - (bottom - top) * count / most

    canvas.rectangle(left, top, right, bottom, WHITE)
    canvas.rectangle(left, top, place(min(now[0], length), 0)[0], bottom, PALE)
    canvas.line([(left, bottom), (right, bottom)], 1.5, MUTED)
    for hour in np.linspace(0, length, 5):
        x, _ = place(hour, 0)
        canvas.line([(x, bottom), (x, bottom + 5)], 1.5, MUTED)
        canvas.text(x, bottom + 15, f"{hour:.3g} h", 13, MUTED, "middle")
    canvas.line(
        [place(hour, target) for hour, target in zip(hours, targets, strict=True)], 3, VERMILLION
    )
    canvas.text(left, top - 12, "target of F", 13, VERMILLION)
    canvas.text(right, top - 12, "F now", 13, GREEN, "right")
    canvas.disc(*place(*now), 7, WHITE)
    canvas.disc(*place(*now), 5.5, GREEN)
