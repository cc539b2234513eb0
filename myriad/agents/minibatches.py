"""Minibatches of experience: shuffled, packed into rows, and cut into blocks for the cache."""

import math
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from myriad.agents.agent import LEARNER_AXIS
from myriad.errors import InvalidArgumentError

Tree = TypeVar("Tree")

# Activations of so many rows and 64 units are 256 KB, which leaves room in the second-level cache
# of today's cores.
BLOCK_ROWS = 1024


def draw_permutations(key: jax.Array, num: int, size: int) -> jax.Array:
    """Draw `num` permutations of 0 to `size - 1`, int32 `[num, size]`, by one sort of 32-bit words.

    The low bits of a word are its index, the others random; of two words that draw alike the lower
    index comes first, so that for sizes near 2**31 the order would not be random.
    """
    # `jax.random.permutation` sorts pairs of a word and an element, and does so twice from some
    # thousand elements on.
    mask = jnp.uint32((1 << (size - 1).bit_length()) - 1)
    words = jax.random.bits(key, (num, size)) & ~mask | jnp.arange(size, dtype=jnp.uint32)
    return (jax.lax.sort(words, dimension=1) & mask).astype(jnp.int32)


def require_whole_minibatches(batch_rows: int, num_minibatches: int) -> None:
    """Raise InvalidArgumentError unless num_envs x rollout_steps rows divide into minibatches."""
    if batch_rows % num_minibatches:
        raise InvalidArgumentError(
            "num_minibatches must divide the batch of num_envs x rollout_steps = "
            f"{batch_rows}, but is {num_minibatches}."
        )


def pack(batch: Any) -> jax.Array:
    """Lay leaves `[B, ...]` side by side, `[B, columns]`: a minibatch is then one gather."""
    return jnp.concatenate(
        [leaf.reshape(leaf.shape[0], -1) for leaf in jax.tree.leaves(batch)], axis=-1
    )


def unpack(rows: jax.Array, like: Tree) -> Tree:
    """Undo `pack` for any number of rows; `like` is the batch that was packed."""
    leaves, structure = jax.tree.flatten(like)
    widths = [math.prod(leaf.shape[1:]) for leaf in leaves]
    columns = jnp.split(rows, [sum(widths[: i + 1]) for i in range(len(widths) - 1)], axis=-1)
    return jax.tree.unflatten(
        structure, [c.reshape(-1, *leaf.shape[1:]) for c, leaf in zip(columns, leaves, strict=True)]
    )


def share_of_rows(order: jax.Array, num_devices: int) -> jax.Array:
    """Return this device's share of a minibatch's row numbers, along the mesh axis of learners."""
    if num_devices == 1:
        return order
    return order.reshape(num_devices, -1)[jax.lax.axis_index(LEARNER_AXIS)]


def mean_over_devices(tree: Any, num_devices: int) -> Any:
    """Average what each device made of its share."""
    return tree if num_devices == 1 else jax.lax.pmean(tree, LEARNER_AXIS)


def mean_over_blocks(function: Callable[[jax.Array], Any], rows: jax.Array) -> Any:
    """Apply a `function` that is a mean over rows to blocks, and average: the mean of all rows."""
    size = block_size(rows.shape[0])
    if size == rows.shape[0]:
        return function(rows)
    blocks = rows.reshape(-1, size, *rows.shape[1:])

    def add(total: Any, block: jax.Array) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, total, function(block)), None

    zeros = jax.tree.map(
        lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(function, blocks[0])
    )
    return jax.tree.map(lambda total: total / blocks.shape[0], jax.lax.scan(add, zeros, blocks)[0])


def map_over_blocks(function: Callable[[jax.Array], jax.Array], rows: jax.Array) -> jax.Array:
    """Apply a `function` that maps each row by itself to blocks of rows: the result is the same."""
    size = block_size(rows.shape[0])
    if size == rows.shape[0]:
        return function(rows)
    mapped = jax.lax.map(function, rows.reshape(-1, size, *rows.shape[1:]))
    return mapped.reshape(-1, *mapped.shape[2:])


def block_size(num_rows: int) -> int:
    """Return how many rows a network takes at once.

    On a CPU that is at most `BLOCK_ROWS`, if a divisor is near; else it is all.
    """
    if jax.default_backend() != "cpu":
        return num_rows
    largest = max(size for size in range(1, min(num_rows, BLOCK_ROWS) + 1) if num_rows % size == 0)
    return largest if 4 * largest > BLOCK_ROWS else num_rows
