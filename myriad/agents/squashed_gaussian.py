"""The policy of SAC and, without its draws, of TD3.

`N` is the batch and `C` the components of an action.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np

from myriad.agents.policies import LOG_STD_RANGE, GaussianPolicy, log_slope_of_tanh
from myriad.errors import InvalidArgumentError
from myriad.spaces import Box


@dataclasses.dataclass(frozen=True)
class SquashedGaussianPolicy:
    """The hyperbolic tangent of a diagonal Gaussian whose deviations depend on observations, too.

    The `P = 2 C` outputs are the means, then the logarithms of the deviations. Choices from -1 to 1
    span the box, so no draw is clipped. Source: Haarnoja et al. (2018), "Soft actor-critic
    algorithms and applications", appendix C.

    Raises:
        InvalidArgumentError: the space is not a bounded Box.
    """

    space: Box

    def __post_init__(self) -> None:
        bounds = (self.space.low, self.space.high) if isinstance(self.space, Box) else (np.inf,)
        if not all(np.isfinite(bound).all() for bound in bounds):
            rule = "must be a Box with bounds for SAC and TD3; ppo learns other actions"
            raise InvalidArgumentError("action_space", rule, self.space)

    @property
    def num_choices(self) -> int:
        return math.prod(self.space.shape)

    def sample(self, outputs: jax.Array, noise: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return choices, `[N, C]`, and their log densities, `[N]`, for standard normal noise."""
        mean, log_std = jnp.split(outputs, 2, axis=1)
        log_std = jnp.clip(log_std, *LOG_STD_RANGE)
        drawn = mean + jnp.exp(log_std) * noise
        log_prob = -0.5 * jnp.square(noise) - log_std - 0.5 * math.log(2 * math.pi)
        return jnp.tanh(drawn), jnp.sum(log_prob - log_slope_of_tanh(drawn), axis=1)

    def mode(self, outputs: jax.Array) -> jax.Array:
        """Return the middle of the distribution, `[N, C]`."""
        return jnp.tanh(outputs[:, : self.num_choices])

    def action(self, choice: jax.Array) -> jax.Array:
        """Return the environment's actions `[N, *A]` for choices `[N, C]`."""
        return GaussianPolicy(self.space).action(choice)
