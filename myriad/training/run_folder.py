"""A run's folder on disk: its configuration, its lock, its rows and its checkpoints.

The rows of a checkpoint lie beside orbax's files and not in a `Composite` of its manager. That one
renames a folder by itself, so checksums could not be part of it, and it removes an old checkpoint
file by file, so a kill would leave one that looks whole.
"""

import contextlib
import hashlib
import json
import logging
import math
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
from myriad.engine.devices import arrays_by_name, from_numbers, named_leaves
from myriad.errors import InvalidArgumentError
from myriad.files import read_text, regular, replacing, write_errors_explained
from myriad.xla import is_on_host

# JSON has no such numbers. metrics.jsonl holds these strings instead, as protobuf's JSON does.
_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_CHECKSUMS = "checksums.json"
_ROWS = "metrics.jsonl"
_DEVICES = "devices.json"
# Before the names of the arrays of the best agent, which lie among those of the state.
_BEST = "best."
# Checkpoints of a run that are kept, so that there is an older one if the newest is damaged.
_KEPT = 2
_NUMBER = re.compile("0|[1-9][0-9]*")
# The temporary folders of checkpoints, and those that orbax derives from their names. Nothing else
# is removed.
_UNFINISHED = re.compile(r"(saving|replaced)-\d+(\..*)?")

Result = TypeVar("Result")
Row = Mapping[str, Any]


