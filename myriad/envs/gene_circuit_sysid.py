"""System identification of a cell: switch its light to learn its kinetics.

The cell is simulated exactly, and only the filter that learns from it is an approximation. Priors,
posterior and reward are those of `estimation.py`.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from myriad.envs.environment import Spread
from myriad.envs.estimation import (
    Gaussian,
    Scalars,
    require_hidden,
    squared_error,
    standard_gaussian,
    with_scores,
)
from myriad.envs.gene_circuit import (
    KINETIC,
    SINE,
    GeneCircuitParams,
    GeneCircuitState,
    hill,
    log2,
    react,
)
from myriad.spaces import Box, Discrete

# F is a whole number, so a Gaussian with a smaller variance than this would be too certain.
_LEAST_VARIANCE = 1.0


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class GeneCircuitSysIDParams(GeneCircuitParams):
    """The circuit's parameters (medians of the hidden ones). Those of the target are not used.

    `spread` is the standard deviation of each hidden parameter's natural logarithm.
    """

    spread: Spread = 0.3


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class GeneCircuitSysIDState:
    """The cell, the hidden parameters' scores, and the posterior of the scores and of H.

    A score says where a parameter lies in its prior: parameter = median * exp(spread * score).
    """

    cell: GeneCircuitState
    hidden: Scalars
    posterior: Gaussian


@dataclasses.dataclass(frozen=True)
class GeneCircuitSysID:
    """Switch light off (0) or on (1) to learn the `hidden` kinetics in 288 intervals.

    Each episode draws the hidden parameters from independent log-normal priors. F is counted
    without error at the end of each interval, and H is not observed. All noise comes from the
    reactions.

    The estimate is the mean of a Gaussian posterior over the scores and H, from a cubature Kalman
    filter. Its likelihood approximates the law of the next F by a Gaussian. The mean comes from the
    deterministic rate equations, over the interval and from the F just seen. The variance is that
    of losing and making F at the rates of the interval's middle, but at least 1 molecule^2. H moves
    with its exact mean and variance. This is a linear noise approximation (Komorowski et al. 2009,
    "Bayesian inference of biochemical kinetic parameters using the linear noise approximation")
    that starts again at each count. It leaves out that H's noise already moves F within its
    interval.

    Reward: the reduction of the estimate's squared error, averaged over the hidden parameters, in
    units of the priors' variances. So a return is the error at the start, which is 1 on average,
    minus the error at the end, and its expectation is at most 1. Source: quadratic loss, in
    Chaloner and Verdinelli (1995), "Bayesian experimental design: a review".

    Observation: F / 80; the last light, 0 or 1; the mean and the standard deviation of H, / 80; the
    mean and the standard deviation of each score; float32 `[4 + 2 * len(hidden)]`.

    Raises:
        InvalidArgumentError: `hidden` isn't a tuple of different kinetic parameters.
    """

    hidden: tuple[str, ...] = ("rate_h", "Kh", "rate_f", "Kf")
    default_params: GeneCircuitSysIDParams = GeneCircuitSysIDParams()

    @property
    def unused(self) -> dict[str, str]:
        """The parameters of a target."""
        return dict.fromkeys(("target_level", *SINE), "without a target")

    def __post_init__(self) -> None:
        require_hidden(self.hidden, KINETIC)

    def reset(
        self, key: jax.Array, params: GeneCircuitSysIDParams
    ) -> tuple[jax.Array, GeneCircuitSysIDState]:
        """Start with a known state without molecules, and draw the hidden parameters."""
        zero = jnp.zeros((), jnp.int32)
        no_light = jnp.zeros((), jnp.float32)
        scores = tuple(jax.random.normal(key, (len(self.hidden),)))
        posterior = standard_gaussian(len(scores)).push(
            lambda *scores: ((no_light,), (no_light,)), len(scores)
        )
        state = GeneCircuitSysIDState(GeneCircuitState(zero, zero, zero), scores, posterior)
        return _observe(state, no_light), state

    def step(
        self,
        key: jax.Array,
        state: GeneCircuitSysIDState,
        action: jax.Array,
        params: GeneCircuitSysIDParams,
    ) -> tuple[jax.Array, GeneCircuitSysIDState, jax.Array, jax.Array, jax.Array, dict[str, Any]]:
        """Switch the light, simulate one interval, and learn from the new count of F."""
        light = (self.action_space(params).validate(action) == 1).astype(jnp.float32)
        figures = with_scores(params, self.hidden, state.hidden)
        H, F = react(
            key, state.cell.H.astype(jnp.float32), state.cell.F.astype(jnp.float32), light, figures
        )
        posterior = self._learn(state, light, F, params)
        reward = self.error(state) - self.error(dataclasses.replace(state, posterior=posterior))
        cell = GeneCircuitState(H.astype(jnp.int32), F.astype(jnp.int32), state.cell.time + 1)
        state = GeneCircuitSysIDState(cell, state.hidden, posterior)
        return (
            _observe(state, light),
            state,
            reward,
            jnp.zeros((), bool),
            cell.time >= params.max_steps,
            {},
        )

    def error(self, state: GeneCircuitSysIDState) -> jax.Array:
        """Return the estimate's squared error in scores, averaged over the hidden parameters."""
        return squared_error(state.posterior.mean[:-1], state.hidden)

    def observation_space(self, params: GeneCircuitSysIDParams) -> Box:
        """Return a space without bounds."""
        return Box(-np.inf, np.inf, (4 + 2 * len(self.hidden),))

    def action_space(self, params: GeneCircuitSysIDParams) -> Discrete:
        """Return light off and on."""
        return Discrete(2)

    def _learn(
        self,
        state: GeneCircuitSysIDState,
        light: jax.Array,
        F: jax.Array,
        params: GeneCircuitSysIDParams,
    ) -> Gaussian:
        """Condition the posterior on `F` at the end of the interval that follows `state`."""
        seen = state.cell.F.astype(jnp.float32)

        def predict(*quantities: jax.Array) -> tuple[Scalars, Scalars]:
            *scores, H = quantities
            figures = with_scores(params, self.hidden, scores)
            next_h, next_f = expected_counts(H, seen, light, figures)
            # Each molecule stays with probability p, and new ones are made. The variances add up to
            # mean - count * p^2.
            p_squared = jnp.exp(-2.0 * figures.nu * figures.interval)
            of_h = next_h - jnp.maximum(H, 0.0) * p_squared
            return (next_h, next_f), (of_h, jnp.maximum(next_f - seen * p_squared, _LEAST_VARIANCE))

        return state.posterior.push(predict, len(self.hidden)).condition(F)


