"""Shards: the parts of a training that make its result independent of the number of devices.

A shard is a run of consecutive environments, with its part of every minibatch, of the replay buffer
and of the samples that moments are computed from. A device processes its own shards one after
another. Learners call this within a loop's `shard_map`. In docstrings `S` is the number of all
shards and `L` the number of one device's shards.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from myriad.errors import InvalidArgumentError
from myriad.loops import waits_for_host

# The mesh axis over which shards lie.
SHARD_AXIS = "shard"

Reduction = Literal["exact", "fast"]


@dataclasses.dataclass(frozen=True)
class Shards:
    """How many shards there are, and on how many devices.

    With one shard, every method is the identity or just calls the given function. So a learner is
    written once, and its program without shards contains no trace of them.

    Attributes:
        num_shards: `S`, a power of two.
        reduction: how gradients are added up. "exact" gathers them and adds them in one fixed
            order. "fast" uses the devices' own sum.
        num_devices: devices that share the shards. It divides `S`.
    """

    num_shards: int = 1
    reduction: Reduction = "exact"
    num_devices: int = 1

    @property
    def is_one(self) -> bool:
        """Whether there is only one shard."""
        return self.num_shards == 1

    @property
    def per_device(self) -> int:
        """Shards of one device, `L`."""
        return self.num_shards // self.num_devices

    def on(self, num_devices: int) -> "Shards":
        """Return the same shards on another number of devices.

        Raises:
            InvalidArgumentError: the number doesn't divide the shards.
        """
        if self.num_shards % num_devices:
            nearest = largest_share(self.num_shards, num_devices)
            raise InvalidArgumentError(
                f"num_devices must divide num_shards = {self.num_shards}, such as {nearest}, "
                f"but got {num_devices}."
            )
        return dataclasses.replace(self, num_devices=num_devices)

    def require_divides(self, name: str, value: int) -> None:
        """Raise InvalidArgumentError unless the shards divide `value`, which is called `name`."""
        if value % self.num_shards:
            # The largest power of two that divides it.
            fits = value & -value
            raise InvalidArgumentError(
                f"num_shards must divide {name} = {value:,}, as {fits} does, "
                f"but is {self.num_shards}."
            )

    def key(self, key: jax.Array, shard: jax.Array | None) -> jax.Array:
        """Return a shard's own key."""
        return key if shard is None else jax.random.fold_in(key, shard)

    def each(self, function: Callable[..., Any], *trees: Any) -> Any:
        """Apply a function to each shard of this device, one after another.

        Args:
            function: takes the shard's number, uint32 scalar, or None if there is only one, and its
                part of each tree.
            trees: pytrees with leaves `[L, ...]`.

        Returns:
            the results, leaves `[L, ...]`.
        """
        if self.is_one:
            return function(None, *trees)
        numbers = self._first + jnp.arange(self.per_device, dtype=jnp.uint32)

        def of_shard(part: Any) -> Any:
            return _out_of_line(lambda part: function(part[0], *part[1]), part)

        return jax.lax.map(of_shard, (numbers, trees))

    def alike(self, function: Callable[..., Any], *trees: Any) -> Any:
        """Apply a function to values that all devices hold, rounded the same in all programs."""
        if self.is_one:
            return function(*trees)
        return _out_of_line(lambda trees: function(*trees), trees)

    def apart(self, tree: Any) -> Any:
        """Return the tree, but keep the compiler from fusing its gradient with what follows."""
        return tree if self.is_one else _apart(tree)

    def all_at_once(
        self, function: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0
    ) -> Callable[..., Any]:
        """Map a function that only moves data over trees with leaves `[L, ...]`, all at once."""
        # Without arithmetic nothing is rounded, so the program may depend on `L`.
        return function if self.is_one else jax.vmap(function, in_axes, out_axes)

    def stacked(self, tree: Any) -> Any:
        """Copy one shard's first values for each shard of this device, leaves `[L, ...]`."""
        if self.is_one:
            return tree
        return jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf, (self.per_device, *leaf.shape)), tree
        )

    def joined(self, tree: Any) -> Any:
        """Lay this device's shards one behind another: `[L, B, ...]` becomes `[L B, ...]`."""
        if self.is_one:
            return tree
        # Compute the number of rows, since -1 can't be inferred for a leaf without columns.
        return jax.tree.map(
            lambda leaf: leaf.reshape(leaf.shape[0] * leaf.shape[1], *leaf.shape[2:]), tree
        )

    def rows_in_joined(self, rows: jax.Array, num_rows: int) -> jax.Array:
        """Turn each shard's row numbers below `num_rows`, `[L, ...]`, into rows of `joined`."""
        if self.is_one:
            return rows
        first = np.arange(self.per_device, dtype=np.int32) * np.int32(num_rows)
        return rows + first.reshape(-1, *[1] * (rows.ndim - 1))

    def steps_first(self, tree: Any) -> Any:
        """Turn leaves `[L, G, ...]` into leaves `[G, L, ...]`, to scan over steps."""
        if self.is_one:
            return tree
        return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 1, 0), tree)

    def shards_first(self, tree: Any) -> Any:
        """Undo `steps_first`."""
        return self.steps_first(tree)

    def num_envs(self, of_each: jax.Array) -> int:
        """Return the number of all environments, from a leaf `[L, N / S]`, or `[N]` unsharded."""
        return of_each.shape[-1] * self.num_shards

    def own_part(self, of_all: jax.Array, shard: jax.Array | None) -> jax.Array:
        """Return a shard's part, `[N / S, ...]`, of `[N, ...]`."""
        if shard is None:
            return of_all
        size = of_all.shape[0] // self.num_shards
        return jax.lax.dynamic_slice_in_dim(of_all, shard.astype(jnp.int32) * size, size)

    def gathered(self, tree: Any) -> Any:
        """Gather leaves `[L, ...]` of all devices into `[S, ...]`, in one collective."""
        if self.is_one:
            return tree
        leaves, structure = jax.tree.flatten(tree)
        flat = _side_by_side(leaves)
        flat = _apart(jax.lax.all_gather(_apart(flat), SHARD_AXIS, tiled=True))
        return jax.tree.unflatten(structure, _split_like(flat, leaves))

    def mean(self, tree: Any) -> Any:
        """Average float32 leaves `[L, ...]` over all shards.

        "exact" gives the same bits for any number of devices.
        """
        if self.is_one:
            return tree
        if self.reduction == "exact":
            return jax.tree.map(_mean_of_shards, self.gathered(tree))
        leaves, structure = jax.tree.flatten(tree)
        total = jax.lax.psum(jnp.sum(_side_by_side(leaves), axis=0), SHARD_AXIS)
        return jax.tree.unflatten(structure, _split_like(total / self.num_shards, leaves))

    def total(self, of_each: jax.Array) -> jax.Array:
        """Add up float32 scalars, `[L]`, of all shards."""
        return of_each if self.is_one else _fixed_sum(self.gathered(of_each))

    def total_count(self, counts: jax.Array) -> jax.Array:
        """Add up integers of all devices, of any shape. Their sum doesn't depend on the order."""
        return counts if self.is_one else jax.lax.psum(counts, SHARD_AXIS)

    def any(self, flags: jax.Array) -> jax.Array:
        """Return which flags are set on any device, boolean of any shape."""
        return flags if self.is_one else jax.lax.psum(flags.astype(jnp.int32), SHARD_AXIS) > 0

    def largest(self, of_each: jax.Array) -> jax.Array:
        """Return the largest of `[L, ...]` over all shards, `[...]`."""
        return of_each if self.is_one else jax.lax.pmax(jnp.max(of_each, axis=0), SHARD_AXIS)

    @property
    def _first(self) -> jax.Array:
        """The number of this device's first shard."""
        return jax.lax.axis_index(SHARD_AXIS).astype(jnp.uint32) * np.uint32(self.per_device)


