"""Stochastic policies, which turn a network's outputs into a distribution and into actions.

`N` is the batch, `P` the network's outputs and `C` the components of an action. `log_std`, `[C]` or
empty, is learned as well but doesn't depend on observations. A choice is float32 `[N, C]` for every
space, so that a batch of experience is one array. `action` turns a choice into the environment's
action.
"""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from myriad.engine.vector_math import argmax
from myriad.errors import InvalidArgumentError
from myriad.spaces import Box, Discrete, MultiDiscrete, Space

# The output of an illegal action. It is finite, so that an entropy is no NaN.
ILLEGAL = np.float32(-1e9)
# The logarithms of deviations that a network may choose, as in the own program of SAC's paper.
LOG_STD_RANGE = (-20.0, 2.0)


# Written out here instead of using distrax, which needs TensorFlow Probability. The stable release
# of that fails to import with today's JAX.
@dataclasses.dataclass(frozen=True)
class CategoricalPolicy:
    """Independent categorical components. The `P` outputs are the logits of all in order."""

    nvec: tuple[int, ...]
    scalar: bool

    @property
    def num_outputs(self) -> int:
        return sum(self.nvec)

    def initial_log_std(self) -> jax.Array | None:
        """Return the initial `log_std`, None if the policy has none."""
        return None

    def sample(self, keys: jax.Array, outputs: jax.Array, log_std: Any) -> jax.Array:
        """Draw a choice with each key, `[N, C]`."""
        # Invert the cumulative distribution: one uniform number per component, not per logit.
        uniform = jax.vmap(lambda key: jax.random.uniform(key, (len(self.nvec),)))(keys)
        choices = []
        for component, logits in enumerate(self._components(outputs)):
            weights = jnp.exp(logits - jnp.max(logits, axis=0, keepdims=True))
            cumulative = jnp.cumsum(weights, axis=0)
            # Not divided by their sum: below the sum itself, rounding can't reach a last action
            # whose probability is 0.
            drawn = uniform[:, component] * cumulative[-1]
            choices.append(jnp.sum(drawn[None] >= cumulative[:-1], axis=0, dtype=jnp.float32))
        return jnp.stack(choices, axis=-1)

    def mode(self, outputs: jax.Array) -> jax.Array:
        """Return the likeliest choice, `[N, C]`."""
        choices = [argmax(logits, axis=0) for logits in self._components(outputs)]
        return jnp.stack(choices, axis=-1).astype(jnp.float32)

    def log_prob_and_entropy(
        self, outputs: jax.Array, log_std: Any, choice: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Return each choice's log probability (density) and the entropy in nats, `[N]` each."""
        log_prob = entropy = jnp.zeros(outputs.shape[:1], jnp.float32)
        for component, logits in enumerate(self._components(outputs)):
            log_probs = jax.nn.log_softmax(logits, axis=0)
            # A comparison instead of a gather, whose derivative would be a scatter.
            number = np.arange(logits.shape[0], dtype=np.float32)
            chosen = choice[None, :, component] == number[:, None]
            log_prob = log_prob + jnp.sum(jnp.where(chosen, log_probs, 0), axis=0)
            entropy = entropy - jnp.sum(jnp.exp(log_probs) * log_probs, axis=0)
        return log_prob, entropy

    def action(self, choice: jax.Array) -> jax.Array:
        """Return the environment's actions `[N, *A]` for choices `[N, C]`."""
        actions = choice.astype(jnp.int32)
        return actions[:, 0] if self.scalar else actions

    def _components(self, outputs: jax.Array) -> list[jax.Array]:
        """Return each component's logits, `[nvec[i], N]`: sums over the first axis vectorise."""
        return jnp.split(outputs.T, np.cumsum(self.nvec)[:-1], axis=0)


@dataclasses.dataclass(frozen=True)
class GaussianPolicy:
    """A diagonal Gaussian. Its deviations don't depend on observations, and its draws are clipped.

    Choices from -1 to 1 span each bounded dimension, where the mean is the hyperbolic tangent of
    the output. A mean far outside the box would clip every draw to the same action, and the agent
    couldn't learn from them. Draws outside the box are clipped only for the environment, so that
    the density stays that of the Gaussian. In an unbounded dimension, outputs are the means, and
    an action is a choice times `action_scale`.
    """

    space: Box
    first_log_std: float = 0.0
    action_scale: float = 1.0

    @property
    def num_outputs(self) -> int:
        return math.prod(self.space.shape)

    def initial_log_std(self) -> jax.Array | None:
        return jnp.full(self.num_outputs, self.first_log_std, jnp.float32)

    def sample(self, keys: jax.Array, outputs: jax.Array, log_std: Any) -> jax.Array:
        noise = jax.vmap(lambda key: jax.random.normal(key, outputs.shape[1:]))(keys)
        return self.mode(outputs) + jnp.exp(log_std)[None] * noise

    def mode(self, outputs: jax.Array) -> jax.Array:
        return self.squash(outputs)

    def log_prob_and_entropy(
        self, outputs: jax.Array, log_std: Any, choice: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        deviation = (choice - self.mode(outputs)) * jnp.exp(-log_std)[None]
        log_norm = jnp.sum(log_std) + 0.5 * math.log(2 * math.pi) * self.num_outputs
        log_prob = -0.5 * jnp.sum(jnp.square(deviation), axis=-1) - log_norm
        return log_prob, jnp.broadcast_to(log_norm + 0.5 * self.num_outputs, log_prob.shape)

    def action(self, choice: jax.Array) -> jax.Array:
        low, high = self._bounds
        least = np.where(self.bounded, low, -1)
        most = np.where(self.bounded, high, 1)
        scale = jnp.where(self.bounded, 0.5 * (most - least), self.action_scale)
        middle = np.asarray(0.5 * (least + most))
        spread = middle[None] + scale[None] * choice.reshape(-1, *self.space.shape)
        return self.space.cast(jnp.clip(spread, low[None], high[None]))

    def squash(self, choice: jax.Array) -> jax.Array:
        """Return the hyperbolic tangent of bounded components, and the others as they are."""
        return jnp.where(self.bounded.reshape(-1), jnp.tanh(choice), choice)

    @property
    def _bounds(self) -> tuple[np.ndarray, np.ndarray]:
        low, high = (np.asarray(bound, np.float32) for bound in (self.space.low, self.space.high))
        return np.broadcast_to(low, self.space.shape), np.broadcast_to(high, self.space.shape)

    @property
    def bounded(self) -> np.ndarray:
        """Which components of an action have bounds, boolean `[*A]`."""
        low, high = self._bounds
        return np.isfinite(low) & np.isfinite(high)


@dataclasses.dataclass(frozen=True)
class TanhGaussianPolicy(GaussianPolicy):
    """A diagonal Gaussian that a hyperbolic tangent maps into the box, so no draw is clipped.

    The `P = 2 C` outputs are the means, then what is added to `first_log_std` for the logarithms of
    the deviations. A choice is what was drawn before the tangent, from which rounding couldn't find
    it again near a bound. Densities and the entropy are those of its tangent. Dimensions without
    bounds are not squashed. Source: Haarnoja et al. (2018), "Soft actor-critic algorithms and
    applications", appendix C.
    """

    @property
    def num_outputs(self) -> int:
        return 2 * super().num_outputs

    def initial_log_std(self) -> jax.Array | None:
        return None

    def sample(self, keys: jax.Array, outputs: jax.Array, log_std: Any) -> jax.Array:
        mean, log_std = self._moments(outputs)
        noise = jax.vmap(lambda key: jax.random.normal(key, mean.shape[1:]))(keys)
        return mean + jnp.exp(log_std) * noise

    def mode(self, outputs: jax.Array) -> jax.Array:
        """Return the middle of the distribution, `[N, C]`."""
        return self._moments(outputs)[0]

    def log_prob_and_entropy(
        self, outputs: jax.Array, log_std: Any, choice: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        mean, log_std = self._moments(outputs)
        log_norm = log_std + 0.5 * math.log(2 * math.pi)
        deviation = (choice - mean) * jnp.exp(-log_std)
        log_prob = -0.5 * jnp.square(deviation) - log_norm - self._log_slope(choice)
        # The mean of the slope's logarithm has no closed form. Gauss-Hermite quadrature needs no
        # draw for it. It is within 1e-3 for deviations up to 1.6.
        rule = np.asarray(np.polynomial.hermite_e.hermegauss(16), np.float32)
        nodes, weights = rule.reshape(2, -1, 1, 1)
        slopes = self._log_slope(mean + jnp.exp(log_std) * nodes)
        entropy = log_norm + 0.5 + jnp.sum(weights * slopes, axis=0) / weights.sum()
        return jnp.sum(log_prob, axis=1), jnp.sum(entropy, axis=1)

    def action(self, choice: jax.Array) -> jax.Array:
        return super().action(self.squash(choice))

    def _moments(self, outputs: jax.Array) -> tuple[jax.Array, jax.Array]:
        mean, log_std = jnp.split(outputs, 2, axis=1)
        return mean, jnp.clip(self.first_log_std + log_std, *LOG_STD_RANGE)

    def _log_slope(self, choice: jax.Array) -> jax.Array:
        return jnp.where(self.bounded.reshape(-1), log_slope_of_tanh(choice), 0)


Policy = CategoricalPolicy | GaussianPolicy


def log_slope_of_tanh(x: jax.Array) -> jax.Array:
    """Return the logarithm of `1 - tanh(x)^2`, which itself rounds to 0 where the slope is flat."""
    return 2 * (math.log(2) - x - jax.nn.softplus(-2 * x))


def legal_outputs(outputs: jax.Array, mask: jax.Array) -> jax.Array:
    """Return the outputs, `[N, P]`, with those of illegal actions so low that none is chosen.

    `mask`, `[N, P]`, is 0 for illegal actions. Where it is 0 for all, all are legal. It is `[N, 0]`
    if the environment has none.
    """
    if not mask.shape[1]:
        return outputs
    is_legal = mask > 0
    return jnp.where(is_legal | ~jnp.any(is_legal, axis=1, keepdims=True), outputs, ILLEGAL)


def make_policy(
    space: Space,
    first_log_std: float = 0.0,
    action_scale: float = 1.0,
    *,
    squash_actions: bool = False,
) -> Policy:
    """Return the policy for an action space. The other arguments are of a Gaussian.

    Raises:
        InvalidArgumentError: there is no policy for this kind of space.
    """
    if isinstance(space, Discrete):
        return CategoricalPolicy((space.n,), scalar=True)
    if isinstance(space, MultiDiscrete):
        return CategoricalPolicy(space.nvec, scalar=False)
    if isinstance(space, Box):
        kind = TanhGaussianPolicy if squash_actions else GaussianPolicy
        return kind(space, first_log_std, action_scale)
    raise InvalidArgumentError("action_space", "must be Discrete, MultiDiscrete or Box", space)
