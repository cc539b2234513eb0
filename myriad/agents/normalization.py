"""Running moments, by which a learner normalises observations and rewards."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from myriad.agents.agent import Mean, alone
from myriad.agents.networks.mlp import EXACT

# Added to a variance before the root, so that a constant is divided by 1e-4 and not by 0.
_EPSILON = 1e-8


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class RunningMoments:
    """Mean and variance of all elements so far, per dimension, float32.

    Batches are merged as in Chan, Golub and LeVeque (1979), "Updating formulae and a pairwise
    algorithm for computing sample variances". This form keeps the variance and not the sum of
    squares, which would grow for ever.

    Attributes:
        count: elements that this device has seen, float32 scalar. It stops growing at 2**24 times
            the size of a batch, and from then on the oldest elements fade.
        mean: `[*S]`; 0 before the first batch.
        variance: `[*S]`, about the mean, divided by `count`; 1 before the first batch.

    Example:
        >>> moments = RunningMoments.create(())
        >>> moments = moments.update(jnp.array([1.0, 3.0])).update(jnp.array([5.0, 7.0]))
        >>> float(moments.count), float(moments.mean), float(moments.variance)
        (4.0, 4.0, 5.0)
    """

    count: jax.Array
    mean: jax.Array
    variance: jax.Array

    @classmethod
    def create(cls, shape: tuple[int, ...]) -> "RunningMoments":
        """Return the moments of no elements, with which `normalize` leaves values as they are."""
        return cls(
            jnp.zeros((), jnp.float32), jnp.zeros(shape, jnp.float32), jnp.ones(shape, jnp.float32)
        )

    def update(self, batch: jax.Array, mean: Mean = alone) -> "RunningMoments":
        """Merge a batch, `[..., *S]`, whose leading axes count elements.

        `mean` averages over devices that have equally large batches. They count as one batch.
        """
        batch = batch.reshape(-1, *self.mean.shape).astype(jnp.float32)
        batch_mean = mean(jnp.mean(batch, axis=0))
        batch_variance = mean(jnp.mean(jnp.square(batch - batch_mean[None]), axis=0))
        count = self.count + batch.shape[0]
        weight = batch.shape[0] / count
        shift = batch_mean - self.mean
        variance = (
            (1 - weight) * self.variance
            + weight * batch_variance
            + weight * (1 - weight) * jnp.square(shift)
        )
        return RunningMoments(count, self.mean + weight * shift, variance)

    def normalize(self, values: jax.Array, limit: float = 10.0) -> jax.Array:
        """Shift and scale `[..., *S]` to mean 0 and variance 1, clipped to +-`limit`."""
        axes = tuple(range(values.ndim - self.mean.ndim))
        shift, scale = self.mean, jax.lax.rsqrt(self.variance + _EPSILON)
        deviations = (values - jnp.expand_dims(shift, axes)) * jnp.expand_dims(scale, axes)
        return jnp.clip(deviations, -limit, limit)

    def scale(self, values: jax.Array, limit: float = 10.0) -> jax.Array:
        """Divide `[..., *S]` by the standard deviation, which keeps signs; clip to +-`limit`."""
        return jnp.clip(values * jax.lax.rsqrt(self.variance + _EPSILON), -limit, limit)


def first_or(old: RunningMoments | None, new: RunningMoments | None) -> RunningMoments | None:
    """Return the old moments, or the new ones if the old have seen no elements."""
    if old is None or new is None:
        return None
    return jax.tree.map(
        lambda old_leaf, new_leaf: jnp.where(old.count > 0, old_leaf, new_leaf), old, new
    )


def preserve_outputs(
    layers: dict[str, Any], old: RunningMoments, new: RunningMoments
) -> dict[str, Any]:
    """Return a network's layers, with the first adapted so that outputs under `new` stay the same.

    Van Hasselt et al. (2016), "Learning values across many orders of magnitude", do so for a last
    layer when the scale of its targets changes. Without this, a policy collapses when a coordinate
    begins to vary more: CartPole's cart hardly moves until the pole is balanced.

    The change of a deviation counts up to a factor of 2, and the change of a mean up to one
    deviation: a coordinate that never varied before played no part in what was learned.

    The layers are flax's parameters. The first, `Dense_0`, has `kernel`, `[D, H]`, and `bias`.
    """
    first = layers["Dense_0"]
    old_inverse = jax.lax.rsqrt(old.variance + _EPSILON)
    scale = jnp.clip(jnp.sqrt(new.variance + _EPSILON) * old_inverse, 0.5, 2.0)
    shift = jnp.clip((new.mean - old.mean) * old_inverse, -1.0, 1.0)
    kernel, bias = (first[name].astype(jnp.float32) for name in ("kernel", "bias"))
    changed = {
        "kernel": kernel * scale[:, None],
        "bias": bias + jnp.matmul(shift, kernel, precision=EXACT),
    }
    changed = {name: leaf.astype(first[name].dtype) for name, leaf in changed.items()}
    return layers | {"Dense_0": changed}


def update_moments(
    stats: RunningMoments | None, batch: jax.Array, mean: Mean = alone
) -> RunningMoments | None:
    """Merge a batch into the moments. If normalisation is off they are None, and stay None.

    A mask of actions that follows the observation is left out.
    """
    if stats is None:
        return None
    return stats.update(batch[..., : stats.mean.size] if stats.mean.ndim else batch, mean)


def normalize_obs(stats: RunningMoments | None, obs: jax.Array) -> jax.Array:
    """Return observations `[..., D]` in float32, normalised unless normalisation is off.

    A mask of actions that follows the observation stays as it is.
    """
    if stats is None:
        return obs.astype(jnp.float32)
    size = stats.mean.size
    if obs.shape[-1] == size:
        return stats.normalize(obs)
    mask = obs[..., size:].astype(jnp.float32)
    return jnp.concatenate([stats.normalize(obs[..., :size]), mask], axis=-1)


def scale_rewards(stats: RunningMoments | None, reward: jax.Array) -> jax.Array:
    """Scale rewards of any shape, unless normalisation is off."""
    return reward if stats is None else stats.scale(reward)


def discounted_return(
    previous: jax.Array, reward: jax.Array, done: jax.Array, discount: float
) -> tuple[jax.Array, jax.Array]:
    """Return the discounted sum of an episode's rewards, by whose deviation rewards are scaled.

    `R_t = discount * R_(t-1) + r_t` starts again at 0 after an episode's end, as Engstrom et al.
    (2020), "Implementation matters in deep policy gradients", describe it. Values of the scaled
    rewards then stay of order 1.

    `previous` is `R_(t-1)`, or 0 where an episode begins, `[N]`. Return `R_t`, and `previous` for
    the next step.
    """
    running = discount * previous + reward
    return running, jnp.where(done, 0, running)