def largest_share(num_shards: int, num_devices: int) -> int:
    """Return the largest number of the devices that divides the shards evenly."""
    return max(n for n in range(1, num_devices + 1) if num_shards % n == 0)


def shard_mesh(num_devices: int) -> Mesh:
    """Return the mesh of the first devices of all processes."""
    return Mesh(np.array(jax.devices()[:num_devices]), (SHARD_AXIS,))


def placement(tree: Any, by_shard: frozenset[str]) -> Any:
    """Return how the leaves of a tree are placed on the devices.

    Args:
        tree: arrays or their shapes.
        by_shard: names of leaves or subtrees whose first axis is the axis of shards, such as
            `replay.columns`. All other leaves lie on every device.
    """

    def spec(path: Any, _: Any) -> PartitionSpec:
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        is_cut = any(name == each or name.startswith(f"{each}.") for each in by_shard)
        return PartitionSpec(SHARD_AXIS) if is_cut else PartitionSpec()

    return jax.tree_util.tree_map_with_path(spec, tree)


def _out_of_line(function: Callable[[Any], Any], argument: Any) -> Any:
    """Call a function in a loop of one pass, to keep the compiler from fusing it with other code.

    So it rounds the same way in programs of any number of devices and shards.
    """
    if waits_for_host():
        # No loop on a GPU, which would ask its host for the number of passes.
        return _apart(function(_apart(argument)))
    shapes = jax.eval_shape(function, argument)
    empty = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    once = _apart(jnp.int32(1))

    def body(_: jax.Array, carry: tuple[Any, Any]) -> tuple[Any, Any]:
        # The barrier hides from the compiler that no pass changes the argument. So the compiler
        # can't hoist the function out of the loop.
        argument = _apart(carry[0])
        return argument, function(argument)

    return _apart(jax.lax.fori_loop(0, once, body, (_apart(argument), empty))[1])


def _apart(tree: Any) -> Any:
    """Keep the compiler from fusing a tree's producers and consumers, which changes rounding."""
    return jax.lax.optimization_barrier(tree)


def _side_by_side(leaves: list[jax.Array]) -> jax.Array:
    """Join leaves `[L, ...]` into one array, `[L, columns]`."""
    return jnp.concatenate([leaf.reshape(leaf.shape[0], -1) for leaf in leaves], axis=1)


def _split_like(flat: jax.Array, leaves: list[jax.Array]) -> list[jax.Array]:
    """Undo `_side_by_side`: cut the last axis into leaves with the shapes of `leaves`."""
    sizes = [leaf[0].size for leaf in leaves]
    ends = np.cumsum(sizes)[:-1].tolist()
    parts = jnp.split(flat, ends, axis=-1)
    return [
        part.reshape(*flat.shape[:-1], *leaf.shape[1:])
        for part, leaf in zip(parts, leaves, strict=True)
    ]


def _fixed_sum(of_shards: jax.Array) -> jax.Array:
    """Add up `[S, ...]` in a binary tree, neighbours first."""
    while of_shards.shape[0] > 1:
        of_shards = of_shards[0::2] + of_shards[1::2]
    return of_shards[0]


def _mean_of_shards(of_shards: jax.Array) -> jax.Array:
    # The number of shards is a power of two, so the division is exact.
    return _apart(_fixed_sum(of_shards) / of_shards.shape[0])
