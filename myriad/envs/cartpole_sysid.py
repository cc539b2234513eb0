"""System identification of a cart and pole: push it to learn its parameters.

The state holds a Gaussian posterior of the parameters, which a cubature Kalman filter updates. The
reward is how much closer its mean came to the truth.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from myriad.envs.cartpole import CartPoleParams, CartPoleState, accelerations, integrate
from myriad.envs.environment import Positive, Spread
from myriad.envs.estimation import (
    Gaussian,
    Scalars,
    require_hidden,
    squared_error,
    standard_gaussian,
    with_scores,
)
from myriad.spaces import Box, Discrete

# With these priors, the first measurement is stronger than one Gaussian update can follow along the
# curve of exp(score). So its likelihood L enters as L**0.1 and then, from there, as L**0.9. The
# product is L, and in a linear model it makes no difference.
_PARTS = (0.1, 0.9)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class CartPoleSysIDParams(CartPoleParams):
    """Parameters of the cart and pole (medians of the hidden ones), of the priors and the noise.

    `spread` is the standard deviation of each hidden parameter's natural logarithm. `x_noise`,
    m/s^2, and `theta_noise`, rad/s^2, are the standard deviations of the disturbances of the
    accelerations.
    """

    spread: Spread = 0.3
    x_noise: Positive = 0.5
    theta_noise: Positive = 2.0


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class CartPoleSysIDState:
    """The cart and pole, the hidden parameters' scores, and the posterior of these scores.

    A score says where a parameter lies in its prior: parameter = median * exp(spread * score).
    """

    cart: CartPoleState
    hidden: Scalars
    posterior: Gaussian


@dataclasses.dataclass(frozen=True)
class CartPoleSysID:
    """Push left (0) or right (1) to learn the `hidden` parameters. 500 steps, never terminated.

    Each episode draws the hidden parameters from independent log-normal priors. Gusts disturb the
    accelerations by Gaussian noise, which is independent from step to step. Position and velocity
    are observed exactly, so a change of velocity measures an acceleration with that noise. A cart
    or pole beyond the limits of `cartpole-control` is caught and set up again, nearly upright,
    within the episode. The parameters and the posterior stay.

    The estimate is the mean of a Gaussian posterior over the scores, from a cubature Kalman filter.
    The filter's model and noise are the true ones. Only the Gaussian posterior is an approximation,
    which is good up to the default spread.

    Reward: the reduction of the estimate's squared error, averaged over the hidden parameters, in
    units of the priors' variances. So a return is the error at the start, which is 1 on average,
    minus the error at the end, and its expectation is at most 1. Source: quadratic loss, in
    Chaloner and Verdinelli (1995), "Bayesian experimental design: a review".

    Observation: x, x_dot, theta, theta_dot; the accelerations just measured; the last push, -1 or 1
    (these three are 0 at the start); the mean and the standard deviation of each score; float32 `[7
    + 2 * len(hidden)]`.

    Raises:
        InvalidArgumentError: `hidden` isn't a tuple of different physical parameters.
    """

    hidden: tuple[str, ...] = ("mass_pole", "half_length", "force")
    default_params: CartPoleSysIDParams = CartPoleSysIDParams()

    def __post_init__(self) -> None:
        require_hidden(self.hidden, ("gravity", "mass_cart", "mass_pole", "half_length", "force"))

    def reset(
        self, key: jax.Array, params: CartPoleSysIDParams
    ) -> tuple[jax.Array, CartPoleSysIDState]:
        """Draw the cart and pole as `cartpole-control` does, and the hidden parameters."""
        cart_key, scores_key = jax.random.split(key)
        cart = _set_up(cart_key, jnp.zeros((), jnp.int32))
        scores = tuple(jax.random.normal(scores_key, (len(self.hidden),)))
        state = CartPoleSysIDState(cart, scores, standard_gaussian(len(scores)))
        zero = jnp.zeros((), jnp.float32)
        return _observe(state, (zero, zero), zero), state

    def step(
        self,
        key: jax.Array,
        state: CartPoleSysIDState,
        action: jax.Array,
        params: CartPoleSysIDParams,
    ) -> tuple[jax.Array, CartPoleSysIDState, jax.Array, jax.Array, jax.Array, dict[str, Any]]:
        """Push for `tau` seconds, measure the accelerations, and learn from them."""
        set_up_key, gust_key = jax.random.split(key)
        push = jnp.where(self.action_space(params).validate(action) == 1, 1.0, -1.0).astype(
            jnp.float32
        )
        of_x, of_theta = jax.random.normal(gust_key, (2,))
        gusts = (params.x_noise * of_x, params.theta_noise * of_theta)
        figures = with_scores(params, self.hidden, state.hidden)
        exact = accelerations(state.cart, push * figures.force, figures)
        measured = tuple(each + gust for each, gust in zip(exact, gusts, strict=True))
        cart = integrate(state.cart, push * figures.force, figures)
        x_dot = cart.x_dot + params.tau * gusts[0]
        theta_dot = cart.theta_dot + params.tau * gusts[1]
        cart = dataclasses.replace(cart, x_dot=x_dot, theta_dot=theta_dot)
        posterior = self._learn(state, push, measured, params)
        reward = squared_error(state.posterior.mean, state.hidden) - squared_error(
            posterior.mean, state.hidden
        )
        out = (jnp.abs(cart.x) > params.x_threshold) | (
            jnp.abs(cart.theta) > params.theta_threshold
        )
        cart = jax.tree.map(
            lambda new, old: jnp.where(out, new, old), _set_up(set_up_key, cart.time), cart
        )
        state = CartPoleSysIDState(cart, state.hidden, posterior)
        return (
            _observe(state, measured, push),
            state,
            reward,
            jnp.zeros((), bool),
            cart.time >= params.max_steps,
            {},
        )

    def observation_space(self, params: CartPoleSysIDParams) -> Box:
        """Return a space without bounds."""
        return Box(-np.inf, np.inf, (7 + 2 * len(self.hidden),))

    def action_space(self, params: CartPoleSysIDParams) -> Discrete:
        """Return left and right."""
        return Discrete(2)

    def _learn(
        self,
        state: CartPoleSysIDState,
        push: jax.Array,
        measured: Scalars,
        params: CartPoleSysIDParams,
    ) -> Gaussian:
        """Condition the posterior on the two accelerations that followed from `state.cart`."""
        posterior = state.posterior
        (of_x, of_theta) = measured
        for part in _PARTS:
            variances = tuple(
                noise * noise * (1.0 / part) for noise in (params.x_noise, params.theta_noise)
            )

            def predict(*scores: jax.Array, variances: Any = variances) -> tuple[Scalars, Any]:
                figures = with_scores(params, self.hidden, scores)
                return accelerations(state.cart, push * figures.force, figures), variances

            posterior = (
                posterior.push(predict, len(self.hidden)).condition(of_theta).condition(of_x)
            )
        return posterior


def _set_up(key: jax.Array, time: jax.Array) -> CartPoleState:
    return CartPoleState(*jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05), time=time)


def _observe(state: CartPoleSysIDState, measured: Scalars, push: jax.Array) -> jax.Array:
    cart = (state.cart.x, state.cart.x_dot, state.cart.theta, state.cart.theta_dot)
    return jnp.stack([*cart, *measured, push, *state.posterior.mean, *state.posterior.deviations()])
