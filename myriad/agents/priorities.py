"""Prioritised experience replay: a tree of sums over the slots of a replay buffer.

Schaul et al. (2016), "Prioritized experience replay", section 3.3. In docstrings `S` is the number
of slots, `G` the number of batches and `B` the number of transitions in a batch.
"""

import dataclasses
from typing import Self

import jax
import jax.numpy as jnp

# Added to an error, so that every transition can be sampled again.
_LEAST = 1e-6


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Priorities:
    """Priorities to the power of alpha, and their sums.

    Attributes:
        sums: a binary tree, float32 `[2 L]` with `L` leaves, of which the first `S` are slots. Node
            `i` is the sum of nodes `2 i` and `2 i + 1`, and node 1 is the sum of all leaves.
        largest: the largest priority so far, with which new transitions begin.
    """

    sums: jax.Array
    largest: jax.Array

    @classmethod
    def create(cls, num_slots: int) -> Self:
        """Return the priorities of empty slots."""
        num_leaves = 1 << (num_slots - 1).bit_length()
        return cls(jnp.zeros(2 * num_leaves, jnp.float32), jnp.ones((), jnp.float32))

    def written(self, slots: jax.Array, value: jax.Array | float) -> "Priorities":
        """Return them with this priority in `slots`, int32 `[N]`. Those of 0 are not sampled."""
        values = jnp.broadcast_to(jnp.float32(value), slots.shape)
        return Priorities(_with_leaves(self.sums, slots, values), self.largest)

    def updated(
        self, slots: jax.Array, errors: jax.Array, alpha: float, counts: jax.Array
    ) -> "Priorities":
        """Return the priorities after the agent learned from transitions.

        `slots`, int32 of any shape, are the transitions', and `errors`, float32, their temporal-
        difference errors to the power of `alpha`. If a slot occurs twice, the larger error counts.
        Without `counts`, a boolean scalar, nothing changes.
        """
        old = self.sums[slots + self.sums.shape[0] // 2]
        # Select among values and not among whole trees, which would copy the tree.
        values = jnp.where(counts, (jnp.abs(errors) + _LEAST) ** alpha, old)
        largest = jnp.maximum(self.largest, jnp.max(values))
        return Priorities(_with_leaves(self.sums, slots, values), largest)

    def sample(
        self, key: jax.Array, num_batches: int, batch_size: int
    ) -> tuple[jax.Array, jax.Array]:
        """Draw batches of slots in proportion to their priorities.

        The sum is cut into `batch_size` equal parts, and a batch has one slot from each part.

        Returns:
            slots, int32 `[G, B]`, and their probabilities, float32 `[G, B]`.
        """
        total = self.sums[1]
        shape = (num_batches, batch_size)
        share = jnp.arange(batch_size, dtype=jnp.float32) + jax.random.uniform(key, shape)
        left_over = share / batch_size * total
        num_leaves = self.sums.shape[0] // 2

        def descend(_: int, place: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            node, left_over = place
            left = self.sums[2 * node]
            # Rounding must not lead into an empty subtree.
            goes_right = (left_over >= left) & (self.sums[2 * node + 1] > 0)
            left_over = jnp.where(goes_right, left_over - left, left_over)
            return 2 * node + goes_right, left_over

        # A loop, since XLA would fuse unrolled levels and repeat each one for every use by the
        # level below. With 16,384 leaves that took minutes to compile.
        node, _ = jax.lax.fori_loop(
            0, _depth(self.sums), descend, (jnp.ones(shape, jnp.int32), left_over)
        )
        return node - num_leaves, self.sums[node] / jnp.maximum(total, jnp.finfo(jnp.float32).tiny)


def importance_weights(
    probability: jax.Array,
    size: jax.Array,
    beta: float | jax.Array,
    counts: jax.Array | bool = True,  # noqa: FBT001, FBT002
) -> jax.Array:
    """Return the weights that correct for sampling by priority, `[G, B]`, at most 1 in a batch.

    `probability`, `[G, B]`, is of each sampled transition, of `size` to sample from. A `beta` of 1
    corrects fully, and 0 not at all. `counts`, boolean `[G, B]`, says which transitions are learned
    from. The others are seldom sampled, so their weight would be the largest.
    """
    weight = jnp.where(counts, (jnp.maximum(size, 1) * probability) ** -beta, 0)
    largest = jnp.max(weight, axis=-1, keepdims=True)
    return weight / jnp.maximum(largest, jnp.finfo(jnp.float32).tiny)


def _with_leaves(sums: jax.Array, slots: jax.Array, values: jax.Array) -> jax.Array:
    node = slots + sums.shape[0] // 2
    # If a scatter writes the same place twice, the order is undefined. A maximum needs no order.
    sums = sums.at[node].set(0).at[node].max(values)

    def ascend(_: int, tree: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        sums, node = tree
        node //= 2
        return sums.at[node].set(sums[2 * node] + sums[2 * node + 1]), node

    return jax.lax.fori_loop(0, _depth(sums), ascend, (sums, node))[0]


def _depth(sums: jax.Array) -> int:
    """Return how many levels lie above the leaves of a tree."""
    return (sums.shape[0] // 2 - 1).bit_length()
