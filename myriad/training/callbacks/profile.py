"""A trace of some chunks of a training, for Perfetto."""

import jax

from myriad.files import say, write_errors_explained
from myriad.training.callbacks import Callback, Run
from myriad.training.run_folder import RunFolder


class Profile(Callback):
    """Traces the first chunks of a training into its run folder.

    Args:
        folder: the run's folder.
        num_chunks: number of chunks to trace, at least 1.
    """

    def __init__(self, folder: RunFolder, num_chunks: int):
        self._path = folder.path / "profile"
        self._left = num_chunks

    def on_start(self, run: Run) -> None:
        """Start the trace."""
        with write_errors_explained(self._path):
            jax.profiler.start_trace(str(self._path), create_perfetto_trace=True)

    def on_update(self, run: Run) -> None:
        """Count a chunk, and end the trace after the last one."""
        self._left -= 1
        if self._left == 0:
            self._end()

    def on_end(self, run: Run) -> None:
        """End the trace, if the training ended before it."""
        if self._left > 0:
            self._end()

    def _end(self) -> None:
        with write_errors_explained(self._path):
            jax.profiler.stop_trace()
        # The folder may also hold traces from before the run was resumed.
        traces = self._path.glob("**/perfetto_trace.json.gz")
        trace = max(traces, key=lambda path: path.stat().st_mtime_ns)
        size = trace.stat().st_size / 2**20
        say(f"{trace}: {size:.1f} MiB; open it at ui.perfetto.dev")
