"""Checkpoints hold all that a run needs to go on bit for bit. Each is whole, or not there."""

import contextlib
import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from myriad.errors import InvalidArgumentError

_CHECKSUMS = "checksums.json"


class Checkpoints:
    """The checkpoints of one run, `folder/<updates>`.

    Each is written under a temporary name, with checksums, and renamed when it is whole. A killed
    process leaves at most a folder under a temporary name, which the next save removes.

    Args:
        folder: of all checkpoints of the run.
        keep: how many are kept.
    """

    def __init__(self, folder: Path, keep: int = 2):
        self.folder = folder.absolute()
        # Two by default, so that one is whole if the newest is damaged.
        self._keep = keep

    def latest(self) -> int | None:
        """Return how many updates the newest finished checkpoint has done, or None."""
        return max(self._done(), default=None)

    def save(self, num_updates: int, state: Any) -> None:
        """Save the arrays of `state`, and return when they are on the disk.

        Raises:
            InvalidArgumentError: they can't be written. The checkpoints before stay as they were.
        """
        path = self.folder / str(num_updates)
        aside = self.folder / f"saving-{num_updates}"
        replaced = self.folder / f"replaced-{num_updates}"
        problem = None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._tidy()  # This comes first, since what a kill left may be what fills the disk.
            _write(aside, _arrays(state))
            # A rename can't replace a folder that holds files.
            if path.exists():
                path.rename(replaced)
            aside.rename(path)
            self._tidy()
        except (OSError, ValueError) as error:
            problem = _system_error(error)
            if problem is None:
                raise
        if problem is not None:
            self._tidy()
            # Raised out here, without orbax's error, whose coroutines would complain at the exit.
            raise InvalidArgumentError(
                f"checkpoint {path} can't be written: {problem}; the ones before it are kept."
            )

    def restore(self, num_updates: int, like: Any) -> Any:
        """Return a saved state.

        Args:
            num_updates: which one.
            like: a state of the same program, arrays or their shapes.

        Raises:
            InvalidArgumentError: the checkpoint is damaged, or is of another program, so that a
                leaf is missing or has another shape.
        """
        import orbax.checkpoint as ocp

        path = self.folder / str(num_updates)
        if (damage := _damage(path)) is not None:
            older = [
                n for n in self._done() if n < num_updates and _damage(self.folder / str(n)) is None
            ]
            go_on = (
                f"remove it to go on from update {max(older)}" if older else "no older one is whole"
            )
            raise InvalidArgumentError(f"checkpoint {path} is damaged: {damage}; {go_on}.")
        with ocp.StandardCheckpointer() as checkpointer:
            saved = checkpointer.restore(path)
        expected = jax.eval_shape(_arrays, like)
        for name in sorted(expected.keys() | saved.keys()):
            has = _kind(saved.get(name))
            needs = _kind(expected.get(name))
            if has != needs:
                raise InvalidArgumentError(
                    f"checkpoint {path} holds {name} as {has}, "
                    f"but this configuration needs {needs}."
                )
        leaves, structure = jax.tree.flatten(like)
        named = zip(_names(like), leaves, strict=True)
        return jax.tree.unflatten(structure, [_leaf(saved.get(name), leaf) for name, leaf in named])

    def _done(self) -> list[int]:
        return [int(path.name) for path in self.folder.glob("*") if path.name.isdigit()]

    def _tidy(self) -> None:
        newest = sorted(self._done())[-self._keep :]
        for path in self.folder.glob("*"):
            if not path.name.isdigit() or int(path.name) not in newest:
                shutil.rmtree(path, ignore_errors=True)


def _write(path: Path, arrays: dict[str, jax.Array]) -> None:
    """Have orbax write a folder, and add a checksum of each of its files."""
    import orbax.checkpoint as ocp

    with _silent_orbax(), ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path, arrays, force=True)
    sums = {
        str(file.relative_to(path)): _checksum(file)
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }
    (path / _CHECKSUMS).write_text(json.dumps(sums, indent=1), encoding="utf-8")


@contextlib.contextmanager
def _silent_orbax() -> Iterator[None]:
    """Keep orbax from also logging the tracebacks of the errors that it raises."""
    logger = logging.getLogger("absl")
    before = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = before


def _system_error(error: Exception) -> str | None:
    """Return the system's own words, which orbax may hide in a ValueError, or None."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    code = re.search(r"os_error_code='(\d+)'", str(error))
    return os.strerror(int(code[1])) if code else None


def _damage(path: Path) -> str | None:
    """Return which file is not as it was saved, or None."""
    # Orbax notices most damage, but not all of it, and not in one way.
    try:
        sums = json.loads((path / _CHECKSUMS).read_text(encoding="utf-8"))
        changed = [name for name, checksum in sums.items() if _checksum(path / name) != checksum]
    except OSError as error:
        return f"{Path(error.filename).relative_to(path)} can't be read: {error.strerror}"
    except (json.JSONDecodeError, UnicodeDecodeError):
        changed = [_CHECKSUMS]
    return f"{changed[0]} is not as it was saved" if changed else None


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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
