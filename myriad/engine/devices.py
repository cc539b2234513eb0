"""Programs with their compiler's options, on all devices of a mesh, and arrays for them."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.extend.core import get_opaque_trace_state
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

from myriad.engine.random import holds_keys
from myriad.errors import InvalidArgumentError


class OuterJit:
    """`jax.jit(fn, compiler_options=options, **kwargs)` that also works inside another program.

    JAX refuses options of a nested program. There, the options of the outer program apply.

    Args:
        fn: the function.
        options: the compiler's options.
        require: called with the compiled program before it runs for the first time. It may raise.
        **kwargs: arguments of `jax.jit`.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        options: dict[str, str],
        require: Callable[[jax.stages.Compiled], None],
        **kwargs: Any,
    ):
        self._require = require
        self._has_run = False
        self._inside = jax.jit(fn, **kwargs)
        self._outside = jax.jit(fn, compiler_options=options, **kwargs)
        self._built_under = get_opaque_trace_state()
        self.lower = self._outside.lower

    def __call__(self, *args: Any) -> Any:
        # An outer program that closes over the arguments traces this call without tracers in them.
        is_inside = get_opaque_trace_state() != self._built_under or any(
            isinstance(leaf, Tracer) for leaf in jax.tree.leaves(args)
        )
        if is_inside:
            return self._inside(*args)
        if not self._has_run:
            # JAX keeps this program for the call.
            self._require(self.lower(*args).compile())
            self._has_run = True
        return self._outside(*args)


def require_alive(name: str, tree: Any) -> None:
    """Raise if an array of a tree was donated to a call, so that its memory holds something else.

    Raises:
        InvalidArgumentError: one was.
    """
    arrays = (leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array))
    if any(each.is_deleted() for each in arrays if not isinstance(each, Tracer)):
        says = "was used after it was passed to a call that donates it; use what the call returned."
        raise InvalidArgumentError(name, says)


def put_everywhere(tree: Any, sharding: NamedSharding) -> Any:
    """Put values that are equal in all processes on all devices of a sharding, whole on each.

    Args:
        tree: arrays, which may be keys.
        sharding: the fully replicated sharding of a mesh.
    """
    if jax.process_count() == 1:
        return jax.device_put(tree, sharding)

    # JAX puts an array on devices of other processes only by a callback, and a key not at all.
    def put(leaf: Any) -> jax.Array:
        words = np.asarray(numbers_of(leaf))
        array = jax.make_array_from_callback(words.shape, sharding, lambda at: words[at])
        return from_numbers(array, leaf)

    return jax.tree.map(put, tree)


def numbers_of(array: Any) -> Any:
    """Return an array as it is, and keys as their words, uint32 of one more axis."""
    return jax.random.key_data(array) if holds_keys(array) else array


def from_numbers(numbers: Any, like: Any) -> Any:
    """Return the array whose `numbers_of` these are, with keys if `like` holds some."""
    if not holds_keys(like):
        return numbers
    return jax.random.wrap_key_data(numbers, impl=jax.random.key_impl(jnp.zeros((), like.dtype)))


def bytes_of(tree: Any) -> int:
    """Return the bytes of a tree's arrays, from their shapes."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def named_leaves(tree: Any) -> dict[str, Any]:
    """Return the leaves of a tree by dotted name, such as `agent.params`, in its order."""
    paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(at, simple=True, separator="."): leaf for at, leaf in paths}


def arrays_by_name(tree: Any) -> dict[str, jax.Array]:
    """Return the leaves by name as orbax takes them: without empty ones, and keys as numbers."""
    return {name: numbers_of(leaf) for name, leaf in named_leaves(tree).items() if leaf.size}


def shard_map(
    function: Callable[..., Any], mesh: Mesh | AbstractMesh, in_specs: Any, out_specs: Any
) -> Any:
    """Return `jax.shard_map` of a function, around which leaves without elements go.

    jaxlib 0.11 dies of one on two devices. Each device makes its own, and so does the whole.
    """

    def of_all(*args: Any) -> Any:
        found_shapes: Any = None
        specs = jax.tree.broadcast(in_specs, args)

        def of_device(*shares: Any) -> Any:
            nonlocal found_shapes
            found = function(*_with_empty(shares, share_shapes))
            of_found = jax.tree.broadcast(out_specs, found)
            found_shapes = jax.tree.map(partial(_resized, int.__mul__), found, of_found)
            return _without_empty(found)

        share_shapes = jax.tree.map(partial(_resized, int.__floordiv__), args, specs)
        sharded = jax.shard_map(
            of_device, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False
        )
        return _with_empty(sharded(*_without_empty(args)), found_shapes)

    def _resized(by: Callable[[int, int], int], leaf: Any, spec: PartitionSpec) -> Any:
        axes = (*spec, *[None] * leaf.ndim)
        shape = [
            size if axis is None else by(size, mesh.size)
            for size, axis in zip(leaf.shape, axes, strict=False)
        ]
        return jax.ShapeDtypeStruct(shape, leaf.dtype)

    return of_all


def _without_empty(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf if leaf.size else None, tree)


def _with_empty(tree: Any, shapes: Any) -> Any:
    held = iter(jax.tree.leaves(tree))
    return jax.tree.map(
        lambda leaf: next(held) if leaf.size else jnp.empty(leaf.shape, leaf.dtype), shapes
    )
