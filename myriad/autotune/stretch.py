"""A stretch of the real training, run with any chunk size: what the autotuner times."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from myriad import timing
from myriad.training.loop import TrainState
from myriad.training.programs import CompiledTraining

# A stretch lasts at most this long, so that several rounds fit into the budget.
_MOST_STRETCH_S = 0.1
LEAST_ROUNDS = 7
_MOST_ROUNDS = 25
# An update may be so long that all chunks are one. Then there is nothing to compare.
_LEAST_ROUNDS_ALONE = 2


class Stretch:
    """Some updates of the real training, no more than the window between two evaluations.

    Args:
        training: a compiled training. Its state is made here, and goes on from timing to timing.

    Attributes:
        num_updates: updates in the stretch.
    """

    def __init__(self, training: CompiledTraining):
        self._training = training
        self._unit = training.resolved.learner.steps_per_update
        self._state: TrainState = training.first_state()
        self._warm_up()
        self.num_updates = self._length()

    def updates(self, size: int) -> int:
        """Return the updates in a call with this chunk size.

        Beyond the stretch's length all chunk sizes are the stretch itself.
        """
        return min(self.num_updates, -(-size // self._unit))

    def calls(self, size: int) -> int:
        """Return the calls that a stretch takes with this chunk size."""
        return -(-self.num_updates // self.updates(size))

    def window_calls(self, size: int) -> int:
        """Return the calls from one evaluation to the next."""
        return -(-self._training.eval_every * self._unit // size)

    @property
    def window_stretches(self) -> float:
        """How many stretches there are from one evaluation to the next."""
        return self._training.eval_every / self.num_updates

    def times(self, sizes: Sequence[int], seconds: float) -> dict[int, list[float]]:
        """Time the stretch with every chunk size, round after round.

        Args:
            sizes: chunk sizes. Those that come to the same calls are timed once.
            seconds: to spend; the fewest rounds are taken even so.

        Returns:
            for each chunk size the seconds of a stretch, one per round.
        """
        chunks = sorted({self.updates(size) for size in sizes})
        samples = timing.interleave(
            [partial(self._run, self.num_updates, chunk) for chunk in chunks],
            least_rounds=LEAST_ROUNDS if len(chunks) > 1 else _LEAST_ROUNDS_ALONE,
            most_rounds=_MOST_ROUNDS,
            budget_s=seconds,
        )
        by_chunk = dict(zip(chunks, samples, strict=True))
        return {size: by_chunk[self.updates(size)] for size in sizes}

    def _warm_up(self) -> None:
        """Go on until the agent learns, as it does in all but a training's first moments."""
        learner = self._training.loop.learner
        first = learner.first_learning_update(self._training.resolved.num_envs)
        self._run(first, chunk=first)

    def _length(self) -> int:
        """Return how many updates last long enough to be timed, and no longer."""
        one = self._run(1, chunk=1)
        if one < _MOST_STRETCH_S:
            # The first call may have paid for pages and caches. Beyond that length it doesn't
            # matter.
            one = min(one, *(self._run(1, chunk=1) for _ in range(2)))
        return max(1, min(self._training.eval_every, int(_MOST_STRETCH_S / one)))

    def _run(self, num_updates: int, chunk: int) -> float:
        """Train for some updates in chunks of so many; return the seconds."""
        self._training.chunk = chunk
        (self._state, _), seconds = timing.timed(
            self._training.run_window, self._state, 0, num_updates, _ignore
        )
        return seconds


def _ignore(*_: Any) -> None:
    pass
