"""The search for a chunk size: a few timings, and paired evidence for the choice."""

import dataclasses
import math
import statistics
import time
from collections.abc import Collection, Mapping, Sequence
from functools import partial

from myriad import timing
from myriad.training.compiled import CompiledTraining
from myriad.training.loop import TrainState

# Powers of two are fine enough, since in real trainings all chunks from 64 on were within 4%.
CANDIDATES = tuple(2**k for k in range(11))
# Fewer samples have no 95% interval.
_LEAST_FOR_INTERVAL = 7
# A chunk is as good as the best if it is slower by no more than this.
_TOLERANCE = 0.02
# A call of a stretch lasts at most this long, so that several rounds fit into the budget. In longer
# calls, the overhead of a call is below 1%.
_MOST_CALL_S = 0.04
# A stretch has this many steps, unless they take longer than that.
_MOST_STEPS = 1_024
# A chunk so small that its stretch needs more calls is timed on a part of the stretch.
_MOST_CALLS = 64
_LEAST_ROUNDS = 3
_MOST_ROUNDS = 25
# Updates may be so long that nearly every call takes longer than that. So many of the smallest
# chunks are then compared, if their rounds take no longer than this.
_LEAST_COMPARED = 3
_MOST_COMPARING_S = 4.0


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
        scan_chunk_size: the chosen chunk, in steps of every environment.
        steps_per_s: steps/s of all environments while training with it, without evaluations.
        steps_per_s_low: the lower end of its 95% interval, or of the range of fewer than 7 rounds.
        steps_per_s_high: the upper end. Without an interval, all three are equal.
        candidates: every chunk that was timed and that the training can take, with its verdict,
            smallest first.
    """

    scan_chunk_size: int
    steps_per_s: float
    steps_per_s_low: float
    steps_per_s_high: float
    candidates: tuple[Candidate, ...]


def measure(
    training: CompiledTraining, others: Collection[int], seconds: float
) -> tuple[int, dict[int, list[float]]]:
    """Time `CANDIDATES` and `others` for a compiled training, unless all are the same chunk.

    Every chunk is the same program called with another number of updates, so one compilation
    serves all. The trainer's own loop over chunks is timed, and every timing holds a whole chunk.

    Args:
        training: a compiled training.
        others: further chunk sizes, including that of the untuned configuration.
        seconds: time to spend. The minimum number of rounds is taken even if it is longer.

    Returns:
        the steps of every environment in each timing; and for each chunk size the seconds of those
        steps, one per round. They don't depend on the training's length and evaluations.
    """
    end = time.perf_counter() + seconds
    stretch = Stretch(training)
    sizes = stretch.offered({*CANDIDATES, *others})
    steps = stretch.num_updates * training.config.learner.steps_per_update
    if len(sizes) == 1:
        return steps, {sizes[0]: [stretch.seconds]}
    samples = timing.interleave(
        [partial(stretch.seconds_in, size) for size in sizes],
        least_rounds=_LEAST_ROUNDS,
        most_rounds=_MOST_ROUNDS,
        budget_s=max(0.0, end - time.perf_counter()),
    )
    return steps, dict(zip(sizes, samples, strict=True))


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

    def offered(self, sizes: Collection[int]) -> list[int]:
        """Return the chunk sizes to time, in whole updates, each call once.

        Those whose call takes too long to be timed whole are left out, but not the smallest.
        """
        chunks = sorted({-(-size // self._unit) for size in sizes})
        update_s = self.seconds / self.num_updates
        least = chunks[:_LEAST_COMPARED]
        if _LEAST_ROUNDS * sum(least) * update_s > _MOST_COMPARING_S:
            least = chunks[:1]
        longest = max(self.num_updates, int(_MOST_CALL_S / update_s), least[-1])
        return [chunk * self._unit for chunk in chunks if chunk <= longest]

    def seconds_in(self, size: int) -> float:
        """Return the seconds of a stretch in chunks of a size, from at most `_MOST_CALLS` calls."""
        chunk = size // self._unit
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
            self._training.run_window, self._state, 0, num_updates, lambda *_: None
        )
        return seconds


def choose(
    seconds: Mapping[int, Sequence[float]], num_steps: int, window: int | None = None
) -> Found:
    """Choose among the chunks that were timed.

    Args:
        seconds: for each chunk size the seconds of the same steps, one per round.
        num_steps: those steps, of all environments together.
        window: steps of every environment between two evaluations, no fewer than the smallest
            chunk. A training ends every chunk at an evaluation, so longer chunks are left out. None
            leaves out none.
    """
    times = {size: seconds[size] for size in sorted(seconds) if window is None or size <= window}
    # If a training can use the best of all chunks, it gets that one, however long its windows are.
    chosen = _nearly_best(seconds)
    if chosen not in times:
        chosen = _nearly_best(times)
    candidates = []
    for size, own in times.items():
        middle, low, high = _against(own, times[chosen])
        verdict = why = "slower" if low > 1 else "indistinguishable"
        why += f", time {middle - 1:+.1%} ({low - 1:+.1%} to {high - 1:+.1%})"
        if size == chosen:
            verdict = why = "best"
            if len(times) == 1:
                why = "nothing to compare, no other chunk was timed"
        rate = num_steps / statistics.median(own)
        candidates.append(Candidate(size, rate, verdict, middle, low, high, why))
    rate = num_steps / statistics.median(times[chosen])
    low, high = _interval(times[chosen])
    return Found(chosen, rate, num_steps / high, num_steps / low, tuple(candidates))


def _nearly_best(times: Mapping[int, Sequence[float]]) -> int:
    """Return the smallest of some chunks that is no more than 2% slower than the best of them."""
    best = min(times, key=lambda size: statistics.median(times[size]))
    limit = 1 + _TOLERANCE
    return min(size for size in times if _against(times[size], times[best])[0] <= limit)


def _against(times: Sequence[float], other: Sequence[float]) -> tuple[float, float, float]:
    """Return the median of the rounds' ratios, and its 95% interval."""
    ratios = [a / b for a, b in zip(times, other, strict=True)]
    return statistics.median(ratios), *_interval(ratios)


def _interval(samples: Sequence[float]) -> tuple[float, float]:
    """Return the 95% interval of the median, or the range of samples too few for one."""
    if len(samples) < _LEAST_FOR_INTERVAL:
        return min(samples), max(samples)
    return timing.median_interval(samples)
