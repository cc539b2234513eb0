"""Minibatches of experience: shuffled, packed into rows and cut into blocks for the cache."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from myriad.errors import InvalidArgumentError
from myriad.registry import is_integer

# Activations of 1,024 rows and 64 units are 256 KB, which leaves room in the second-level cache of
# today's cores.
BLOCK_ROWS = 1024
# If row numbers have at most this many bits, a permutation is one sort of single words.
_INDEX_BITS = 20
# From this many environments on, the agents' default rollouts of 64 steps are too long.
MANY_ENVS = 128
_SHORT_ROLLOUT, _MANY_MINIBATCHES = 16, 32
# More rows hardly improve a gradient, and its cost grows in proportion.
_ENOUGH_ROWS = 16_384
# Observations of up to this many numbers are kept normalised next to the other columns, so that one
# gather gets all. For wider ones, such as pictures, that would copy most of a rollout.
_NARROW = 64


def draw_permutation(key: jax.Array, size: int) -> jax.Array:
    """Draw a permutation of 0 to `size - 1`, int32 `[size]`, by sorting random words.

    The low bits of a word are its index, and the others are random. If two words draw equal bits,
    the lower index comes first. Up to 2**20 rows, at least 12 bits of a word are random. Beyond
    that, a second random word decides first.
    """
    # `jax.random.permutation` sorts pairs of a word and an element, and from some thousand elements
    # on it does so twice.
    index_bits = (size - 1).bit_length()
    num_words = 1 if index_bits <= _INDEX_BITS else 2
    mask = jnp.uint32((1 << index_bits) - 1)
    first, *second = jax.random.bits(key, (num_words, size))
    words = first & ~mask | jnp.arange(size, dtype=jnp.uint32)
    *_, words = jax.lax.sort((*second, words), num_keys=1 + len(second))
    return (words & mask).astype(jnp.int32)


def repeat_epochs(
    train_step: Callable[[Any, Any], tuple[Any, Any]],
    learned: Any,
    key: jax.Array,
    num_epochs: Any,
    num_rows: int,
    minibatches: Callable[[jax.Array], Any],
    metric_names: Iterable[str],
) -> tuple[Any, dict[str, jax.Array]]:
    """Learn from the shuffled minibatches of a batch, several times.

    `minibatches` maps a permutation of the batch, int32 `[num_rows]`, to leaves `[num_minibatches,
    ...]`. `train_step` maps the learned state and a minibatch to the next state and the metrics,
    float32 scalars. `num_epochs`, at least 1, may be traced.

    Returns:
        the learned state, and the means of the metrics over all steps.
    """

    def one_epoch(i: jax.Array, carry: tuple[Any, Any]) -> tuple[Any, Any]:
        learned, totals = carry
        permutation = draw_permutation(jax.random.fold_in(key, i), num_rows)
        # A scan, since unrolled minibatches were no faster.
        learned, metrics = jax.lax.scan(train_step, learned, minibatches(permutation))
        means = jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), metrics)
        return learned, jax.tree.map(jnp.add, totals, means)

    zeros = {name: jnp.float32(0) for name in metric_names}
    learned, totals = jax.lax.fori_loop(0, num_epochs, one_epoch, (learned, zeros))
    return learned, jax.tree.map(lambda total: total / num_epochs, totals)


def require_whole_parts(minibatch_rows: int, gradient_accumulation: int) -> None:
    """Raise InvalidArgumentError unless a minibatch can be cut into equal parts."""
    if minibatch_rows % gradient_accumulation:
        rule = f"must divide a minibatch of {minibatch_rows:,} rows"
        raise InvalidArgumentError("gradient_accumulation", rule, gradient_accumulation)


def is_narrow(rows: jax.Array) -> bool:
    """Return whether rows, `[B, D]`, are so narrow that copies of them cost little memory."""
    return rows.shape[1] <= _NARROW


def gatherer(batch: Any, prepare: Callable[[jax.Array], jax.Array]) -> Callable[[jax.Array], Any]:
    """Return a function from row numbers, `[M]`, to those rows of a batch.

    Its `obs` are prepared for the network. Narrow rows are prepared once for the whole batch. Wide
    rows are prepared in every gather, since a prepared copy of the batch would be large.

    The batch is a dataclass and pytree with leaves `[B, ...]`, of which `obs` is `[B, D]`.
    `prepare` maps rows of `obs` to float32 rows.
    """
    narrow = is_narrow(batch.obs)
    obs = prepare(batch.obs) if narrow else batch.obs[:, :0].astype(jnp.float32)
    columns = dataclasses.replace(batch, obs=obs)
    # Side by side, `[B, columns]`, so that a minibatch is one gather.
    packed = jax.vmap(lambda row: ravel_pytree(row)[0])(columns)
    unpack = jax.vmap(ravel_pytree(jax.tree.map(lambda leaf: leaf[0], columns))[1])

    def gather(order: jax.Array) -> Any:
        found = unpack(packed[order])
        return found if narrow else dataclasses.replace(found, obs=prepare(batch.obs[order]))

    return gather


def shapes_for_many(num_envs: int, num_epochs: int, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Return the hyperparameters by which an on-policy agent learns from many environments.

    A long rollout of many environments is a batch that takes long to collect, and the agent learns
    from it only a few times. With short rollouts in large minibatches, an update learns about as
    much. So a training takes about as many updates from 128 environments as from a million, and an
    update as many gradient steps. If minibatches would grow too large to improve the gradient,
    there are fewer passes over the batch, with more minibatches in each.

    `num_epochs` are the passes over the batch as long as minibatches are small enough, and `chosen`
    are the fields that are set already.
    """
    rollout_steps: Any = chosen.get("rollout_steps")
    if not is_integer(rollout_steps):  # If you gave an invalid value, it is refused later.
        rollout_steps = _SHORT_ROLLOUT
    rows = num_envs * rollout_steps
    num_passes = num_epochs
    while num_passes > 1 and rows * num_passes > _MANY_MINIBATCHES * num_epochs * _ENOUGH_ROWS:
        num_passes //= 2
    return {
        "rollout_steps": _SHORT_ROLLOUT,
        "num_epochs": num_passes,
        "num_minibatches": math.gcd(_MANY_MINIBATCHES * num_epochs // num_passes, rows),
    }


def mean_over_blocks(function: Callable[[Any], Any], rows: Any, num_parts: int = 1) -> Any:
    """Apply a `function` that is a mean over rows to blocks of rows, and average the results.

    Rows are a pytree with leaves `[B, ...]`. Memory holds one block at a time, and `num_parts`, a
    divisor of `B`, is the least number of blocks.
    """
    num_rows = jax.tree.leaves(rows)[0].shape[0]
    size = block_size(num_rows // num_parts)
    if size == num_rows:
        return function(rows)
    blocks = jax.tree.map(lambda leaf: leaf.reshape(-1, size, *leaf.shape[1:]), rows)
    first = jax.tree.map(lambda leaf: leaf[0], blocks)

    def add(total: Any, block: Any) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, total, function(block)), None

    zeros = jax.tree.map(
        lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(function, first)
    )
    total, _ = jax.lax.scan(add, zeros, blocks)
    return jax.tree.map(lambda leaf: leaf / (num_rows // size), total)


def map_over_blocks(function: Callable[[jax.Array], jax.Array], rows: jax.Array) -> jax.Array:
    """Apply a `function` that maps each row by itself to one block of rows after another."""
    size = block_size(rows.shape[0])
    if size == rows.shape[0]:
        return function(rows)
    mapped = jax.lax.map(function, rows.reshape(-1, size, *rows.shape[1:]))
    return mapped.reshape(-1, *mapped.shape[2:])


def block_size(num_rows: int) -> int:
    """Return how many rows a network takes at once.

    On a CPU it is the largest divisor up to `BLOCK_ROWS`, unless that is small. Else it is all.
    """
    if jax.default_backend() != "cpu":
        return num_rows
    largest = max(size for size in range(1, min(num_rows, BLOCK_ROWS) + 1) if num_rows % size == 0)
    return largest if 4 * largest > BLOCK_ROWS else num_rows
