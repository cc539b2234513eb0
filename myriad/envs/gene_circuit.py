"""A light-driven bistable gene circuit in a cell, simulated exactly, reaction by reaction.

Light makes CcaS-CcaR (H), which drives GFP (F), and GFP activates itself. Kinetics first, then the
control task.
"""

import dataclasses
import math
from typing import Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from myriad.canvas import BLUE, GREEN, MUTED, VERMILLION, WHITE, Canvas, Point, one_instance
from myriad.engine.gpu_loops import while_loop
from myriad.engine.vector_math import polynomial
from myriad.envs.environment import Finite, Positive, Steps
from myriad.ranges import Integer, Number
from myriad.spaces import Box, Discrete

__all__ = ["GeneCircuit"]

Target = Literal["constant", "sine"]
# The parameters of the kinetics, and those of a sine.
KINETIC = ("eta", "nu", "rate_h", "Kh", "nh", "rate_f", "Kf", "nf")
SINE = ("sine_offset", "sine_amplitude", "sine_period")
# Bounded, since every reaction is simulated: rates and intervals decide how long a step takes.
Rate = Annotated[float | jax.Array, Number(0, 100, arrays=True)]
Minutes = Annotated[float | jax.Array, Number(0, 1_440, positive=True, arrays=True)]
HillExponent = Annotated[float | jax.Array, Number(0, 100, arrays=True)]

# Reactions between two checks of whether any environment has time left. Two are 10% faster than
# one, and four are no faster.
_REACTIONS_PER_PASS = 2
# Passes of the loop that become one kernel on a GPU.
_UNROLLED = 8
# Minimax for the relative error: log2(1 + t) / t on [sqrt(1/2) - 1, sqrt(2) - 1], below 3e-8 ...
_LOG2 = np.array(
    [
        1.442695,
        -0.7213473,
        0.48091064,
        -0.36070368,
        0.28791624,
        -0.23894485,
        0.21571572,
        -0.20726962,
        0.12583654,
    ],
    np.float32,
)
# ... and 2**f on [-1/2, 1/2], below 8e-8.
_EXP2 = np.array(
    [1.0000000717, 0.6931469671, 0.2402211972, 0.0555071328, 0.0096755416, 0.0013276470], np.float32
)
_SQRT_HALF = np.int32(0x3F3504F3)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class GeneCircuitState:
    """Molecule counts `H` and `F`, and the control intervals since the reset: int32 scalars."""

    H: jax.Array
    F: jax.Array
    time: jax.Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class GeneCircuitParams:
    """Kinetics (rates per minute, half-saturations in molecules), then the task's parameters.

    `eta` is the rate at which light makes H, and `nu` the dilution rate of H and F. `rate_h` and
    `rate_f` are the greatest rates at which H and F make F, with half-saturations `Kh`, `Kf` and
    Hill exponents `nh`, `nf`.
    """

    eta: Rate = 1.0
    nu: Rate = 0.01
    rate_h: Rate = 0.5
    Kh: Positive = 90.0
    nh: HillExponent = 3.6
    rate_f: Rate = 0.5
    Kf: Positive = 30.0
    nf: HillExponent = 3.6
    interval: Minutes = 5.0
    target_level: Finite = 25.0
    sine_offset: Finite = 30.0
    sine_amplitude: Finite = 20.0
    sine_period: Positive = 600.0
    max_steps: Steps = 288


def draw_params(
    key: jax.Array, spread: float = 0.1, medians: GeneCircuitParams = GeneCircuitParams()
) -> GeneCircuitParams:
    """Draw one cell's kinetics from log-normal priors about `medians`. Keep the task's parameters.

    Args:
        key: a typed key, scalar; `jax.vmap` over keys draws many cells.
        spread: the standard deviation of each parameter's natural logarithm.
        medians: the medians of the priors.
    """
    factors = jnp.exp(spread * jax.random.normal(key, (len(KINETIC),)))
    drawn = {
        name: getattr(medians, name) * factor for name, factor in zip(KINETIC, factors, strict=True)
    }
    return dataclasses.replace(medians, **drawn)