def expected_counts(
    H: jax.Array, F: jax.Array, light: jax.Array, params: GeneCircuitParams
) -> tuple[jax.Array, jax.Array]:
    """Return H and F one interval later. H is exact, and F uses the exponential midpoint rule."""
    halfway = jnp.exp(-0.5 * params.nu * params.interval)
    log2_kh, log2_kf = (log2(jnp.asarray(k, jnp.float32)) for k in (params.Kh, params.Kf))
    level_h = params.eta * light / params.nu

    def level_f(H: jax.Array, F: jax.Array) -> jax.Array:
        """Return where F would settle if it were made at its present rate for ever."""
        return (
            hill(H, params.rate_h, log2_kh, params.nh) + hill(F, params.rate_f, log2_kf, params.nf)
        ) / params.nu

    start = level_f(H, F)
    middle = level_f(level_h + (H - level_h) * halfway, start + (F - start) * halfway)
    left = halfway * halfway
    return level_h + (H - level_h) * left, middle + (F - middle) * left


def _observe(state: GeneCircuitSysIDState, light: jax.Array) -> jax.Array:
    (*means, H) = state.posterior.mean
    (*deviations, about_H) = state.posterior.deviations()
    F, H, about_H = (
        count * np.float32(1 / 80) for count in (state.cell.F.astype(jnp.float32), H, about_H)
    )
    return jnp.stack([F, light, H, about_H, *means, *deviations])