class RunFolder:
    """A run's folder.

    It holds `config.toml`, `environment.json`, `metrics.jsonl`, `monitor.jsonl` and `checkpoints/`.
    """

    def __init__(self, path: Path):
        self.path = path

    @property
    def checkpoints(self) -> "Checkpoints":
        """The run's checkpoints."""
        return Checkpoints(self.path / "checkpoints")

    @classmethod
    def create(cls, path: Path, config_toml: str, environment: Mapping[str, Any]) -> "RunFolder":
        """Make the folder. If several processes make the same one, only one of them succeeds.

        Args:
            path: the folder. Missing parents are made, too.
            config_toml: the text of `config.toml`.
            environment: what `environment.json` holds: hardware, versions, precision.

        Raises:
            InvalidArgumentError: the folder already holds a run or anything else, is in use, or
                can't be written.
        """
        folder = cls(path)
        with write_errors_explained(f"run folder {path}"):
            path.mkdir(parents=True, exist_ok=True)
            folder._require_empty()  # before a lock is left in a folder of somebody else
        with folder.held():
            folder._require_empty()  # another process may have been first
            _write_text(path / "environment.json", json.dumps(environment, indent=2))
            # The configuration comes last, since its presence makes the folder a run.
            _write_text(path / "config.toml", config_toml)
        return folder

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Lock the folder during the block. The lock also ends if the process is killed.

        Raises:
            InvalidArgumentError: another process holds the folder, or it can't be written.
        """
        from filelock import FileLock, Timeout

        lock = FileLock(self.path / ".lock")
        with write_errors_explained(self.path / ".lock"):
            try:
                lock.acquire(timeout=0)
            except Timeout as error:
                raise InvalidArgumentError(
                    f"run folder {self.path} is in use by another process: "
                    "wait until it ends, or name another folder."
                ) from error
        try:
            yield
        finally:
            lock.release()

    def _require_empty(self) -> None:
        found = {each.name: each for each in sorted(self.path.iterdir())}
        # Our locks are empty. Taking another one would erase its content.
        if ".lock" in found and not found[".lock"].stat().st_size:
            del found[".lock"]
        if found:
            held = "a run" if "config.toml" in found else next(iter(found))
            raise InvalidArgumentError(
                f"run folder {self.path} already holds {held}: name another folder, or resume it."
            )

    def config_toml(self) -> str:
        """Read the configuration.

        Raises:
            InvalidArgumentError: the folder holds no run, or the file can't be read.
        """
        return read_text(self.path / "config.toml")

    def environment(self) -> dict[str, Any]:
        """Read `environment.json`.

        Raises:
            InvalidArgumentError: the file can't be read.
        """
        path = self.path / "environment.json"
        text = read_text(path)
        try:
            return {**json.loads(text)}
        except (ValueError, TypeError, RecursionError) as error:
            raise InvalidArgumentError(f"{path} is damaged: {error}.") from None

    @property
    def metrics(self) -> Path:
        """The file of rows, one line of JSON each."""
        return self.path / "metrics.jsonl"

    def append(self, row: Row, file: str = "metrics.jsonl") -> None:
        """Add a line to a file of rows. A resumed run appends to the same file.

        Raises:
            InvalidArgumentError: the line can't be written. The lines before it stay.
        """
        path = self.path / file
        with write_errors_explained(path), path.open("a", encoding="utf-8") as rows:
            rows.write(lines_of([row]))

    def go_back_to(self, rows: str) -> None:
        """Cut `metrics.jsonl` back to the rows of the checkpoint from which the run resumes.

        The resumed run writes the later rows again. If the file is missing or ends early, as after
        a power cut, it is made again from the checkpoint.

        Raises:
            InvalidArgumentError: the file contradicts the checkpoint. It stays as it is.
        """
        kept = rows.encode()
        try:
            found = regular(self.metrics).read_bytes()
        except FileNotFoundError:
            found = b""
        except OSError as error:
            raise InvalidArgumentError(
                f"{self.metrics} can't be read: {error.strerror}."
            ) from error
        if not found.startswith(kept) and not kept.startswith(found):
            raise InvalidArgumentError(
                f"{self.metrics} is damaged: it doesn't begin with the rows of the checkpoint; "
                "move the file away, and resuming makes it again from the checkpoint."
            )
        if found != kept:
            _write_text(self.metrics, rows)

    def discard(self) -> None:
        """Remove the folder of a run that has written nothing else yet."""
        with contextlib.suppress(OSError):
            paths = list(self.path.iterdir())
            if {each.name for each in paths} == {".lock", "config.toml", "environment.json"}:
                for path in paths:
                    path.unlink()
                self.path.rmdir()  # which refuses if somebody has written a file meanwhile


class Checkpoints:
    """The checkpoints of one run, `folder/<updates>`.

    A checkpoint is written under a temporary name, with checksums, and renamed when it is whole. A
    killed process leaves at most a folder under a temporary name, which the next save removes.

    If several processes train, each writes the part that it holds, and process 0 all else. They
    share the disk.
    """

    def __init__(self, folder: Path):
        self.folder = folder.absolute()

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
        import orbax.checkpoint as ocp

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

        try:
            distributed.on_first(make_room)
            # Each process adds its own part.
            with _unreported(), ocp.StandardCheckpointer() as checkpointer:
                checkpointer.save(aside, arrays, force=True)
            return distributed.on_first(finish)
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
        kinds = self.kinds(num_updates).items()
        held = {name: kind for name, kind in kinds if not name.startswith(_BEST)}
        require_kinds(path, held, jax.eval_shape(arrays_by_name, like))
        shardings = None
        if placement is not None:
            lies = jax.tree.leaves(jax.tree.broadcast(placement, like))
            shardings = dict(zip(named_leaves(like), lies, strict=True))
        saved = self.arrays(num_updates, held, shardings)
        if best:
            saved |= self.best(num_updates)
        leaves = [_leaf(saved.get(name), leaf) for name, leaf in named_leaves(like).items()]
        return jax.tree.unflatten(jax.tree.structure(like), leaves)

    def kinds(self, num_updates: int) -> Mapping[str, Any]:
        """Return the shape and the dtype of each saved array by name.

        Raises:
            InvalidArgumentError: the checkpoint is damaged.
        """
        path = self.folder / str(num_updates)
        if (damage := _damage(path)) is not None:
            go_on = "remove it to go on from the one before, or train anew in another folder"
            raise InvalidArgumentError(f"checkpoint {path} is damaged: {damage}; {go_on}.")
        return _held(path)

    def best(self, num_updates: int, *, required: bool = True) -> dict[str, np.ndarray]:
        """Return what the best agent had learned, by name. `kinds` finds damage.

        Raises:
            InvalidArgumentError: it is required, but the checkpoint holds none.
        """
        path = self.folder / str(num_updates)
        names = [name for name in _held(path) if name.startswith(_BEST)]
        if required and not names:
            raise InvalidArgumentError(
                "best",
                f"must be left out, since checkpoint {path} is from before the first evaluation, "
                "or from a version that kept no best agent.",
            )
        found = self.arrays(num_updates, names) if names else {}
        return {name.removeprefix(_BEST): each for name, each in found.items()}

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
        """Return the lines of the rows that were saved with a state. `kinds` finds damage.

        Raises:
            InvalidArgumentError: the file can't be read.
        """
        return read_text(self.folder / str(num_updates) / _ROWS)

    def devices(self, num_updates: int) -> list[str]:
        """Return the devices that the run had trained on, or [] if the file can't be read."""
        path = self.folder / str(num_updates) / _DEVICES
        # `restore` reports a damaged file later.
        with contextlib.suppress(ValueError, TypeError, RecursionError):
            return [*map(str, json.loads(read_text(path)))]
        return []

    def _done(self) -> list[int]:
        return [int(path.name) for path in self.folder.glob("*") if _NUMBER.fullmatch(path.name)]

    def _tidy(self) -> None:
        for path in self.folder.glob("*"):
            if _UNFINISHED.fullmatch(path.name):
                shutil.rmtree(path, ignore_errors=True)
        for number in sorted(self._done())[:-_KEPT]:
            path = self.folder / str(number)
            # Renamed before it is removed, so that a reader sees a whole checkpoint or none.
            removed = self.folder / f"replaced-{number}"
            with contextlib.suppress(OSError):
                path.rename(removed)
                shutil.rmtree(removed, ignore_errors=True)


