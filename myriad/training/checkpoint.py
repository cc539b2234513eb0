"""Checkpoints hold all that a run needs to resume bit for bit. Each appears whole or not at all.

The trainer saves and restores them, and `evaluate` reads the newest. The rows lie beside orbax's
files and not in a `Composite`, since checksums and our own rename would still be needed for both,
and every run folder so far has this layout.
"""

import contextlib
import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from myriad import distributed
from myriad.engine.devices import arrays_by_name, named_leaves
from myriad.engine.random import from_numbers
from myriad.errors import InvalidArgumentError
from myriad.files import read_text, regular
from myriad.xla import is_on_host

Result = TypeVar("Result")

_CHECKSUMS = "checksums.json"
_ROWS = "metrics.jsonl"
_DEVICES = "devices.json"
# Before the names of the arrays of the best agent, which lie among those of the state.
_BEST = "best."
# The temporary folders that this module makes, and those that orbax derives from their names.
# Nothing else is removed.
_NUMBER = re.compile("0|[1-9][0-9]*")
_TEMPORARY = re.compile(r"(saving|replaced)-\d+(\..*)?")


class Checkpoints:
    """The checkpoints of one run, `folder/<updates>`.

    A checkpoint is written under a temporary name, with checksums, and renamed when it is whole. A
    killed process leaves at most a folder under a temporary name, which the next save removes.

    If several processes train, each writes the part that it holds, and process 0 all else. They
    share the disk.

    Args:
        folder: the folder of all checkpoints of the run.
        keep: how many checkpoints to keep.
    """

    def __init__(self, folder: Path, keep: int = 2):
        self.folder = folder.absolute()
        # Two by default, so that there is an older one if the newest is damaged.
        self._keep = keep

    def latest(self) -> int | None:
        """Return the update of the newest finished checkpoint, or None."""
        # Process 0 looks for all, since another may not see yet what was just written.
        return distributed.broadcast(max(self._done(), default=None))

    def save(
        self,
        num_updates: int,
        state: Any,
        rows: str = "",
        devices: Sequence[str] = (),
        best: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        """Save a state with its rows and devices, and return when all is on the disk.

        Args:
            num_updates: the updates done.
            state: a tree of arrays.
            rows: the lines of `metrics.jsonl` so far.
            devices: the devices that the run has trained on so far.
            best: what the best agent had learned, by the names of the state's arrays.

        Raises:
            InvalidArgumentError: the checkpoint can't be written. Earlier ones stay as they were.
        """
        path = self.folder / str(num_updates)
        aside = self.folder / f"saving-{num_updates}"
        arrays: dict[str, Any] = dict(arrays_by_name(state))
        arrays |= {f"{_BEST}{name}": each for name, each in (best or {}).items()}

        def make_room() -> None:
            self.folder.mkdir(exist_ok=True)
            self._tidy()  # First, since leftovers of a killed process may be what fills the disk.

        def finish() -> None:
            (aside / _ROWS).write_text(rows, encoding="utf-8")
            (aside / _DEVICES).write_text(json.dumps([*devices]), encoding="utf-8")
            files = [file for file in sorted(aside.rglob("*")) if file.is_file()]
            sums = {str(file.relative_to(aside)): _checksum(file) for file in files}
            (aside / _CHECKSUMS).write_text(json.dumps(sums, indent=1), encoding="utf-8")
            # A rename can't replace a folder that holds files.
            if path.exists():
                path.rename(self.folder / f"replaced-{num_updates}")
            aside.rename(path)
            self._tidy()

        distributed.on_first(lambda: self._do(path, make_room))
        self._do(path, lambda: _write(aside, arrays))
        distributed.on_first(lambda: self._do(path, finish))

    def _do(self, path: Path, step: Callable[[], None]) -> None:
        """Do a step of a save, and remove its leftovers if it fails."""
        try:
            return step()
        # Where the system refuses something, orbax may raise a ValueError.
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
        # Out here, orbax's error is gone, with all that it holds.
        if distributed.is_first():
            self._tidy()
        raise InvalidArgumentError(
            f"checkpoint {path} can't be written, and the ones before it are kept: {reason}"
        )

    def restore(
        self, num_updates: int, like: Any, placement: Any = None, *, best: bool = False
    ) -> Any:
        """Return a saved state, whichever devices and processes saved it.

        Args:
            num_updates: the update of the checkpoint.
            like: a state of the same program, arrays or their shapes. Leaves that lie in the host's
                memory are restored there.
            placement: how to place the state on the devices of several processes: a tree of
                shardings that is a prefix of `like`. By default it lies on the default device.
            best: put what the best agent had learned in place of the newest.

        Raises:
            InvalidArgumentError: the checkpoint is damaged, or it is of another program, so that a
                leaf is missing or has another shape, or it holds no best agent.
        """
        path = self.folder / str(num_updates)
        held = {name: kind for name, kind in self.kinds(num_updates).items() if not _is_best(name)}
        require_kinds(path, held, jax.eval_shape(arrays_by_name, like))
        saved = self.arrays(num_updates, held, placement and _shardings(like, placement))
        if best:
            saved |= self.best(num_updates)
        leaves = [_leaf(saved.get(name), leaf) for name, leaf in named_leaves(like).items()]
        return jax.tree.unflatten(jax.tree.structure(like), leaves)

    def kinds(self, num_updates: int) -> Mapping[str, Any]:
        """Return the shape and the dtype of each saved array by name.

        Raises:
            InvalidArgumentError: the checkpoint is damaged.
        """
        return self._kinds(self._whole(num_updates))

    def best(self, num_updates: int, *, required: bool = True) -> dict[str, np.ndarray]:
        """Return what the best agent had learned, by name. `kinds` finds damage.

        Raises:
            InvalidArgumentError: it is required, but the checkpoint holds none.
        """
        path = self.folder / str(num_updates)
        names = [name for name in self._kinds(path) if _is_best(name)]
        if required and not names:
            raise InvalidArgumentError(
                "best",
                f"must be left out, since checkpoint {path} is from before the first evaluation, "
                "or from a version that kept no best agent.",
            )
        found = self.arrays(num_updates, names) if names else {}
        return {name.removeprefix(_BEST): each for name, each in found.items()}

    def _kinds(self, path: Path) -> Mapping[str, Any]:
        import orbax.checkpoint as ocp

        with _unreported(), ocp.StandardCheckpointer() as checkpointer:
            held: Any = checkpointer.metadata(path).item_metadata
        return held

    def arrays(
        self, num_updates: int, names: Iterable[str], shardings: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return some of the arrays of `kinds`, and read no others.

        Args:
            num_updates: the update of the checkpoint.
            names: the arrays.
            shardings: where each goes; by default into the host's memory, as arrays of NumPy.
        """
        import orbax.checkpoint as ocp

        # If asked for NumPy's arrays, orbax doesn't look for the devices that saved them.
        how = {
            name: ocp.ArrayRestoreArgs(sharding=shardings[name])
            if shardings
            else ocp.RestoreArgs(restore_type=np.ndarray)
            for name in names
        }
        with _unreported(), ocp.PyTreeCheckpointer() as checkpointer:
            return checkpointer.restore(
                self.folder / str(num_updates),
                item=dict.fromkeys(how, 0),
                restore_args=how,
                partial_restore=True,
            )

    def read_newest(self, read: Callable[[int], Result]) -> Result | None:
        """Return what `read` returns for the newest checkpoint, or None if there is none.

        A training may write to the folder at the same time.
        """
        while (newest := self.latest()) is not None:
            try:
                return read(newest)
            except Exception:
                # The training may have removed it meanwhile.
                if self.latest() == newest:
                    raise
        return None

    def rows(self, num_updates: int) -> str:
        """Return the lines of the rows that were saved with a state.

        Raises:
            InvalidArgumentError: the checkpoint is damaged.
        """
        return read_text(self._whole(num_updates) / _ROWS)

    def devices(self, num_updates: int) -> list[str]:
        """Return the devices that the run had trained on, or [] if the file can't be read."""
        path = self.folder / str(num_updates) / _DEVICES
        # `restore` reports a damaged file later.
        with contextlib.suppress(ValueError, TypeError, RecursionError):
            return [*map(str, json.loads(read_text(path)))]
        return []

    def _whole(self, num_updates: int) -> Path:
        """Return the folder of a checkpoint, or refuse the checkpoint if it is damaged."""
        path = self.folder / str(num_updates)
        if (damage := _damage(path)) is not None:
            older = [
                n for n in self._done() if n < num_updates and _damage(self.folder / str(n)) is None
            ]
            go_on = "no older one is whole, so train anew in another folder"
            if older:
                go_on = f"remove it to go on from update {max(older)}"
            raise InvalidArgumentError(f"checkpoint {path} is damaged: {damage}; {go_on}.")
        return path

    def _done(self) -> list[int]:
        return [int(path.name) for path in self.folder.glob("*") if _NUMBER.fullmatch(path.name)]

    def _tidy(self) -> None:
        for path in self.folder.glob("*"):
            if _TEMPORARY.fullmatch(path.name):
                shutil.rmtree(path, ignore_errors=True)
        for number in sorted(self._done())[: -self._keep]:
            path = self.folder / str(number)
            # Renamed before it is removed, so that a reader sees a whole checkpoint or none.
            removed = self.folder / f"replaced-{number}"
            with contextlib.suppress(OSError):
                path.rename(removed)
                shutil.rmtree(removed, ignore_errors=True)


def require_kinds(path: Path, held: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Raise unless a checkpoint holds the arrays that a program needs."""
    for name in sorted(expected.keys() | held.keys()):
        has = _kind(held.get(name))
        needs = _kind(expected.get(name))
        if has != needs:
            raise InvalidArgumentError(
                f"checkpoint {path} holds {name} as {has}, but this configuration needs {needs}."
            )


def _is_best(name: str) -> bool:
    return name.startswith(_BEST)


# After compiling, the import would add a quarter of a second to a warm start.
def import_orbax() -> None:
    """Import orbax while the compiler works."""
    import orbax.checkpoint  # noqa: F401


def _write(path: Path, arrays: dict[str, Any]) -> None:
    """Have orbax write a folder, to which each process adds its own part."""
    import orbax.checkpoint as ocp

    with _unreported(), ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path, arrays, force=True)


@contextlib.contextmanager
def _unreported() -> Iterator[None]:
    """Keep orbax from logging in the block what it raises as well."""
    log = logging.getLogger("absl")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)


def _damage(path: Path) -> str | None:
    """Say which file is not as it was saved, or return None."""
    # Orbax doesn't notice all damage, and reports what it notices in different ways.
    try:
        sums = json.loads(regular(path / _CHECKSUMS).read_text(encoding="utf-8"))
        changed = [name for name, saved in sums.items() if _checksum(path / name) != saved]
        if _ROWS not in sums:
            changed = [_CHECKSUMS]
    except OSError as error:
        # A disk that fails names no file.
        name = os.path.relpath(error.filename or path, path)
        return f"{name} can't be read: {error.strerror}"
    except (ValueError, AttributeError, RecursionError):
        # The file of checksums is not UTF-8, not JSON, not an object, names an impossible file or
        # is nested too deeply.
        changed = [_CHECKSUMS]
    return f"{changed[0]} is not as it was saved" if changed else None


def _checksum(path: Path) -> str:
    """Return the SHA-256 of a file. A pipe is not read, since it might never end."""
    with regular(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _shardings(like: Any, placement: Any) -> dict[str, Any]:
    lies = jax.tree.leaves(jax.tree.broadcast(placement, like))
    return dict(zip(named_leaves(like), lies, strict=True))


def _leaf(saved: Any, like: Any) -> jax.Array:
    if is_on_host(like):
        # Straight to the host, since the device's memory may be too small for it.
        held = saved if like.size else np.zeros(like.shape, like.dtype)
        return jax.device_put(held, jax.memory.Space.Host)
    if not like.size:
        return jnp.zeros(like.shape, like.dtype)
    return from_numbers(saved if isinstance(saved, jax.Array) else jnp.asarray(saved), like)


def _kind(leaf: Any) -> str:
    return "nothing" if leaf is None else f"{leaf.dtype}{list(leaf.shape)}"
