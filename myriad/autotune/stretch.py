"""A stretch of the real training with any chunk size, which the autotuner times."""

import math
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

from myriad import timing
from myriad.training.loop import TrainState
from myriad.training.programs import CompiledTraining

# A call of a stretch lasts at most this long, so that several rounds fit into the budget. In longer
# calls, the overhead of a call is below 1%.
_MOST_CALL_S = 0.04
# A stretch has this many steps, unless they take longer than that.
_MOST_STEPS = 1_024
# A chunk so small that its stretch needs more calls is timed on a part of the stretch.
_MOST_CALLS = 64
_LEAST_ROUNDS = 3
_MOST_ROUNDS = 25


class Stretch:
    """Some updates of the real training, without its evaluations.

    Args:
        training: a compiled training. Its state is made here and continues from timing to timing.

    Attributes:
        num_updates: updates in the stretch.
        seconds: the seconds of the stretch in one call, timed once.
    """

    def __init__(self, training: CompiledTraining):
        self._training = training
        self._unit = training.config.learner.steps_per_update
        self._state: TrainState = training.first_state()
        # Train until the agent learns, as it does in almost all of a training.
        first = training.loop.learner.first_learning_update(training.config.num_envs)
        update_s = self._run(first, chunk=first) / first
        self.num_updates, self.seconds = 1, update_s
        # If an update takes far longer than a call may, this one timing has to do.
        if update_s <= 10 * _MOST_CALL_S:
            self.num_updates, self.seconds = self._length()

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
            if chunk <= max(self.num_updates, int(_MOST_CALL_S * self.num_updates / self.seconds))
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
            least_rounds=_LEAST_ROUNDS,
            most_rounds=_MOST_ROUNDS,
            budget_s=seconds,
        )
        return dict(zip(sizes, samples, strict=True))

    def _stretch_s(self, chunk: int) -> float:
        """Return the seconds of a stretch, from whole calls, at most `_MOST_CALLS` of them."""
        num_updates = max(chunk, min(self.num_updates, _MOST_CALLS * chunk))
        return self._run(num_updates, chunk) * self.num_updates / num_updates

    def _length(self) -> tuple[int, float]:
        """Return how many updates last long enough to be timed, and their seconds."""
        most = max(1, _MOST_STEPS // self._unit)
        num_updates = 1
        while True:
            # Another process, page faults and cold caches may delay a call, so try three times.
            seconds = math.inf
            for _ in range(3):
                seconds = min(seconds, self._run(num_updates, chunk=num_updates))
                if seconds <= _MOST_CALL_S / 2:
                    break
            if seconds > _MOST_CALL_S / 2 or num_updates == most:
                return num_updates, seconds
            num_updates = min(2 * num_updates, most)

    def _run(self, num_updates: int, chunk: int) -> float:
        """Train for some updates in chunks of so many; return the seconds."""
        self._training.chunk = chunk
        (self._state, _), seconds = timing.timed(
            self._training.run_window, self._state, 0, num_updates, _ignore
        )
        return seconds


def _ignore(*_: Any) -> None:
    pass