def react(
    key: jax.Array, H: jax.Array, F: jax.Array, light: jax.Array, params: GeneCircuitParams
) -> tuple[jax.Array, jax.Array]:
    """Run one control interval's reactions by Gillespie's direct method, without cap or leap.

    Waiting times are memoryless, so dropping the one that outlasts the interval leaves the law
    unchanged. Source: Gillespie (1977), "Exact stochastic simulation of coupled chemical
    reactions".

    Args:
        key: a typed key, scalar.
        H: molecules of CcaS-CcaR, float32 scalar, a whole number below 2**24.
        F: molecules of GFP, likewise.
        light: 1 if H is made, else 0, float32 scalar.
        params: the kinetic parameters and the interval's length.

    Returns:
        H and F at the interval's end, float32 scalars.
    """
    make_h, nu = params.eta * light, params.nu
    # The greatest rate, log2(K) and exponent of each Hill term. The logarithm is computed once per
    # interval, so that a Hill term is one logarithm and one exponential.
    by_h = (params.rate_h, log2(jnp.asarray(params.Kh, jnp.float32)), params.nh)
    by_f = (params.rate_f, log2(jnp.asarray(params.Kf, jnp.float32)), params.nf)

    def next_reaction(cell: _Cell, wait: jax.Array, choice: jax.Array) -> _Cell:
        """Apply the next reaction if the interval lasts so long. The words are uniform uint32."""
        # The rates stacked in this order: H made, H lost, F made, F lost.
        to_lose_h = make_h + nu * cell.H
        to_make_f = to_lose_h + (cell.from_h + cell.from_f)
        total = to_make_f + nu * cell.F
        left = cell.left - _exponential(wait) / total
        # A 24-bit uniform times the total stays below the total even when rounded, so a reaction of
        # rate zero is never chosen.
        point = (choice >> 8).astype(jnp.float32) * np.float32(2**-24) * total
        of_h = point < to_lose_h
        made = point < jnp.where(of_h, make_h, to_make_f)
        # If the total is zero, `left` is minus infinity and nothing is applied.
        change = jnp.where(left > 0, jnp.where(made, 1.0, -1.0), 0.0)
        H = jnp.where(of_h, cell.H + change, cell.H)
        F = jnp.where(of_h, cell.F, cell.F + change)
        # Only one count changed, so only one Hill term is computed.
        kinetics = (jnp.where(of_h, h, f) for h, f in zip(by_h, by_f, strict=True))
        term = hill(jnp.where(of_h, H, F), *kinetics)
        from_h, from_f = jnp.where(of_h, term, cell.from_h), jnp.where(of_h, cell.from_f, term)
        return _Cell(left, H, F, from_h, from_f)

    def body(carry: tuple[_Cell, jax.Array]) -> tuple[_Cell, jax.Array]:
        cell, i = carry
        words = jax.random.bits(jax.random.fold_in(key, i), (2 * _REACTIONS_PER_PASS,))
        for wait, choice in zip(words[::2], words[1::2], strict=True):
            cell = next_reaction(cell, wait, choice)
        return cell, i + 1

    left = jnp.zeros_like(H) + params.interval
    cell = _Cell(left, H, F, hill(H, *by_h), hill(F, *by_f))
    cell, _ = while_loop(
        lambda carry: carry[0].left > 0, body, (cell, jnp.zeros((), jnp.uint32)), unroll=_UNROLLED
    )
    return cell.H, cell.F


class _Cell(NamedTuple):
    """A cell between reactions: minutes left (at most 0 when done), counts, Hill terms."""

    left: jax.Array
    H: jax.Array
    F: jax.Array
    from_h: jax.Array
    from_f: jax.Array


def hill(count: jax.Array, rate: Any, log2_k: jax.Array, exponent: Any) -> jax.Array:
    """Return rate * count^n / (K^n + count^n), exactly 0 at a count of 0."""
    return jnp.where(count > 0, rate / (1.0 + _exp2(exponent * (log2_k - log2(count)))), 0.0)


