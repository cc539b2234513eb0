"""The search for a chunk size: few timings, a model, and paired evidence for what is chosen."""

import dataclasses
import statistics
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from myriad.autotune.stretch import LEAST_ROUNDS, Stretch
from myriad.timing import median_interval
from myriad.training.programs import CompiledTraining

# Powers of two are fine enough: in real trainings all chunks from 64 on came within 4%.
CANDIDATES = tuple(2**k for k in range(11))
# A chunk is as good as the best if it is slower by no more than this. The model must say half of
# it, so that noise does not decide.
_TOLERANCE = 0.02


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
    """What a search came to.

    Attributes:
        chunk_size: the chunk chosen, in steps of every environment.
        steps_per_s: steps/s of all environments with it.
        steps_per_s_low: the lower end of its 95% interval.
        steps_per_s_high: the upper end.
        candidates: every chunk considered, with its verdict.
    """

    chunk_size: int
    steps_per_s: float
    steps_per_s_low: float
    steps_per_s_high: float
    candidates: tuple[Candidate, ...]


def search(training: CompiledTraining, others: Collection[int], seconds: float) -> Found:
    """Choose among `CANDIDATES` and `others` for a compiled training.

    Every chunk is the same program called with another number of updates, so one compilation
    serves all. The trainer's own loop over chunks is timed, and the time of a stretch of it is
    (calls x overhead) + (updates x step). A fit of that to all timings names the smallest chunk
    that is no more than 2% slower than the best.

    Args:
        training: a compiled training.
        others: further chunk sizes, the untuned configuration's among them.
        seconds: to spend on timing; the fewest rounds are taken even so.
    """
    sizes = sorted({*CANDIDATES, *others})
    stretch = Stretch(training)
    times = stretch.times(sizes, seconds)
    model = _Model.fit({stretch.calls(size): statistics.median(times[size]) for size in sizes})
    window = {
        size: model.seconds(stretch.window_calls(size), stretch.window_stretches) for size in sizes
    }
    chosen = next(
        size for size in sizes if window[size] <= (1 + _TOLERANCE / 2) * min(window.values())
    )
    # What was measured has the last word: a chunk that is surely faster by more is taken instead.
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
    """Seconds of a stretch: `per_call` for each of its calls, and `rest` for its steps."""

    per_call: float
    rest: float

    @classmethod
    def fit(cls, seconds: Mapping[int, float]) -> "_Model":
        """Fit by least squares of relative errors. `seconds` maps numbers of calls to times."""
        calls = np.array(list(seconds), float)
        times = np.array(list(seconds.values()), float)
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
    """Return the 95% interval of the median, or the range of samples too few for one."""
    if len(samples) < LEAST_ROUNDS:
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
