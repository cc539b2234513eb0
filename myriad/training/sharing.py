"""Check what the processes of one training must have in common before they begin."""

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax

from myriad import hardware, settings
from myriad.distributed import Processes
from myriad.errors import InvalidArgumentError, shown
from myriad.files import write_errors_explained
from myriad.training.config import ResolvedConfig
from myriad.training.logging.run_folder import RunFolder, RunFolderOfOthers

# JAX's settings that change a program or its results.
_JAX_SETTINGS = ("jax_disable_jit", "jax_default_matmul_precision", "jax_threefry_partitionable")
# Seconds within which another host must see a file that process 0 wrote.
_SEEN_S = 10.0


def require_same_training(group: Processes, resolved: ResolvedConfig, profile_chunks: int) -> None:
    """Raise unless all processes are about to run the same training, and can run it together.

    Raises:
        InvalidArgumentError: the processes differ, or a setting works in a single process only.
    """
    if group.count == 1:
        return
    config = resolved.config
    facts: dict[str, Any] = config.model_dump(mode="json")
    for owner in ("env", "agent"):
        facts |= {f"{owner}.{name}": value for name, value in facts.pop(f"{owner}_options").items()}
    facts |= {f"the version of {name}": each for name, each in hardware.package_versions().items()}
    facts |= {name: getattr(jax.config, name) for name in _JAX_SETTINGS}
    facts["XLA_FLAGS"] = " ".join(settings.xla_flags())
    facts["the number of local devices"] = jax.local_device_count()
    facts["the kind of devices"] = jax.local_devices()[0].device_kind
    group.require_alike(facts)
    refused = [
        ("seeds", config.seeds, None, "seeds are spread over the devices of one"),
        ("film_every", config.film_every, 0, "a film shows what one holds"),
        ("profile_chunks", profile_chunks, 0, "a trace shows one"),
    ]
    for name, value, needed, reason in refused:
        if value != needed:
            raise InvalidArgumentError(
                f"{name} must be {needed} with several processes, since {reason}, "
                f"but got {shown(value)}."
            )
    if resolved.num_devices() != jax.device_count():
        raise InvalidArgumentError(
            f"num_devices must be {jax.device_count()}, the devices of all {group.count} "
            f"processes, but is {resolved.num_devices()}."
        )


def new_folder(
    group: Processes, path: Path, config_toml: str, environment: Mapping[str, Any]
) -> RunFolder:
    """Let process 0 make a run's folder, and return the folder for use in this process.

    Raises:
        InvalidArgumentError: see `RunFolder.create`, or a process doesn't see the folder.
    """
    path = Path(group.broadcast(str(path)))
    created = group.on_first(lambda: RunFolder.create(path, config_toml, environment))
    folder = created or RunFolderOfOthers(path)
    group.undo_with(folder.discard)
    try:
        return _shared(group, folder)
    except InvalidArgumentError:
        folder.discard()
        raise


def written_folder(group: Processes, path: Path) -> tuple[RunFolder, str]:
    """Return the folder of an existing run, and its configuration.

    Raises:
        InvalidArgumentError: see `RunFolder.config_toml`, or a process doesn't see the folder.
    """
    path = Path(group.broadcast(str(path)))
    folder = RunFolder(path) if group.is_first else RunFolderOfOthers(path)
    toml: Any = group.broadcast(group.on_first(folder.config_toml))
    return _shared(group, folder), toml


def _shared(group: Processes, folder: RunFolder) -> RunFolder:
    """Return the folder if every process sees the files that process 0 writes into it.

    Raises:
        InvalidArgumentError: a process doesn't see them, or a file can't be written.
    """
    if group.count == 1:
        return folder
    path = folder.path / f".shared-{group.broadcast(os.getpid())}"

    def touch() -> None:
        with write_errors_explained(f"run folder {folder.path}"):
            path.touch()

    def look() -> None:
        until_s = time.monotonic() + _SEEN_S
        while not path.exists():
            if time.monotonic() > until_s:
                raise InvalidArgumentError(
                    f"run folder {folder.path} must be on a disk that all processes share, but "
                    f"process {group.process_id} doesn't see what process 0 writes there."
                )
            time.sleep(0.1)

    group.on_first(touch)
    try:
        group.together(look)
    finally:
        if group.is_first:
            with contextlib.suppress(OSError):
                path.unlink()
    return folder


@contextlib.contextmanager
def held_by_first(group: Processes, folder: RunFolder) -> Iterator[None]:
    """Hold the folder in process 0, and fail in all processes if another run holds it."""
    with contextlib.ExitStack() as opened:
        group.together(lambda: opened.enter_context(folder.held()))
        yield
