"""The processes of one training, through `jax.distributed`.

`configure` connects them. Everything else exchanges small values with the other processes, so all
of them must make the same calls in the same order. In a single process no call waits.
"""

import contextlib
import dataclasses
import importlib.util
import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np

from myriad.errors import InvalidArgumentError, shown
from myriad.settings import Settings
from myriad.signals import IN_A_ROW_S

__all__ = ["Launch"]

Result = TypeVar("Result")

# Seconds that a process which ends by an error gives the others to come to the same error.
_TOGETHER_S = 5.0


@dataclasses.dataclass(frozen=True)
class Launch:
    """How the processes of a training find each other. JAX asks the launcher for what is None.

    Attributes:
        coordinator: host and port at which process 0 listens, such as "10.0.0.1:20123".
        num_processes: how many processes there are.
        process_id: the number of this process, from 0.
        start_timeout_s: seconds within which all processes must find each other.
        heartbeat_timeout_s: after this many seconds without a sign of life from one process, all
            of them end.

    Raises:
        InvalidArgumentError: `coordinator` is not a host and a port.

    Example:
        >>> Launch("10.0.0.1:20123", num_processes=2, process_id=0).process_id
        0
    """

    coordinator: str | None = None
    num_processes: int | None = None
    process_id: int | None = None
    start_timeout_s: int = 60
    heartbeat_timeout_s: int = 60

    def __post_init__(self):
        """Refuse an address that JAX would take apart without looking."""
        if self.coordinator is not None and not re.fullmatch(r".+:\d{1,5}", self.coordinator):
            rule = "must be a host and a port, such as localhost:20123"
            raise InvalidArgumentError("coordinator", rule, self.coordinator)

    @classmethod
    def read(cls, given: Mapping[str, Any], folder: Path | None = None) -> "Launch":
        """Take what is not given from the variables `MYRIAD_*`, and from the `.env` of a folder."""
        names = [field.name for field in dataclasses.fields(cls)]
        settings = Settings.read(folder, only=names)
        said = {name: getattr(settings, name) for name in names}
        said |= {name: value for name, value in given.items() if value is not None}
        return cls(**{name: value for name, value in said.items() if value is not None})


def connect(launch: Launch) -> None:
    """Connect to the other processes.

    Raises:
        InvalidArgumentError: nobody says which process this is, or a value can't be used.
    """
    # JAX understands Open MPI 4 by itself, and later ones only with this package.
    has_mpi = "OMPI_COMM_WORLD_RANK" in os.environ and importlib.util.find_spec("mpi4py")
    try:
        jax.distributed.initialize(
            launch.coordinator,
            launch.num_processes,
            launch.process_id,
            cluster_detection_method="mpi4py" if has_mpi else None,
            initialization_timeout=launch.start_timeout_s,
            heartbeat_timeout_seconds=launch.heartbeat_timeout_s,
            shutdown_timeout_seconds=launch.heartbeat_timeout_s,
        )
    except (ValueError, RuntimeError) as error:
        raise InvalidArgumentError(
            f"the processes can't connect: {error} Start them with srun or mpirun, or give "
            "--coordinator, --num-processes and --process-id."
        ) from error


def count() -> int:
    """Return how many processes train together."""
    # Asking JAX for the number starts its backend.
    return jax.process_count() if jax.distributed.is_initialized() else 1


def is_first() -> bool:
    """Return whether this process writes files and decides."""
    return count() == 1 or jax.process_index() == 0


def all_gather(value: Any) -> list[Any]:
    """Return the values of all processes, which must be JSON, in the order of their numbers."""
    if count() == 1:
        return [value]
    from jax.experimental.multihost_utils import process_allgather

    text = np.frombuffer(json.dumps(value).encode(), np.uint8)
    sizes = process_allgather(np.int32(text.size))
    # Rounded up, since every size is another program to compile.
    padded = np.zeros(1 << int(sizes.max() - 1).bit_length(), np.uint8)
    padded[: text.size] = text
    texts = process_allgather(padded)
    return [json.loads(bytes(row[:size])) for row, size in zip(texts, sizes, strict=True)]


