"""The search for a chunk size: a few timings, a model, and paired evidence for the choice."""

import dataclasses
import statistics
import time
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from myriad.autotune.stretch import Stretch
from myriad.timing import median_interval
from myriad.training.programs import CompiledTraining

# Powers of two are fine enough, since in real trainings all chunks from 64 on were within 4%.
CANDIDATES = tuple(2**k for k in range(11))
# Fewer samples have no 95% interval.
_LEAST_FOR_INTERVAL = 7
# A chunk is as good as the best if it is slower by no more than this. The model must predict half
# of it, so that noise does not decide.
_TOLERANCE = 0.02


@dataclasses.dataclass(frozen=True)
class Candidate:
    """The result of a chunk size.

    Attributes:
        chunk_size: steps of every environment in a call.
        steps_per_s: steps/s of all environments together, without evaluations.
        verdict: `best`, `indistinguishable` or `slower`.
        slowdown: the time of the same steps relative to the chosen size, median of the rounds.
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
    """The choice for a training from the timings.

    Attributes:
        chunk_size: the chosen chunk, in steps of every environment.
        steps_per_s: steps/s of all environments with it.
        steps_per_s_low: the lower end of its 95% interval.
        steps_per_s_high: the upper end.
        candidates: every chunk that was timed and that the training can take, with its verdict.
    """

    chunk_size: int
    steps_per_s: float
    steps_per_s_low: float
    steps_per_s_high: float
    candidates: tuple[Candidate, ...]


@dataclasses.dataclass(frozen=True)
class Rounds:
    """The timings, which don't depend on the training's length and evaluations.

    Attributes:
        steps: steps of every environment in each timing.
        seconds: for each chunk size the seconds of those steps, one per round.
    """

    steps: int
    seconds: Mapping[int, Sequence[float]]

    def calls(self, size: int) -> float:
        """Return the number of calls for the steps with a chunk size."""
        return -(-self.steps // size) if size <= self.steps else self.steps / size


def measure(training: CompiledTraining, others: Collection[int], seconds: float) -> Rounds:
    """Time `CANDIDATES` and `others` for a compiled training, unless all are the same chunk.

    Every chunk is the same program called with another number of updates, so one compilation
    serves all. The trainer's own loop over chunks is timed, and every timing holds a whole chunk.

    Args:
        training: a compiled training.
        others: further chunk sizes, including that of the untuned configuration.
        seconds: time to spend. The minimum number of rounds is taken even if it is longer.
    """
    end = time.perf_counter() + seconds
    stretch = Stretch(training)
    sizes = stretch.offered({*CANDIDATES, *others})
    if len(sizes) == 1:
        return Rounds(stretch.steps, {sizes[0]: [stretch.seconds]})
    return Rounds(stretch.steps, stretch.times(sizes, max(0.0, end - time.perf_counter())))


def choose(rounds: Rounds, num_envs: int, window: int | None = None) -> Found:
    """Choose among the chunks that were timed.

    Args:
        rounds: the timings.
        num_envs: environments of the training.
        window: steps of every environment between two evaluations, no fewer than the smallest
            chunk. A training ends every chunk at an evaluation, so longer chunks are left out. None
            leaves out none.
    """
    times = {
        size: rounds.seconds[size]
        for size in sorted(rounds.seconds)
        if window is None or size <= window
    }
    # If a training can use the best of all chunks, it gets that one, however long its windows are.
    chosen = _nearly_best(rounds, rounds.seconds)
    if chosen not in times:
        chosen = _nearly_best(rounds, times)
    steps = rounds.steps * num_envs
    low, high = _interval(times[chosen])
    candidates = tuple(
        Candidate(
            size,
            steps / statistics.median(times[size]),
            *_verdict(times[size], times[chosen], size == chosen),
        )
        for size in times
    )
    if len(times) == 1:
        candidates = (dataclasses.replace(candidates[0], why="the only one, so the best"),)
    return Found(
        chosen, steps / statistics.median(times[chosen]), steps / high, steps / low, candidates
    )


def _nearly_best(rounds: Rounds, times: Mapping[int, Sequence[float]]) -> int:
    """Return the smallest of some chunks that is no more than 2% slower than the best of them.

    The time of some steps is (calls x overhead) + (steps x step), fitted to all timings.
    """
    sizes = sorted(times)
    model = _Model.fit({rounds.calls(size): statistics.median(times[size]) for size in sizes})
    predicted = {size: model.seconds(rounds.steps / size) for size in sizes}
    limit = (1 + _TOLERANCE / 2) * min(predicted.values())
    chosen = next(size for size in sizes if predicted[size] <= limit)
    # The measurement overrides the model: a chunk that is surely faster by more is taken instead.
    faster = [size for size in sizes if _against(times[size], times[chosen])[2] < 1 - _TOLERANCE]
    return min(faster, key=lambda size: statistics.median(times[size]), default=chosen)


@dataclasses.dataclass(frozen=True)
class _Model:
    """Seconds of a stretch: `per_call` for each of its calls, and `rest` for its steps."""

    per_call: float
    rest: float

    @classmethod
    def fit(cls, seconds: Mapping[float, float]) -> "_Model":
        """Fit by least squares of relative errors, neither below 0.

        `seconds` maps numbers of calls to times.
        """
        calls = np.array(list(seconds), float)
        times = np.array(list(seconds.values()), float)
        if len(calls) == 1:
            return cls(0.0, times[0])
        columns = np.stack([calls, np.ones_like(calls)], axis=1) / times[:, None]
        found = np.linalg.lstsq(columns, np.ones_like(times), rcond=None)[0]
        if found.min() < 0:
            # This happens on a busy machine. A cost can't be negative, so the other one explains
            # all.
            other = columns[:, found.argmax()]
            found = np.where(found < 0, 0.0, other.sum() / (other @ other))
        return cls(*map(float, found))

    def seconds(self, calls: float) -> float:
        """Return the time of the stretch in so many calls."""
        return self.rest + calls * self.per_call


def _against(times: Sequence[float], other: Sequence[float]) -> tuple[float, float, float]:
    """Return the median of the rounds' ratios, and its 95% interval."""
    ratios = [a / b for a, b in zip(times, other, strict=True)]
    return statistics.median(ratios), *_interval(ratios)


def _interval(samples: Sequence[float]) -> tuple[float, float]:
    """Return the 95% interval of the median, or the range of samples too few for one."""
    if len(samples) < _LEAST_FOR_INTERVAL:
        return min(samples), max(samples)
    return median_interval(samples)


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
