"""The search for a chunk size: few timings, a model, and paired evidence for what is chosen."""

import dataclasses
import random
import statistics
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from myriad.timing import median_interval
from myriad.training.loop import TrainState
from myriad.training.programs import CompiledTraining

CANDIDATES = tuple(2**k for k in range(11))
# A chunk is as good as the best if it is no more than this slower; the model must say half of it,
# to be sure.
_TOLERANCE = 0.02
# A timed stretch of training lasts at most this long, so that several rounds fit into the budget.
_MOST_STRETCH_S = 0.1
_LEAST_ROUNDS, _MOST_ROUNDS = 7, 25
# Where an update is so long that all chunks are one, there is nothing to compare.
_LEAST_ALONE = 2


@dataclasses.dataclass(frozen=True)
class Candidate:
    """What was found of a chunk size.

    Attributes:
        chunk_size: steps of every environment in a call.
        steps_per_s: of all environments together, evaluations left out.
        verdict: `best`, `indistinguishable` or `slower`.
        slowdown: time of the same steps over the chosen one's, median of the rounds.
        low: the lower end of its 95% interval.
        high: the upper end.
        why: the verdict in words.
    """

    chunk_size: int
    steps_per_s: float
    verdict: str
    slowdown: float
    low: float
    high: float
    why: str


@dataclasses.dataclass(frozen=True)
class Found:
    """The chunk chosen, steps/s of all environments with it and their 95% interval, and every candidate's verdict."""

    chunk_size: int
    steps_per_s: float
    steps_per_s_low: float
    steps_per_s_high: float
    candidates: tuple[Candidate, ...]


def search(training: CompiledTraining, others: Collection[int], seconds: float) -> Found:
    """Choose among `CANDIDATES` and `others` for a compiled training.

    Every chunk is the same program called with another number of updates, so there is one
    compilation for all, and the time of a stretch is (calls x overhead) + (updates x step): what is
    timed is the trainer's own loop over chunks. A fit of that to all timings names the smallest
    chunk that is no more than 2% slower than the best.

    Args:
        training: compiled; its state is made here, and dropped.
        others: further chunk sizes, the untuned configuration's among them.
        seconds: to spend on timing; the fewest rounds are made even so.
    """
    sizes = sorted({*CANDIDATES, *others})
    stretch = Stretch(training)
    rounds = stretch.rounds(sizes, seconds)
    times = {size: [a_round[stretch.updates(size)] for a_round in rounds] for size in sizes}
    model = _Model.fit({stretch.calls(size): statistics.median(times[size]) for size in sizes})
    window = {
        size: model.seconds(stretch.window_calls(size), stretch.window_stretches) for size in sizes
    }
    chosen = next(
        size for size in sizes if window[size] <= (1 + _TOLERANCE / 2) * min(window.values())
    )
    # What was measured has the last word: a chunk that is surely faster by more than that is taken
    # instead.
    faster = [size for size in sizes if _against(times[size], times[chosen])[2] < 1 - _TOLERANCE]
    chosen = min(faster, key=lambda size: statistics.median(times[size]), default=chosen)
    steps = stretch.num_updates * training.steps_per_update
    low, high = _interval(times[chosen])
    candidates = tuple(
        Candidate(
            size,
            steps / statistics.median(times[size]),
            *_verdict(times[size], times[chosen], size == chosen),
        )
        for size in sizes
    )
    return Found(
        chosen, steps / statistics.median(times[chosen]), steps / high, steps / low, candidates
    )


