"""Checkpoints: everything a run needs to go on bit for bit, each whole or not there at all."""

import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from myriad.errors import InvalidArgumentError


class Checkpoints:
    """The checkpoints of one run, `folder/<updates>`; orbax writes them aside and renames them when they are whole.

    A killed process leaves at most a folder under a temporary name, which the next save removes.
    """

    def __init__(self, folder: Path, keep: int = 2):
        self.folder, self._keep = folder.absolute(), keep

    def latest(self) -> int | None:
        """Return how many updates the newest whole checkpoint has done, or None."""
        return max(self._done(), default=None)

    def save(self, num_updates: int, state: Any) -> None:
        """Save the arrays of `state`; blocks until they are on the disk."""
        import orbax.checkpoint as ocp

        self.folder.mkdir(parents=True, exist_ok=True)
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(self.folder / str(num_updates), _arrays(state), force=True)
        self._tidy()

    def restore(self, num_updates: int, like: Any) -> Any:
        """Return a saved state.

        Args:
            num_updates: which one.
            like: a state of the same program, arrays or their shapes.

        Raises:
            InvalidArgumentError: the checkpoint is of another program: a leaf is missing or of another shape.
        """
        import orbax.checkpoint as ocp

        path = self.folder / str(num_updates)
        with ocp.StandardCheckpointer() as checkpointer:
            saved = checkpointer.restore(path)
        expected = jax.eval_shape(_arrays, like)
        for name in sorted(expected.keys() | saved.keys()):
            has, needs = (tree.get(name) for tree in (saved, expected))
            if has is None or needs is None or (has.shape, has.dtype) != (needs.shape, needs.dtype):
                raise InvalidArgumentError(
                    f"checkpoint {path} holds {name} as {_kind(has)}, but this configuration needs {_kind(needs)}."
                )
        leaves, structure = jax.tree.flatten(like)
        named = zip(_names(like), leaves, strict=True)
        return jax.tree.unflatten(structure, [_leaf(saved.get(name), leaf) for name, leaf in named])

    def _done(self) -> list[int]:
        return [int(path.name) for path in self.folder.glob("*") if path.name.isdigit()]

    def _tidy(self) -> None:
        newest = sorted(self._done())[-self._keep :]
        for path in self.folder.iterdir():
            if not path.name.isdigit() or int(path.name) not in newest:
                shutil.rmtree(path, ignore_errors=True)


def _names(tree: Any) -> list[str]:
    paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in paths]


def _arrays(state: Any) -> dict[str, jax.Array]:
    """Return the leaves by name as orbax takes them: none empty, and keys as their words."""
    named = zip(_names(state), jax.tree.leaves(state), strict=True)
    return {name: _words(leaf) for name, leaf in named if leaf.size}


def _words(leaf: Any) -> jax.Array:
    return jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf


def _leaf(saved: Any, like: Any) -> jax.Array:
    if not like.size:
        return jnp.zeros(like.shape, like.dtype)
    array = jnp.asarray(np.asarray(saved))
    if jnp.issubdtype(like.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(array, impl=jax.random.key_impl(jnp.zeros((), like.dtype)))
    return array


def _kind(leaf: Any) -> str:
    return "nothing" if leaf is None else f"{leaf.dtype}{list(leaf.shape)}"