def lines_of(rows: Sequence[Row]) -> str:
    """Return rows as `metrics.jsonl` holds them."""
    lines = []
    for row in rows:
        shown = {
            name: json.dumps(each) if isinstance(each, float) and not math.isfinite(each) else each
            for name, each in row.items()
        }
        lines.append(json.dumps(shown, allow_nan=False) + "\n")
    return "".join(lines)


def rows_of(text: str) -> list[dict[str, Any]]:
    """Read the rows that `lines_of` wrote."""
    rows = map(json.loads, text.splitlines())
    return [{name: _NON_FINITE.get(value, value) for name, value in row.items()} for row in rows]


def evaluation_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a row that is about the evaluation."""
    placed = {name: value for name, value in row.items() if name.startswith("agent.")}
    placed |= {name: row[name] for name in ("seed", "update", "steps") if name in row}
    measured = {
        name.removeprefix("eval_"): value for name, value in row.items() if name.startswith("eval_")
    }
    return placed | measured


def training_of(row: Row) -> Any:
    """Return what tells the trainings of a run apart: the seed, or values of the grid and the seed.

    It is None if there is only one.

    Example:
        >>> training_of({"seed": 3, "update": 8}), training_of({"agent.gamma": 0.9, "seed": 3})
        (3, (0.9, 3))
    """
    point = tuple(value for name, value in row.items() if name.startswith("agent."))
    return (*point, row.get("seed")) if point else row.get("seed")


def significant(value: float) -> str:
    """Return a number with four digits, or with all those before its point.

    Example:
        >>> [significant(value) for value in (475.0, 0.0123456, -12345.6)]
        ['475', '0.01235', '-12346']
    """
    return f"{value:.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:.4g}"


def require_kinds(path: Path, held: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Raise unless a checkpoint holds the arrays that a program needs."""
    for name in sorted(expected.keys() | held.keys()):
        has = _kind(held.get(name))
        needs = _kind(expected.get(name))
        if has != needs:
            raise InvalidArgumentError(
                f"checkpoint {path} holds {name} as {has}, but this configuration needs {needs}."
            )


def _write_text(path: Path, text: str) -> None:
    """Write a file, whole or not at all, and return when it is on the disk."""
    with replacing(path) as new:
        new.write_text(text, encoding="utf-8")


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


def _held(path: Path) -> Mapping[str, Any]:
    import orbax.checkpoint as ocp

    with _unreported(), ocp.StandardCheckpointer() as checkpointer:
        held: Any = checkpointer.metadata(path).item_metadata
    return held


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