@dataclasses.dataclass(frozen=True)
class GeneCircuit:
    """Hold GFP at its target by light off (0) or on (1), for 288 intervals of 5 minutes.

    Observation: F, the current interval's target and those of the next `n_horizon`, all over 80
    molecules, float32 `[2 + n_horizon]`. Reward: -|F - target|, F at the interval's end. The target
    is a constant or a sine in time.
    """

    default_params: GeneCircuitParams = GeneCircuitParams()
    target: Target = "constant"
    n_horizon: Annotated[int, Integer(0, 1_000)] = 1

    @property
    def unused(self) -> dict[str, str]:
        """The parameters that the other kind of target needs."""
        names = SINE if self.target == "constant" else ("target_level",)
        return dict.fromkeys(names, f"with target {self.target!r}")

    def reset(
        self, key: jax.Array, params: GeneCircuitParams
    ) -> tuple[jax.Array, GeneCircuitState]:
        """Start without molecules. Nothing is drawn, so `key` is not used."""
        zero = jnp.zeros((), jnp.int32)
        state = GeneCircuitState(H=zero, F=zero, time=zero)
        return self._observe(state, params), state

    def step(
        self, key: jax.Array, state: GeneCircuitState, action: jax.Array, params: GeneCircuitParams
    ) -> tuple[jax.Array, GeneCircuitState, jax.Array, jax.Array, jax.Array, dict[str, Any]]:
        """Switch the light and let the cell react for one interval."""
        light = (self.action_space(params).validate(action) == 1).astype(jnp.float32)
        H, F = react(key, state.H.astype(jnp.float32), state.F.astype(jnp.float32), light, params)
        reward = -jnp.abs(F - self.target_at(state.time, params))
        state = GeneCircuitState(H.astype(jnp.int32), F.astype(jnp.int32), state.time + 1)
        truncated = state.time >= params.max_steps
        return self._observe(state, params), state, reward, jnp.zeros((), bool), truncated, {}

    def target_at(self, time: jax.Array, params: GeneCircuitParams) -> jax.Array:
        """Return the target, in molecules, at the start of interval number `time`."""
        if self.target == "constant":
            return jnp.zeros_like(time, jnp.float32) + params.target_level
        turn = time.astype(jnp.float32) * (params.interval * 2 * math.pi / params.sine_period)
        return params.sine_offset + params.sine_amplitude * jnp.sin(turn)

    def control_error(self, obs: jax.Array) -> jax.Array:
        """Return how far GFP is below its target, over 80. A controller steers this to zero."""
        return obs[1] - obs[0]

    def observation_space(self, params: GeneCircuitParams) -> Box:
        """Return the bounds. By default counts and targets start at 0, without an upper bound."""
        return Box(-np.inf, np.inf, (2 + self.n_horizon,))

    def action_space(self, params: GeneCircuitParams) -> Discrete:
        return Discrete(2)

    def render(self, state: GeneCircuitState) -> np.ndarray:
        """Draw the state, uint8 `[400, 600, 3]`. The target is that of the next step."""
        state = one_instance(state)
        params = self.default_params
        of_h = int(state.H)
        of_f = int(state.F)
        times = np.unique(np.linspace(0, int(params.max_steps), 289).astype(np.int32))
        targets = np.asarray(self.target_at(jnp.asarray(times), params), np.float64)
        target = float(self.target_at(jnp.asarray(state.time), params))
        minutes = int(state.time) * float(params.interval)
        canvas = Canvas()
        canvas.heading("Gene circuit", f"{int(minutes // 60)} h {int(minutes % 60):02d} min")
        numbers = (
            ("H, CcaS-CcaR", f"{of_h}", BLUE),
            ("F, GFP", f"{of_f}", GREEN),
            ("target of F", f"{target:.1f}", VERMILLION),
        )
        for i, (name, number, colour) in enumerate(numbers):
            canvas.text(130 + 180 * i, 80, name, 14, MUTED, "middle")
            canvas.text(130 + 180 * i, 108, number, 24, colour, "middle")
        _draw_day(canvas, times * float(params.interval) / 60, targets, (minutes / 60, of_f))
        return canvas.image()

    def _observe(self, state: GeneCircuitState, params: GeneCircuitParams) -> jax.Array:
        targets = [
            self.target_at(state.time + ahead, params) for ahead in range(self.n_horizon + 1)
        ]
        return jnp.stack([state.F.astype(jnp.float32), *targets]) * np.float32(1 / 80)


def _exponential(bits: jax.Array) -> jax.Array:
    """Turn uniform uint32 words into unit exponentials, float32, by inverting midpoints of bins."""
    uniform = bits.astype(jnp.float32) * np.float32(2**-32) + np.float32(2**-33)
    return log2(uniform) * np.float32(-math.log(2))


def log2(x: jax.Array) -> jax.Array:
    """Return log2 of normal positive float32; of 0, -127."""
    bits = jax.lax.bitcast_convert_type(x, jnp.int32)
    # Mantissas go from sqrt(1/2) to sqrt(2) and not from 1 to 2, so that the relative error near 1
    # is as small as elsewhere.
    exponent = (bits - _SQRT_HALF) >> 23
    t = jax.lax.bitcast_convert_type(bits - (exponent << 23), jnp.float32) - 1.0
    return exponent.astype(jnp.float32) + t * polynomial(_LOG2, t)


def _exp2(x: jax.Array) -> jax.Array:
    """Return 2**x, float32, with x held to the normal range."""
    x = jnp.clip(x, -126.0, 126.0)
    whole = jnp.round(x)
    scale = jax.lax.bitcast_convert_type((whole.astype(jnp.int32) + 127) << 23, jnp.float32)
    return scale * polynomial(_EXP2, x - whole)


# --- the picture

_DAY = (52, 150, 580, 366)


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
    canvas.disc(*place(*now), 5.5, GREEN)