@dataclasses.dataclass(frozen=True)
class _Model:
    """Seconds of a stretch: `per_call` for each of its calls, and `rest` for its steps whatever the chunk."""

    per_call: float
    rest: float

    @classmethod
    def fit(cls, seconds: Mapping[int, float]) -> "_Model":
        """Fit by least squares of relative errors; `seconds` goes by the number of calls."""
        calls, times = (np.array(column, float) for column in zip(*seconds.items(), strict=True))
        if len(calls) == 1:
            return cls(0.0, times[0])
        columns = np.stack([calls, np.ones_like(calls)], axis=1) / times[:, None]
        per_call, rest = np.linalg.lstsq(columns, np.ones_like(times), rcond=None)[0]
        return cls(max(0.0, float(per_call)), float(rest))

    def seconds(self, calls: int, stretches: float) -> float:
        """Return the time of so many stretches' steps in so many calls."""
        return self.rest * stretches + calls * self.per_call


def _against(times: Sequence[float], other: Sequence[float]) -> tuple[float, float, float]:
    """Return the median of the rounds' ratios, and its 95% interval."""
    ratios = [a / b for a, b in zip(times, other, strict=True)]
    return statistics.median(ratios), *_interval(ratios)


def _interval(samples: Sequence[float]) -> tuple[float, float]:
    """Return the median's 95% interval; of too few samples for one, their range."""
    return (
        median_interval(samples) if len(samples) >= _LEAST_ROUNDS else (min(samples), max(samples))
    )


def _verdict(
    times: Sequence[float],
    best: Sequence[float],
    is_chosen: bool,  # noqa: FBT001
) -> tuple[str, float, float, float, str]:
    """Return a candidate's fields from its verdict on."""
    if is_chosen:
        return "best", 1.0, 1.0, 1.0, "best"
    middle, low, high = _against(times, best)
    verdict = "slower" if low > 1 else "indistinguishable"
    percent = f"{100 * (middle - 1):+.1f}% ({100 * (low - 1):+.1f} to {100 * (high - 1):+.1f}%)"
    return verdict, middle, low, high, f"{verdict}, time {percent}"


class Stretch:
    """Some updates of the real training, no more than one window between evaluations, run with any chunk."""

    def __init__(self, training: CompiledTraining):
        self._training = training
        self._unit = training.steps_per_update // (training.config.num_envs or 1)
        self._state: TrainState = training.first_state()
        self.num_updates = 1
        self._warm_up()
        self.num_updates = self._length()

    def updates(self, size: int) -> int:
        """Return the updates in a call with this chunk size; beyond a window, all chunks are the window."""
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

    def rounds(self, sizes: Sequence[int], seconds: float) -> list[dict[int, float]]:
        """Time the stretch with every chunk in turn, in random order, round after round; keyed by updates a call."""
        chunks = sorted({self.updates(size) for size in sizes})
        end, order, rounds = time.perf_counter() + seconds, random.Random(0), []  # noqa: S311 (an order, no secret)
        least = _LEAST_ROUNDS if len(chunks) > 1 else _LEAST_ALONE
        while len(rounds) < least or (len(rounds) < _MOST_ROUNDS and time.perf_counter() < end):
            rounds.append({chunk: self._time(chunk) for chunk in order.sample(chunks, len(chunks))})
        return rounds

    def _warm_up(self) -> None:
        """Go on until the agent learns from its buffer, as it does in all but a training's first moments."""
        learner: Any = self._training.loop.learner
        first = getattr(learner, "learning_starts", 0) // self._training.steps_per_update + 1
        self._run(first, chunk=first)

    def _length(self) -> int:
        """Return how many updates last long enough to be timed, and no longer."""
        window = self._training.eval_every
        one = self._run(1, chunk=1)
        if one < _MOST_STRETCH_S:  # else another call says nothing more
            one = min(one, *(self._run(1, chunk=1) for _ in range(2)))
        return max(1, min(window, int(_MOST_STRETCH_S / one)))

    def _time(self, chunk: int) -> float:
        return self._run(self.num_updates, chunk)

    def _run(self, num_updates: int, chunk: int) -> float:
        start = time.perf_counter()
        self._training.chunk = chunk
        self._state, _ = self._training.run_window(self._state, 0, num_updates, _ignore)
        jax.block_until_ready(self._state)
        return time.perf_counter() - start


def _ignore(*_: Any) -> None:
    pass
