"""A stretch of the real training with any chunk size, which the autotuner times."""

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

from myriad import timing
from myriad.training.loop import TrainState
from myriad.training.programs import CompiledTraining

# A call of a stretch lasts at most this long, so that several rounds fit into the budget. In longer
# calls, the overhead of a call doesn't show.
_MOST_CALL_S = 0.1
# A stretch has this many steps, unless they take longer than that.
_MOST_STEPS = 1_024
LEAST_ROUNDS = 7
_MOST_ROUNDS = 25
# If an update is so long that all chunks are equal, there is nothing to compare.
_LEAST_ROUNDS_ALONE = 2


class Stretch:
    """Some updates of the real training, without its evaluations.

    Args:
        training: a compiled training. Its state is made here and continues from timing to timing.

    Attributes:
        num_updates: updates in the stretch.
    """

    def __init__(self, training: CompiledTraining):
        self._training = training
        self._unit = training.resolved.learner.steps_per_update
        self._state: TrainState = training.first_state()
        self._warm_up()
        self.num_updates, self._update_s = self._length()

    @property
    def steps(self) -> int:
        """Steps of every environment in the stretch."""
        return self.num_updates * self._unit

    def offered(self, sizes: Collection[int]) -> list[int]:
        """Return the chunk sizes to time, in whole updates, each call once.

        Those whose call takes too long to be timed whole are left out.
        """
        chunks = sorted({-(-size // self._unit) for size in sizes})
        return [
            chunk * self._unit
            for chunk in chunks
            if chunk <= max(self.num_updates, int(_MOST_CALL_S / self._update_s))
        ]

    def times(self, sizes: Sequence[int], seconds: float) -> dict[int, list[float]]:
        """Time the stretch with every chunk size, round after round.

        Args:
            sizes: chunk sizes of whole updates.
            seconds: time to spend. The minimum number of rounds is taken even if it is longer.

        Returns:
            for each chunk size the seconds of a stretch, one per round.
        """
        samples = timing.interleave(
            [partial(self._stretch_s, size // self._unit) for size in sizes],
            least_rounds=LEAST_ROUNDS if len(sizes) > 1 else _LEAST_ROUNDS_ALONE,
            most_rounds=_MOST_ROUNDS,
            budget_s=seconds,
        )
        return dict(zip(sizes, samples, strict=True))

    def _stretch_s(self, chunk: int) -> float:
        """Return the seconds of a stretch, by a whole call where that is longer."""
        num_updates = max(self.num_updates, chunk)
        return self._run(num_updates, chunk) * self.num_updates / num_updates

    def _warm_up(self) -> None:
        """Train until the agent learns, as it does in almost all of a training."""
        learner = self._training.loop.learner
        first = learner.first_learning_update(self._training.resolved.num_envs)
        self._run(first, chunk=first)

    def _length(self) -> tuple[int, float]:
        """Return how many updates last long enough to be timed, and the seconds of each."""
        most = max(1, _MOST_STEPS // self._unit)
        num_updates = 1
        seconds = self._run(1, chunk=1)
        if seconds < _MOST_CALL_S:
            # The first call may include page faults and cold caches, so measure again. In a long
            # call they don't matter.
            seconds = min(seconds, *(self._run(1, chunk=1) for _ in range(2)))
        while num_updates < most and seconds <= _MOST_CALL_S / 2:
            num_updates = min(2 * num_updates, most)
            seconds = self._run(num_updates, chunk=num_updates)
        return num_updates, seconds / num_updates

    def _run(self, num_updates: int, chunk: int) -> float:
        """Train for some updates in chunks of so many; return the seconds."""
        self._training.chunk = chunk
        (self._state, _), seconds = timing.timed(
            self._training.run_window, self._state, 0, num_updates, _ignore
        )
        return seconds


def _ignore(*_: Any) -> None:
    pass