def broadcast(value: Any) -> Any:
    """Return the value of process 0, which must be JSON."""
    return all_gather(value if is_first() else None)[0]


def on_first(function: Callable[[], Result]) -> Result | None:
    """Call a function only in process 0, and fail in all processes if it fails there.

    Returns:
        the result of the function; None in the other processes.

    Raises:
        Exception: the function raised it in process 0. The others raise an InvalidArgumentError.
    """
    result = error = None
    if is_first():
        try:
            result = function()
        except Exception as raised:  # noqa: BLE001 (the others would wait for any)
            error = raised
    problem = broadcast(None if error is None else str(error))
    if problem is not None:
        raise error or InvalidArgumentError(problem)
    return result


def require_equal(facts: Mapping[str, Any]) -> None:
    """Raise in all processes unless all have the same facts.

    Raises:
        InvalidArgumentError: a fact differs, or the number of devices does.
    """
    if jax.device_count() != count() * jax.local_device_count():
        here = f"{jax.local_device_count()} of {jax.device_count()} devices are in this one"
        raise InvalidArgumentError(f"all {count()} processes must have as many devices; {here}.")
    first, *others = all_gather(dict(facts))
    for number, theirs in enumerate(others, 1):
        for name in first | theirs:
            if theirs.get(name) != first.get(name):
                raise InvalidArgumentError(
                    f"process {number} has {name} = {shown(theirs.get(name))}, but process 0 has "
                    f"{shown(first.get(name))}: start all processes alike."
                )


def end(code: int) -> None:
    """End this process after an error, if others train with it.

    Either they end by the same error now, or JAX ends them. A normal exit would wait for them.
    """
    if jax.distributed.is_initialized():
        together = threading.Thread(target=jax.distributed.shutdown, daemon=True)
        together.start()
        together.join(_TOGETHER_S)
        os._exit(code)


class Interrupt(threading.Event):
    """Set by the first signal that asks the process to end, so that the running chunk can finish.

    Attributes:
        number: which signal it was.
    """

    number = 0


class SharedInterrupt(Interrupt):
    """A signal to any of several processes. JAX has all of them see it between the same chunks."""

    def __init__(self):
        super().__init__()
        self._checks = 0
        self._is_seen = False

    def set(self) -> None:
        """Have JAX tell all processes. It handles SIGTERM."""
        signal.raise_signal(signal.SIGTERM)

    def is_set(self) -> bool:
        """Return whether all processes end. Each must call this equally often."""
        from jax.experimental.multihost_utils import reached_preemption_sync_point

        self._checks += 1
        self._is_seen = self._is_seen or reached_preemption_sync_point(self._checks)
        return self._is_seen


@contextlib.contextmanager
def interrupt_noted() -> Iterator[Interrupt]:
    """Turn the first SIGINT or SIGTERM into a flag. A later one ends the process.

    The same signal again within a second is taken for the first one.
    A signal that is ignored stays ignored, and your own handler of SIGTERM stays in place.
    """
    noted = SharedInterrupt() if count() > 1 else Interrupt()
    noted_at = 0.0
    previous: dict[int, Any] = {}
    # Only the main thread may set handlers, and only the main thread is interrupted.
    if threading.current_thread() is threading.main_thread():
        # None stands for a handler that Python didn't install and can't put back.
        if signal.getsignal(signal.SIGINT) not in (signal.SIG_IGN, None):
            previous[signal.SIGINT] = signal.getsignal(signal.SIGINT)
        if count() == 1 and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            previous[signal.SIGTERM] = signal.SIG_DFL

    def note(number: int, _: Any) -> None:
        nonlocal noted_at
        if not noted.number:
            noted.number = number
            noted_at = time.monotonic()
            noted.set()
        elif number != noted.number or time.monotonic() - noted_at >= IN_A_ROW_S:
            restore()
            signal.raise_signal(number)

    def restore() -> None:
        for number, handler in previous.items():
            signal.signal(number, handler)

    for number in previous:
        signal.signal(number, note)
    try:
        yield noted
    finally:
        restore()
