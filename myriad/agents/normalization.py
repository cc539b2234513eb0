"""Running moments of what a learner has seen: it normalises observations and rewards by them."""

import dataclasses

import jax
import jax.numpy as jnp

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
        batch = batch.reshape(-1, *self.mean.shape)
        batch_mean = jnp.mean(batch, axis=0)
        batch_variance = jnp.mean(jnp.square(batch - batch_mean), axis=0)
        count = self.count + batch.shape[0]
        weight = batch.shape[0] / count
        shift = batch_mean - self.mean
        variance = (
            (1 - weight) * self.variance
            + weight * batch_variance
            + weight * (1 - weight) * jnp.square(shift)
        )
        return RunningMoments(count, self.mean + weight * shift, variance)

    def normalize(
        self, values: jax.Array, limit: float = 10.0, *, least_deviation: float = 0.0
    ) -> jax.Array:
        """Shift and scale `[..., *S]` to mean 0 and variance 1, clipped to `limit` on both sides.

        What varies less than `least_deviation` is divided by that, so that at 1 small values are
        not blown up.
        """
        variance = jnp.maximum(self.variance, least_deviation**2) + _EPSILON
        return jnp.clip((values - self.mean) * jax.lax.rsqrt(variance), -limit, limit)

    def scale(self, values: jax.Array, limit: float = 10.0) -> jax.Array:
        """Divide `[..., *S]` by the standard deviation, so that signs stay; clip to +-`limit`."""
        return jnp.clip(values * jax.lax.rsqrt(self.variance + _EPSILON), -limit, limit)


def update_moments(stats: RunningMoments | None, batch: jax.Array) -> RunningMoments | None:
    """Merge a batch into the moments; None, where normalisation is off, stays None."""
    return None if stats is None else stats.update(batch)


def normalize_obs(
    stats: RunningMoments | None, obs: jax.Array, *, least_deviation: float = 0.0
) -> jax.Array:
    """Normalise observations `[..., D]`, unless normalisation is off."""
    return obs if stats is None else stats.normalize(obs, least_deviation=least_deviation)


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
