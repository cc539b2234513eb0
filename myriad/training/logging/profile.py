"""A trace of some chunks of a training, for Perfetto."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import jax

from myriad.errors import InvalidArgumentError
from myriad.files import write_errors_explained
from myriad.training.logging.run_folder import RunFolder


class Profile:
    """Traces the first chunks of a training into its run folder.

    Args:
        folder: the run's folder.
        num_chunks: number of chunks to trace; 0 for none.
        say: prints a sentence.
    """

    def __init__(self, folder: RunFolder, num_chunks: int, say: Callable[[str], None]):
        self._path = folder.path / "profile"
        self._num_chunks = num_chunks
        self._left = 0
        self._say = say

    def start(self) -> None:
        """Start the trace, if there are chunks to trace."""
        if not self._num_chunks:
            return
        with write_errors_explained(self._path), _refusals_named():
            jax.profiler.start_trace(str(self._path), create_perfetto_trace=True)
        self._left = self._num_chunks

    def count(self) -> None:
        """Count a chunk, and end the trace after the last one."""
        if self._left:
            self._left -= 1
            if not self._left:
                self._end()

    def close(self) -> None:
        """End the trace, if the training ended before it."""
        if self._left:
            self._left = 0
            self._end()

    def _end(self) -> None:
        with write_errors_explained(self._path), _refusals_named():
            jax.profiler.stop_trace()
        # The folder may also hold traces from before the run was resumed.
        trace = max(self._traces(), key=lambda path: path.stat().st_mtime_ns)
        size = trace.stat().st_size / 2**20
        self._say(f"{trace}: {size:.1f} MiB; open it at ui.perfetto.dev")

    def _traces(self) -> list[Path]:
        return list(self._path.glob("**/perfetto_trace.json.gz"))


@contextlib.contextmanager
def _refusals_named() -> Iterator[None]:
    """Turn JAX's error into Myriad's, for example if another trace is running."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidArgumentError(f"the training can't be traced: {reason}") from error
