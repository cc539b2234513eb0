"""Running moments of what a learner has seen: it normalises observations and rewards by them."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from myriad.agents.networks import EXACT
from myriad.agents.shards import Shards

# Added to a variance before its root, so that what never varies is divided by 1e-4 and not by 0.
_EPSILON = 1e-8


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class RunningMoments:
    """Mean and variance of all elements so far, per dimension, float32.

    Batches are merged by Chan, Golub and LeVeque (1979), "Updating formulae and a pairwise
    algorithm for computing sample variances", here in the form that keeps the variance and not the
    sum of squares, which would grow for ever.

    Attributes:
        count: elements seen, float32 scalar; past 2**24 batches of it, it stops growing and the
            oldest fade.
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
        """Return the moments of nothing, under which `normalize` leaves values as they are."""
        return cls(
            jnp.zeros((), jnp.float32), jnp.zeros(shape, jnp.float32), jnp.ones(shape, jnp.float32)
        )

    def update(self, batch: jax.Array) -> "RunningMoments":
        """Merge a batch, `[..., *S]`: every leading axis counts elements."""
        batch = batch.reshape(-1, *self.mean.shape).astype(jnp.float32)
        return self.merged(*moments_of(batch), batch.shape[0])

    def merged(
        self, batch_mean: jax.Array, batch_variance: jax.Array, num_rows: int
    ) -> "RunningMoments":
        """Merge a batch of `num_rows` elements whose moments are known, `[*S]`."""
        count = self.count + num_rows
        weight = num_rows / count
        shift = batch_mean - self.mean
        variance = (
            (1 - weight) * self.variance
            + weight * batch_variance
            + weight * (1 - weight) * jnp.square(shift)
        )
        return RunningMoments(count, self.mean + weight * shift, variance)

    def normalize(self, values: jax.Array, limit: float = 10.0) -> jax.Array:
        """Shift and scale `[..., *S]` to mean 0 and variance 1, clipped to +-`limit`."""
        deviations = (values - self.mean) * jax.lax.rsqrt(self.variance + _EPSILON)
        return jnp.clip(deviations, -limit, limit)

    def scale(self, values: jax.Array, limit: float = 10.0) -> jax.Array:
        """Divide `[..., *S]` by the standard deviation, so that signs stay; clip to +-`limit`."""
        return jnp.clip(values * jax.lax.rsqrt(self.variance + _EPSILON), -limit, limit)


def first_or(old: RunningMoments | None, new: RunningMoments | None) -> RunningMoments | None:
    """Return the old moments, or the new ones where the old are those of nothing."""
    if old is None or new is None:
        return None
    return jax.tree.map(
        lambda old_leaf, new_leaf: jnp.where(old.count > 0, old_leaf, new_leaf), old, new
    )


def preserve_outputs(
    layers: dict[str, Any], old: RunningMoments, new: RunningMoments
) -> dict[str, Any]:
    """Return a network's layers, the first changed so that it computes under `new` what it did.

    Van Hasselt et al. (2016), "Learning values across many orders of magnitude", do so for a last
    layer when the scale of its targets changes. Without it a policy falls over as a coordinate
    spreads: CartPole's cart hardly moves before the pole is balanced.

    A deviation's change counts up to a factor of 2, and a mean's up to a deviation: a coordinate
    that never varied before has had no part in what was learned.

    Args:
        layers: flax's parameters, the first layer under `Dense_0`: `kernel`, `[D, H]`, and `bias`.
        old: the moments that its inputs were normalised by.
        new: the moments that they will be normalised by.
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


def moments_of(rows: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return mean and variance over the first axis of float32 `[B, *S]`."""
    mean = jnp.mean(rows, axis=0)
    return mean, jnp.mean(jnp.square(rows - mean), axis=0)


def moments_of_all(of_each: Any, shards: Shards) -> tuple[jax.Array, jax.Array]:
    """Return mean and variance of all shards together, of those of equally many rows in each.

    They are merged as `RunningMoments` has it, in a binary tree.

    Args:
        of_each: mean and variance of each shard, `[L, *S]`.
        shards: where they lie.
    """
    mean, variance = shards.gathered(of_each)
    while mean.shape[0] > 1:
        half = (mean[0::2] - mean[1::2]) / 2
        mean = (mean[0::2] + mean[1::2]) / 2
        variance = (variance[0::2] + variance[1::2]) / 2 + jnp.square(half)
    return jax.lax.optimization_barrier((mean[0], variance[0]))


def update_moments(
    stats: RunningMoments | None, batch: jax.Array, shards: Shards | None = None
) -> RunningMoments | None:
    """Merge a batch into the moments; None, where normalisation is off, stays None.

    With shards the batch is that of each of them, `[L, ..., *S]`, and counts as one.
    """
    if stats is None or shards is None or shards.is_one:
        return None if stats is None else stats.update(batch)

    def of_shard(_: Any, part: jax.Array) -> tuple[jax.Array, jax.Array]:
        return moments_of(part.reshape(-1, *stats.mean.shape).astype(jnp.float32))

    mean, variance = moments_of_all(shards.each(of_shard, batch), shards)
    num_rows = batch.size // max(1, stats.mean.size) * shards.num_devices
    return jax.lax.optimization_barrier(stats.merged(mean, variance, num_rows))


def normalize_obs(stats: RunningMoments | None, obs: jax.Array) -> jax.Array:
    """Return observations `[..., D]` in float32, normalised unless normalisation is off."""
    return obs.astype(jnp.float32) if stats is None else stats.normalize(obs)


def scale_rewards(stats: RunningMoments | None, reward: jax.Array) -> jax.Array:
    """Scale rewards of any shape, unless normalisation is off."""
    return reward if stats is None else stats.scale(reward)


def discounted_return(
    previous: jax.Array, reward: jax.Array, done: jax.Array, discount: float
) -> tuple[jax.Array, jax.Array]:
    """Discount an episode's rewards from its start; rewards are scaled by the spread of this.

    `R_t = discount * R_(t-1) + r_t`, begun again at 0 after an episode's end, as Engstrom et al.
    (2020), "Implementation matters in deep policy gradients", describe it; values of the scaled
    rewards then stay of order 1.

    Args:
        previous: `R_(t-1)`, or 0 where an episode begins, `[N]`.
        reward: `r_t`, `[N]`.
        done: whether step t ended the episode, `[N]`.
        discount: per step.

    Returns:
        `R_t`, and what the next step takes as `previous`.
    """
    running = discount * previous + reward
    return running, jnp.where(done, 0, running)
